// SPDX-License-Identifier: Apache-2.0

package run

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// FuzzDecide decides about any record in any world: as it could have been forged, or written by another version of the operator.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	for phase := range byte(9) {
		f.Add(append([]byte{0, 0, 1, 0, 0, phase}, []byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17")...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := (&source{data}).input()
		given := (&source{data}).input()
		// The record goes on as long as decisions follow upon each other.
		for range 60 {
			d := Decide(in)
			checkDecided(t, given, in, d)
			if d.Persist == nil {
				return
			}
			in.Run = in.Run.DeepCopy()
			in.Run.Status = *d.Persist
			given.Run = in.Run.DeepCopy()
		}
		t.Fatal("a record is written for ever (I7)")
	})
}

// checkDecided what holds for every decision whatsoever.
func checkDecided(t *testing.T, given, in Input, d Decision) {
	t.Helper()
	if !reflect.DeepEqual(given, in) {
		t.Fatal("the decision changed what it was given (I10)")
	}
	if again := Decide(in); !reflect.DeepEqual(d, again) {
		t.Fatalf("the decision is another one the second time (I10): %+v, %+v", d, again)
	}
	if d.Persist != nil && (len(d.Act) > 0 || !d.Wait.IsZero()) || len(d.Act) > 0 && !d.Wait.IsZero() {
		t.Fatalf("the decision is not one of a state, effects and a wait: %+v", d)
	}
	from := phaseOf(in.Run)
	for _, e := range d.Act {
		if _, ok := e.(RemoveFinalizer); ok && from != v1.PhaseCompleted {
			t.Fatalf("the finalizer goes in phase %s (I2)", from)
		}
		if start, ok := e.(StartExec); ok {
			if target := recorded(in.Run, start.Key); target == nil || target.Claim == nil || target.Claim.Process != in.Process {
				t.Fatalf("%v starts without a recorded claim (I1)", start.Key)
			}
		}
	}
	if d.Persist == nil {
		return
	}
	if d.Anew && from != v1.PhasePending { // the record was forged: its release begins, wherever it said that it was
		checkDistrusted(t, in, d.Persist)
		return
	}
	if from == v1.PhaseCompleted {
		t.Fatal("the record of a completed run is changed (I3)")
	}
	to := phaseOf(&v1.SnapshotRun{Status: *d.Persist})
	if slices.Index(order, to) < slices.Index(order, from) {
		t.Fatalf("phase goes back from %s to %s (I3)", from, to)
	}
	release := slices.Index(order, v1.PhasePostHooks)
	if slices.Index(order, to) <= release || slices.Index(order, from) > release || from == v1.PhasePending || !hooked(&v1.SnapshotRun{Status: *d.Persist}) {
		return
	}
	if d.Persist.Release == nil {
		t.Fatalf("the release is skipped: from %s to %s (I2)", from, to)
	}
	ended := 0
	for i := range d.Persist.Hooks {
		if h := &d.Persist.Hooks[i]; h.Stage == v1.StagePost && h.Pass == d.Persist.Release.Pass && hookEnded(h) {
			ended++
		}
	}
	if ended < len(d.Persist.Plan.PostHooks) {
		t.Fatalf("the release is over and %d of %d post hooks have ended (I2)", ended, len(d.Persist.Plan.PostHooks))
	}
}

// checkDistrusted: in the place of a record that cannot be carried on stands one that can, and nothing of what the old one said.
func checkDistrusted(t *testing.T, in Input, st *v1.SnapshotRunStatus) {
	t.Helper()
	r := &v1.SnapshotRun{ObjectMeta: in.Run.ObjectMeta, Spec: in.Run.Spec, Status: *st}
	if why := unsound(r); why != "" {
		t.Fatalf("a forged record is replaced by one that cannot be carried on either: %s", why)
	}
	if !meta.IsStatusConditionTrue(st.Conditions, v1.ConditionMayBeQuiesced) {
		t.Fatal("a forged record is replaced, and nobody says that the application may be quiesced")
	}
	var planned []v1.PlannedHook
	if in.Schedule != nil {
		if _, post, err := PlanHooks(in.Schedule, in.Config.Hooks); err == nil {
			planned = post
		}
	}
	if !reflect.DeepEqual(planned, st.Plan.PostHooks) || len(st.Plan.PreHooks)+len(st.Snapshots) > 0 {
		t.Fatalf("a forged record is replaced by one with other hooks than the schedule's: %+v", st.Plan)
	}
	for i := range st.Hooks {
		if len(st.Hooks[i].Targets) > 0 {
			t.Fatalf("a forged record's targets are carried on: %+v", st.Hooks[i])
		}
	}
}
