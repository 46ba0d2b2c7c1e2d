// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Rules about snapshots and what they claim.
var brokenSnapshots = map[string]broken{
	"a snapshot is created while a pre hook runs": {also(v1.PhasePreHooks, func(in Input) Effect {
		m := &machine{Input: in, st: &in.Run.Status}
		return m.create(&m.st.Snapshots[0])
	}), "was created in phase PreHooks (I1)", plain},
	"a snapshot is created although a pre hook failed": {onPlan(func(p *v1.RunPlan, _ *Input) {
		p.PreHooks[0].OnError = v1.OnErrorContinue
	}), "before pre hook quiesce had succeeded (I1)", plain},
	"a snapshot is created as consistent": {onDecision(func(_ Input, d *Decision) {
		for _, e := range d.Act {
			if c, ok := e.(CreateSnapshot); ok {
				c.Labels[v1.LabelConsistency] = v1.ConsistencyApplication
			}
		}
	}), "I11", plain},
	"a snapshot is labelled before the verdict": {also(v1.PhasePostHooks, func(in Input) Effect {
		return LabelConsistency{Name: in.Run.Status.Snapshots[0].Name, Value: v1.ConsistencyApplication}
	}), "without a recorded verdict (I1)", plain},
	"every snapshot is called consistent": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		if st.Consistency != nil {
			st.Consistency.Verdict = v1.ConsistencyApplication
		}
		for i := range st.Snapshots {
			st.Snapshots[i].CutBeforeRelease = true
		}
	}), "I11", with(1, 1, 0, 0, nil)},
	"a container that was restarted counts as quiesced": {onCopy(func(in *Input) {
		if l := in.World.Look; l != nil {
			was := HookTargets{}
			eachTarget(&in.Run.Status, v1.StagePre, func(_ *v1.HookStatus, t *v1.TargetStatus) {
				was.Targets = append(was.Targets, Target{Namespace: t.Namespace, Pod: t.Pod, UID: t.PodUID, Container: t.Container, ContainerID: t.ContainerID})
			})
			in.World.Look = &Look{Pre: []HookTargets{was}, Post: l.Post, Existing: l.Existing}
		}
	}), "I11", with(0, 1, 0, 0, only("a container is restarted"))},
	"a pod that came counts as quiesced": {onCopy(func(in *Input) {
		if l := in.World.Look; l != nil {
			in.World.Look = &Look{Pre: []HookTargets{{Targets: l.Pre[0].Targets[:min(1, len(l.Pre[0].Targets))]}}, Post: l.Post, Existing: l.Existing}
		}
	}), "I11", with(0, 1, 0, 0, only("a pod joins"))},
	"a new release skips the second look": {onPersist(func(in Input, st *v1.SnapshotRunStatus) {
		if st.Release != nil && st.Release.Pass > 1 && in.Run.Status.Release.Pass == 1 && st.Phase == v1.PhasePostHooks {
			st.Consistency = nil
		}
	}), "I11", with(0, 2, 0, 0, only("a container is restarted", "the release is asked for"))},
	"a cut that came after the release counts": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		for i := range st.Snapshots {
			s := &st.Snapshots[i]
			s.CutBeforeRelease = st.Release != nil
		}
		if c := meta.FindStatusCondition(st.Conditions, v1.ConditionSnapshotsCut); c != nil {
			c.Status = metav1.ConditionTrue
		}
	}), "I11", with(0, 0, 0, 1, nil)},
	"a cut that was seen after maxQuiesceSeconds counts": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		for i := range st.Snapshots {
			s := &st.Snapshots[i]
			s.CutBeforeRelease = s.CutBeforeRelease || (s.State == v1.SnapshotReady && st.Release != nil && st.Phase == v1.PhasePostHooks)
		}
	}), "was cut after maxQuiesceSeconds (I11)", with(0, 0, 0, 2, func(n *node) { n.Schedule.Spec.MaxQuiesceSeconds = ptr.To[int32](20) })},
	"any snapshot of that name is the one that was cut": {onCopy(func(in *Input) {
		for i := range in.Run.Status.Snapshots {
			in.Run.Status.Snapshots[i].UID = ""
		}
	}), "I11", with(0, 1, 1, 0, only("a snapshot is deleted"))},
	"every run succeeds": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		if st.Result != "" {
			st.Result = v1.ResultSucceeded
		}
	}), "I6", plain},
	"the label is forgotten": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		for i := range st.Snapshots {
			if st.Phase == v1.PhaseAwaitingReady {
				st.Snapshots[i].CutBeforeRelease = false
			}
		}
	}), "I6", plain},
}

