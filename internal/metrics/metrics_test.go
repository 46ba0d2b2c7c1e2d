// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// series of a schedule, or of the process if it has no name, as name{label="value",...} without the schedule's labels.
func series(t *testing.T, s Schedule) map[string]float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "stillpoint_") && !strings.HasPrefix(f.GetName(), "snapscheduler_") {
			continue
		}
		for _, m := range f.GetMetric() {
			var of Schedule
			var labels []string
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case labelName:
					of.Name = l.GetValue()
				case labelNamespace:
					of.Namespace = l.GetValue()
				default:
					labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
				}
			}
			if of == s {
				out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

func TestWhatIsNotKnownHasNoSeries(t *testing.T) {
	g := NewWithT(t)
	s := Schedule{"shop", t.Name()}
	SetState(s, State{Ready: true, ReadyReason: "Scheduled"}, noon)
	defer Forget(s)
	for name := range series(t, s) {
		g.Expect(name).NotTo(ContainSubstring("_timestamp_seconds"), "a time of 0 is long ago")
		g.Expect(name).NotTo(HavePrefix("stillpoint_last_run_info"))
	}
}

func TestForgettingAScheduleLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	s, other := Schedule{"shop", t.Name()}, Schedule{"other", t.Name()}
	for _, s := range []Schedule{s, other} {
		SetState(s, State{Claims: map[string]Claim{"data": {All: 2, Ready: 1}}, QuiesceDeadline: noon}, noon)
		SnapshotCreated(s, "data", noon)
		RunCompleted(s, "Failed")
		RunStarted(s, time.Second)
		HookEnded(s, "Pre", "Timeout", time.Second)
		Released(s, time.Second)
		SnapshotCut(s, time.Second)
		SnapshotRestorable(s, time.Second)
		SlotsMissed(s, "Overlap", 3)
		SnapshotExpired(s, "Expired")
	}
	before := series(t, other)
	g.Expect(before).To(HaveKeyWithValue(`stillpoint_missed_slots_total{reason="Overlap"}`, 3.0))
	Forget(s)
	g.Expect(series(t, s)).To(BeEmpty())
	g.Expect(series(t, other)).To(Equal(before))
	SetUnreleased(other, noon)
	g.Expect(slices.Sorted(maps.Keys(series(t, other)))).To(Equal([]string{"stillpoint_may_be_quiesced{}", "stillpoint_quiesce_deadline_timestamp_seconds{}", "stillpoint_quiesced{}"}))
	Forget(other)
	g.Expect(series(t, other)).To(BeEmpty())
}

// Claims come and go under ever new names. Their counters go too, but not before everybody has read them, nor those of a claim that fails.
func TestTheCountersOfAVanishedClaimGo(t *testing.T) {
	g := NewWithT(t)
	s := Schedule{"shop", t.Name()}
	defer Forget(s)
	SnapshotCreated(s, "gone", noon)
	SnapshotCreated(s, "kept", noon)
	SnapshotCreateFailed(s, "failing", noon)
	look := func(now time.Time) string {
		SetState(s, State{Claims: map[string]Claim{"kept": {All: 1}}}, now)
		var left []string
		for name := range series(t, s) {
			if claim, ok := strings.CutPrefix(name, `snapscheduler_snapshot_create_total{pvc_name="`); ok {
				left = append(left, strings.TrimSuffix(claim, `"}`))
			}
		}
		slices.Sort(left)
		return strings.Join(left, " ")
	}
	g.Expect(look(noon.Add(23 * time.Hour))).To(Equal("failing gone kept"))
	SnapshotCreateFailed(s, "failing", noon.Add(24*time.Hour))
	g.Expect(look(noon.Add(25 * time.Hour))).To(Equal("failing kept"))
	g.Expect(series(t, s)).To(HaveKeyWithValue(`snapscheduler_snapshot_create_error_total{pvc_name="failing"}`, 2.0))
}

func TestTheProcess(t *testing.T) {
	g := NewWithT(t)
	g.Expect(series(t, Schedule{})).To(HaveKeyWithValue("stillpoint_leader{}", 0.0))
	Leads(true, func() Pool {
		return Pool{Quiesce: Lane{InFlight: 2, Queued: 3}, Release: Lane{InFlight: 4, Queued: 5}, Held: 6}
	})
	g.Expect(series(t, Schedule{})).To(Equal(map[string]float64{"stillpoint_leader{}": 1, "stillpoint_hooks_held{}": 6,
		`stillpoint_hooks_in_flight{lane="quiesce"}`: 2, `stillpoint_hooks_queued{lane="quiesce"}`: 3,
		`stillpoint_hooks_in_flight{lane="release"}`: 4, `stillpoint_hooks_queued{lane="release"}`: 5}))
	Leads(false, func() Pool { return Pool{} })
	g.Expect(series(t, Schedule{})).To(HaveKeyWithValue("stillpoint_leader{}", 0.0))
}
