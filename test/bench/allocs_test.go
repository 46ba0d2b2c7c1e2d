// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// A decision is made for every change of every run. What it allocates may grow with the run's snapshots, and not with their square.
func TestADecisionAllocatesLittle(t *testing.T) {
	for _, c := range []struct {
		claims int
		most   float64
	}{{1, 70}, {50, 550}, {500, 5000}} {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		in := run.Input{Now: now, Process: "bench", Config: run.Config{ReleaseDeadline: time.Hour, ReadyTimeout: time.Hour},
			Schedule: &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hourly", UID: "schedule"}},
			Run: &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "by-hand", UID: "run", CreationTimestamp: metav1.NewTime(now)},
				Spec: v1.SnapshotRunSpec{ScheduleName: "hourly"}},
		}
		survey := &run.Survey{}
		for i := range c.claims {
			name := fmt.Sprintf("data-%d", i)
			survey.Claims = append(survey.Claims, run.Claim{Name: name, UID: types.UID(name), ClassName: className})
		}
		in.World.Survey = survey
		if d := run.Decide(in); len(d.Act) != c.claims {
			t.Fatalf("%d effects for %d claims: nothing is measured", len(d.Act), c.claims)
		}
		if got := testing.AllocsPerRun(20, func() { run.Decide(in) }); got > c.most {
			t.Errorf("a decision about %d claims allocates %g times, want at most %g", c.claims, got, c.most)
		}
	}
}
