// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// values that somebody could write into a field.
var values = []any{nil, "", "x", "../x", strings.Repeat("y", 300), "\x00\x1b", 0, -1, 1, 1 << 31, -1 << 31, true, []any{}, map[string]any{}, "1970-01-01T00:00:00Z",
	"9999-12-31T23:59:59.000000Z", "2026-03-01T12:00:00.000000Z", "Pending", "Planned", "PreHooks", "Snapshotting", "PostHooks", "AwaitingReady", "Completed", "Succeeded",
	"Pre", "Post", "kube-system", "p1", "Hold"}

// scribble changes something somewhere in a JSON document, and reports whether it did.
func scribble(r *rand.Rand, at any) bool {
	switch at := at.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(at)) {
			value := at[key]
			if r.Intn(3) > 0 && scribble(r, value) {
				return true
			}
			if r.Intn(4) == 0 {
				if v := values[r.Intn(len(values))]; v == nil {
					delete(at, key)
				} else {
					at[key] = v
				}
				return true
			}
		}
	case []any:
		for i := range at {
			if r.Intn(2) == 0 && scribble(r, at[i]) {
				return true
			}
			if r.Intn(6) == 0 {
				at[i] = at[r.Intn(len(at))]
				return true
			}
		}
	}
	return false
}

// scribbled is the status with a few changes that fit its types.
func scribbled(r *rand.Rand, st v1.SnapshotRunStatus) v1.SnapshotRunStatus {
	for range 100 {
		b, err := json.Marshal(&st)
		if err != nil {
			panic(err)
		}
		var document map[string]any
		if err := json.Unmarshal(b, &document); err != nil {
			panic(err)
		}
		for range 1 + r.Intn(3) {
			scribble(r, document)
		}
		if b, err = json.Marshal(document); err != nil {
			panic(err)
		}
		var out v1.SnapshotRunStatus
		if json.Unmarshal(b, &out) == nil && validPhase(out.Phase) {
			return out
		}
	}
	return st
}

func validPhase(p v1.RunPhase) bool {
	for _, known := range append(order, "") {
		if p == known {
			return true
		}
	}
	return false
}

// Whatever is written into the record of a run at any time: Decide does not crash, no hook runs outside of the run's namespace but as an account
// of it, and the run ends.
func TestNoRecordMakesTheMachineCrashOrWaitForEver(t *testing.T) {
	runs := 3000
	if testing.Short() {
		runs = 400
	}
	for seed := range runs {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { carryScribbled(t, rand.New(rand.NewSource(int64(seed)))) })
	}
}

func carryScribbled(t *testing.T, r *rand.Rand) {
	w := newWorld(t)
	w.forged = true
	w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
	switch r.Intn(4) {
	case 0:
		w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks, w.run.Finalizers = nil, nil, nil
	case 1:
		h := &w.schedule.Spec.PreHooks[0]
		h.Mode, h.ExpectOutput, h.ExpectReleaseOutput = v1.ModeHold, "READY", "RELEASED"
	}
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Target.Namespace != "shop" && e.ServiceAccountName == "" {
			t.Fatalf("a hook runs in namespace %q", e.Target.Namespace)
		}
		switch r.Intn(6) {
		case 0:
			return failed()
		case 1:
			return timedOut()
		}
		return completed()
	}
	steps, when := 0, r.Intn(25)
	w.onStep = func(w *world) {
		if steps++; steps == when || steps == when+7 {
			w.run.Status = scribbled(r, w.run.Status)
			w.starts = map[ExecKey]int{}
		}
	}
	w.finish()
}
