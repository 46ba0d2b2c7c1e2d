// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// The exploration must be able to fail: each of these broken rules is caught.
func TestExploreCatchesBrokenRules(t *testing.T) {
	if testing.Short() {
		t.Skip("explores")
	}
	broken := map[string]struct {
		decide func(Input) Decision
		says   string
		edits  int
	}{
		"the run is completed before its release": {func(in Input) Decision {
			d := Decide(in)
			if d.Persist != nil && d.Persist.Phase == v1.PhasePostHooks {
				d.Persist.Phase = v1.PhaseCompleted
			}
			return d
		}, "I2", 0},
		"the release is skipped after a failed snapshot": {func(in Input) Decision {
			d := Decide(in)
			if d.Persist != nil && d.Persist.Phase == v1.PhasePostHooks && slices.ContainsFunc(d.Persist.Snapshots, func(s v1.SnapshotStatus) bool { return s.State == v1.SnapshotFailed }) {
				d.Persist.Phase = v1.PhaseAwaitingReady
			}
			return d
		}, "I2", 0},
		"the release is skipped after a failed pre hook": {func(in Input) Decision {
			d := Decide(in)
			if d.Persist != nil && d.Persist.Phase == v1.PhasePostHooks && d.Persist.Release.Reason == v1.ReasonHookFailed {
				d.Persist.Phase = v1.PhaseCompleted
			}
			return d
		}, "I2", 0},
		"a claim of another process is taken for one's own": {func(in Input) Decision {
			for i := range in.Run.Status.Hooks {
				for j := range in.Run.Status.Hooks[i].Targets {
					if c := in.Run.Status.Hooks[i].Targets[j].Claim; c != nil {
						c.Process = in.Process
					}
				}
			}
			d := Decide(in)
			for _, k := range ExecKeys(in.Run) {
				for _, e := range d.Act {
					if s, ok := e.(StartExec); ok && s.Key == k {
						d.Act = append(d.Act, ReserveExec{Key: k}, s)
						return d
					}
				}
			}
			return d
		}, "started twice (I4)", 0},
		"a command is started without a claim": {func(in Input) Decision {
			d := Decide(in)
			for _, e := range d.Act {
				if r, ok := e.(ReserveExec); ok {
					d.Act = append(d.Act, StartExec{Key: r.Key})
				}
			}
			return d
		}, "I1", 0},
		"every snapshot is called consistent": {func(in Input) Decision {
			d := Decide(in)
			if d.Persist != nil && d.Persist.Consistency != nil {
				d.Persist.Consistency.Verdict = v1.ConsistencyApplication
				for i := range d.Persist.Snapshots {
					d.Persist.Snapshots[i].CutBeforeRelease = true
				}
			}
			return d
		}, "I11", 1},
		"no second release follows a pre hook whose end is unknown": {func(in Input) Decision {
			for i := range in.Run.Status.Hooks {
				for j := range in.Run.Status.Hooks[i].Targets {
					in.Run.Status.Hooks[i].Targets[j].UnknownUntil = nil
				}
			}
			return Decide(in)
		}, "I2", 0},
		"a pod that is gone counts as released": {func(in Input) Decision {
			for i := range in.Run.Status.Hooks {
				h := &in.Run.Status.Hooks[i]
				for j := range h.Targets {
					if h.Targets[j].Gone {
						h.Targets[j].Gone, h.Targets[j].Reason = false, v1.ReasonHookCompleted
					}
				}
			}
			if in.World.Look != nil {
				for i := range in.World.Look.Post {
					in.World.Look.Post[i].Targets = nil
				}
			}
			return Decide(in)
		}, "I2", 1},
		"the finalizer goes early": {func(in Input) Decision {
			d := Decide(in)
			if phaseOf(in.Run) == v1.PhasePostHooks && len(d.Act) > 0 {
				d.Act = append(d.Act, RemoveFinalizer{})
			}
			return d
		}, "I2", 0},
		"a deadline is forgotten": {func(in Input) Decision {
			d := Decide(in)
			d.Wait = time.Time{}
			return d
		}, "I7", 0},
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startNode(1, 1)
			n.Faults, n.Edits, n.Crashes = 1, b.edits, 1
			x := &explorer{t: t, decide: b.decide, limit: 100_000}
			failure := x.run(n)
			if !strings.Contains(failure, b.says) {
				t.Fatalf("not caught after %d states: %s", len(x.seen), failure)
			}
			t.Logf("caught after %d states: %s", len(x.seen), strings.SplitN(failure, "\n", 2)[0])
		})
	}
}
