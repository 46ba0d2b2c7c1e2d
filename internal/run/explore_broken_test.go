// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// broken is a rule that the machine does not keep, and what the exploration must say of it.
type broken struct {
	decide func() func(Input) Decision
	says   string
	world  func() *node
}

// The exploration must be able to fail: each of these broken rules is caught.
func TestExploreCatchesBrokenRules(t *testing.T) {
	if testing.Short() {
		t.Skip("explores")
	}
	for _, table := range []map[string]broken{brokenPhases, brokenCommands, brokenSnapshots, brokenDecisions} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := table[name]
				x := &explorer{t: t, decide: b.decide(), limit: 100_000}
				failure := x.run(b.world())
				if !strings.Contains(failure, b.says) || failure == "" {
					t.Fatalf("not caught after %d states: %s", len(x.nodes), failure)
				}
				t.Logf("caught after %d states: %s", len(x.nodes), strings.SplitN(failure, "\n", 2)[0])
			})
		}
	}
}

// onCopy decides upon a changed copy of what was gathered.
func onCopy(change func(in *Input)) func() func(Input) Decision {
	return func() func(Input) Decision {
		return func(in Input) Decision {
			in.Run = in.Run.DeepCopy()
			in.World.Exec = maps.Clone(in.World.Exec)
			change(&in)
			return Decide(in)
		}
	}
}

// onPlan decides by a changed plan. The record keeps the right one.
func onPlan(change func(p *v1.RunPlan, in *Input)) func() func(Input) Decision {
	return func() func(Input) Decision {
		return func(in Input) Decision {
			plan := in.Run.Status.Plan
			if plan == nil {
				return Decide(in)
			}
			in.Run = in.Run.DeepCopy()
			change(in.Run.Status.Plan, &in)
			d := Decide(in)
			if d.Persist != nil {
				d.Persist.Plan = plan.DeepCopy()
			}
			return d
		}
	}
}

// onPersist changes what is to be recorded.
func onPersist(change func(in Input, st *v1.SnapshotRunStatus)) func() func(Input) Decision {
	return onDecision(func(in Input, d *Decision) {
		if d.Persist != nil {
			change(in, d.Persist)
		}
	})
}

func onDecision(change func(in Input, d *Decision)) func() func(Input) Decision {
	return func() func(Input) Decision {
		return func(in Input) Decision {
			d := Decide(in)
			change(in, &d)
			return d
		}
	}
}

// also has one effect more in that phase, unless something is to be recorded.
func also(phase v1.RunPhase, effect func(in Input) Effect) func() func(Input) Decision {
	return onDecision(func(in Input, d *Decision) {
		if d.Persist == nil && phaseOf(in.Run) == phase {
			if e := effect(in); e != nil {
				d.Act, d.Wait = append(slices.Clone(d.Act), e), time.Time{}
			}
		}
	})
}

// skipTo a phase instead of the release.
func skipTo(phase v1.RunPhase, when func(st *v1.SnapshotRunStatus) bool) func() func(Input) Decision {
	return onPersist(func(in Input, st *v1.SnapshotRunStatus) {
		if phaseOf(in.Run) != v1.PhasePostHooks && st.Phase == v1.PhasePostHooks && when(st) {
			st.Phase = phase
		}
	})
}

// eachTarget of the hooks of a stage.
func eachTarget(st *v1.SnapshotRunStatus, stage v1.HookStage, do func(h *v1.HookStatus, t *v1.TargetStatus)) {
	for i := range st.Hooks {
		if h := &st.Hooks[i]; h.Stage == stage {
			for j := range h.Targets {
				do(h, &h.Targets[j])
			}
		}
	}
}

// heldKeys are held commands.
func heldKeys(in Input) []ExecKey {
	return slices.DeleteFunc(sortedKeys(in.World.Exec), func(k ExecKey) bool { return in.World.Exec[k].State != ExecHeld })
}

// plain is one pod and one claim, with a fault and a crash.
func plain() *node { return startNode(1, 1).budget(1, 0, 1, 0, 0) }

// with one pod and one claim, a budget and what else is so.
func with(faults, edits, crashes, delays int, set func(n *node)) func() *node {
	return func() *node {
		n := startNode(1, 1).budget(faults, edits, crashes, delays, 0)
		if set != nil {
			set(n)
		}
		return n
	}
}

// only these things are done by persons.
func only(what ...string) func(n *node) { return func(n *node) { n.Persons = what } }
