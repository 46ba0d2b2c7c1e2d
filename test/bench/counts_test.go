// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// What the operator costs is counted here, never timed: a count is the same on every machine.

var control *world

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(func() int {
		root, err := filepath.Abs(filepath.Join("..", ".."))
		if err == nil {
			control, err = start(context.Background(), options{root: root, scale: 1})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "starting the control plane:", err)
			return 1
		}
		defer func() {
			if err := control.stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stopping the control plane:", err)
			}
		}()
		build := exec.Command("hack/build.sh", "bench", filepath.Join(control.dir, "stillpoint"), ".")
		build.Dir, build.Stdout, build.Stderr = root, os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building the operator:", err)
			return 1
		}
		return m.Run()
	}())
}

// A request more per run is a request more for each of thousands of runs at midnight. One less is welcome: lower the number then.
func TestARunAsksNoMoreThanItMust(t *testing.T) {
	for _, c := range []struct {
		name  string
		hooks bool
		want  map[string]int
	}{
		{"without hooks", false, map[string]int{
			"list persistentvolumeclaims":    1,
			"create volumesnapshots":         1,
			"patch snapshotruns/status":      1,
			"patch snapshotschedules/status": 1,
			"create events":                  1,
		}},
		{"with a pre and a post hook", true, map[string]int{
			"list persistentvolumeclaims":     2, // before and under the lock
			"list pods":                       3, // likewise, and for the release
			"create selfsubjectaccessreviews": 4,
			"patch snapshotruns":              2, // the finalizer
			"patch snapshotruns/status":       7,
			"get pods/exec":                   2,
			"create volumesnapshots":          1,
			"patch volumesnapshots":           1, // the consistency
			"patch snapshotschedules/status":  5, // of which some may fall together
			"create events":                   4,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const runs = 20
			err := control.countRuns(t.Context(), fmt.Sprintf("counts-%t", c.hooks), runs, c.hooks, 2, func(round countedRound) {

				for kind, n := range round.requests {
					if n > c.want[kind]*runs {
						t.Errorf("%s: %d requests of %d runs, want at most %d for each", kind, n, runs, c.want[kind])
					}
				}
				if n := round.requests["create volumesnapshots"]; n != runs {
					t.Errorf("%d VolumeSnapshots were created by %d runs", n, runs)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSchedulesThatAreNotDueAskNothing(t *testing.T) {
	scenario := idleRequests("counts-idle", 50, 20*time.Second)
	results, err := scenario.run(t.Context(), control)
	if err != nil {
		t.Fatal(err)
	}
	if n := results[0].Operator[0]; n != 0 {
		t.Errorf("%g requests were sent while no schedule was due:\n%s", n, results[0].Note)
	}
}