// Rules about decisions themselves, and about deadlines.
var brokenDecisions = map[string]broken{
	"a decision changes what it was given": {func() func(Input) Decision {
		return func(in Input) Decision {
			d := Decide(in)
			if in.Run.Status.Phase == v1.PhasePostHooks {
				in.Run.Status.Message = "x"
			}
			return d
		}
	}, "changed what it was given (I10)", plain},
	"a decision depends on the one before": {func() func(Input) Decision {
		n := 0
		return func(in Input) Decision {
			d := Decide(in)
			if n++; d.Persist != nil && n > 7 {
				d.Persist.Message += time.Duration(n).String()
			}
			return d
		}
	}, "another one the second time (I10)", plain},
	"a state and effects at once": {onDecision(func(in Input, d *Decision) {
		if d.Persist != nil && d.Persist.Phase == v1.PhaseSnapshotting {
			for i := range d.Persist.Snapshots {
				m := &machine{Input: in, st: d.Persist}
				d.Act = append(d.Act, m.create(&d.Persist.Snapshots[i]))
			}
		}
	}), "both a state and effects (I1)", plain},
	"a deadline is forgotten": {onDecision(func(_ Input, d *Decision) { d.Wait = time.Time{} }), "I7", plain},
	"each post hook that waits writes its own words over the other's": {onDecision(func(in Input, d *Decision) {
		if d.Persist == nil && len(d.Act) > 0 || in.World.Look == nil || in.Run.Status.Release == nil || !in.Run.Status.Release.Looked {
			return
		}
		st := in.Run.Status.DeepCopy()
		if d.Persist != nil {
			st = d.Persist
		}
		first, second := "waits for the first pod", "waits for the second pod"
		switch in.Run.Status.Message {
		case first:
			st.Message = second
		default:
			st.Message = first
		}
		d.Persist, d.Wait = st, time.Time{}
	}), "a persist loop (I7)", exploredWorlds["two post hooks in two pods that come and go"]},
	"a record is written although nothing has changed": {onDecision(func(in Input, d *Decision) {
		if d.Persist == nil && len(d.Act) == 0 && phaseOf(in.Run) == v1.PhasePostHooks {
			d.Persist, d.Wait = in.Run.Status.DeepCopy(), time.Time{}
		}
	}), "a persist loop (I7)", plain},
	"the release never ends while a post hook fails": {onPlan(func(p *v1.RunPlan, _ *Input) { p.ReleaseDeadlineSeconds = 100_000 }), "(I5)", with(1, 0, 0, 0, nil)},
	"maxQuiesceSeconds is forgotten":                 {onPlan(func(p *v1.RunPlan, _ *Input) { p.MaxQuiesceSeconds = 0 }), "(I5)", exploredWorlds["maxQuiesceSeconds"]},
	"snapshotTimeoutSeconds is forgotten":            {onPlan(func(p *v1.RunPlan, _ *Input) { p.SnapshotTimeoutSeconds = maxTimeout }), "(I5)", with(0, 0, 0, 2, nil)},
	"what an earlier run left is deleted before anything else": {onDecision(func(in Input, d *Decision) {
		if phaseOf(in.Run) == v1.PhaseSnapshotting && len(in.World.Leftovers) > 0 {
			*d = Decision{Act: []Effect{DeleteLeftover{in.World.Leftovers[0]}}}
		}
	}), "and not released at", exploredWorlds["writes that are refused"]},
	"a label that is refused is tried for ever": {onDecision(func(in Input, d *Decision) {
		if d.Persist != nil && d.Persist.Phase == v1.PhaseCompleted && phaseOf(in.Run) == v1.PhaseAwaitingReady && strings.Contains(d.Persist.Message, "labelled") {
			*d = Decision{Act: []Effect{LabelConsistency{Name: in.Run.Status.Snapshots[0].Name, Value: v1.ConsistencyApplication}}}
		}
	}), "after the ready timeout (I7)", exploredWorlds["writes that are refused"]},
	"a snapshot that never becomes ready is waited for": {onDecision(func(in Input, d *Decision) {
		if phaseOf(in.Run) == v1.PhaseAwaitingReady && !d.Wait.IsZero() {
			d.Wait = in.Now.Add(25 * time.Hour)
		}
	}), "ready timeout (I7)", with(0, 0, 0, 1, func(n *node) { n.Slow = true })},
}
