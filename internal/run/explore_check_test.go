// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// ask for a decision about a record. It must be one of three, always the same, and change nothing of what it was given (I10).
func (x *explorer) ask(n *node, r *v1.SnapshotRun) Decision {
	given := r.DeepCopy()
	in := n.input(given)
	schedule := in.Schedule
	if x.asked++; x.asked%8 == 0 { // it is less likely to be changed
		in.Schedule = schedule.DeepCopy()
	}
	d := x.decide(in)
	if !reflect.DeepEqual(given, r) || (in.Schedule != schedule && !reflect.DeepEqual(in.Schedule, schedule)) {
		x.fail(n, "the decision changed what it was given (I10)")
	}
	if again := x.decide(in); !reflect.DeepEqual(d, again) {
		x.fail(n, "the decision is another one the second time (I10)")
	}
	if d.Anew && phaseOf(r) != v1.PhasePending {
		x.fail(n, "a record that the operator wrote is begun anew")
	}
	if d.Persist != nil && len(d.Act) > 0 {
		x.fail(n, "the decision has both a state and effects (I1)")
	}
	return d
}

// checkDecision: what keeps an application quiesced has an end, while an operator runs (I5).
func (x *explorer) checkDecision(n *node, d Decision) {
	st := &n.Run.Status
	idle := d.Persist == nil && len(d.Act) == 0
	if until := n.Run.CreationTimestamp.Add(n.Config.ReadyTimeout); in(n.Run, v1.PhaseAwaitingReady) && idle && (d.Wait.IsZero() || d.Wait.After(until)) {
		x.fail(n, "the run waits for its snapshots longer than the ready timeout (I7)")
	}
	until := later(n.Run.CreationTimestamp.Add(n.Config.ReadyTimeout), n.Up)
	if in(n.Run, v1.PhaseAwaitingReady) && n.Now.After(until) && slices.ContainsFunc(d.Act, func(e Effect) bool { _, label := e.(LabelConsistency); return label }) {
		x.fail(n, "a label is written after the ready timeout (I7)")
	}
	if !Active(n.Run) {
		return
	}
	releases := d.Persist != nil && d.Persist.Phase == v1.PhasePostHooks
	if deadline := n.quiesceDeadline(); !deadline.IsZero() && !releases && !n.Now.Before(deadline) && (idle || n.Now.After(later(deadline, n.Up))) {
		x.fail(n, "quiesced until %s and not released at %s (I5)", deadline.Sub(begin), n.Now.Sub(begin))
	}
	if deadline := n.quiesceDeadline(); idle && !deadline.IsZero() && in(n.Run, v1.PhaseSnapshotting) && (d.Wait.IsZero() || d.Wait.After(deadline)) {
		x.fail(n, "quiesced until %s and asleep until %s (I5)", deadline.Sub(begin), d.Wait.Sub(begin))
	}
	if !in(n.Run, v1.PhasePostHooks) || st.Release.NextPassTime != nil || !idle {
		return
	}
	for _, e := range n.Exec {
		if e.State == ExecReleasing || e.State == ExecRunning {
			return
		}
	}
	if deadline := st.Release.PassTime.Add(time.Duration(st.Plan.ReleaseDeadlineSeconds) * time.Second); !n.Now.Before(deadline) {
		x.fail(n, "a release that began at %s still waits at %s (I5)", st.Release.PassTime.Sub(begin), n.Now.Sub(begin))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// quiesceDeadline is when the release must begin by what the schedule says; zero: nothing is quiesced yet, or it has begun.
func (n *node) quiesceDeadline() time.Time {
	st := &n.Run.Status
	if st.QuiescedTime == nil || !in(n.Run, v1.PhasePreHooks, v1.PhaseSnapshotting) {
		return time.Time{}
	}
	var longest time.Duration
	for i := range st.Plan.PreHooks {
		h := &st.Plan.PreHooks[i]
		// Every attempt with its slot, its time and the pause behind it.
		longest += time.Duration(*h.BackoffLimit+freeRepeats+1) * (time.Duration(h.TimeoutSeconds)*time.Second + reportSlack + ClaimWindow + 2*maxPreBackoff)
	}
	deadline := later(st.QuiescedTime.Time, n.Up).Add(longest)
	if in(n.Run, v1.PhaseSnapshotting) {
		deadline = st.SnapshottingTime.Add(time.Duration(st.Plan.SnapshotTimeoutSeconds) * time.Second)
	}
	if st.Plan.MaxQuiesceSeconds > 0 {
		if most := st.QuiescedTime.Add(time.Duration(st.Plan.MaxQuiesceSeconds) * time.Second); most.Before(deadline) {
			deadline = most
		}
	}
	return deadline
}

// persist what a decision wants to record.
func (x *explorer) persist(n *node, st *v1.SnapshotRunStatus) {
	c := n.clone("record " + string(st.Phase))
	c.Stale = n.Run
	c.Run = &v1.SnapshotRun{ObjectMeta: n.Run.ObjectMeta, Spec: n.Run.Spec, Status: *st}
	if x.persists++; x.persists%16 == 0 { // not always, for it takes longer than everything else
		x.readBack(c)
	}
	c.Lock = c.Lock || (Active(c.Run) && in(n.Run, v1.PhasePending))
	x.checkForward(n, c)
	if in(c.Run, v1.PhaseCompleted) && !in(n.Run, v1.PhaseCompleted) {
		x.checkResult(c)
	}
	x.decided(n, c)
}

// readBack: what is recorded survives the way through JSON.
func (x *explorer) readBack(n *node) {
	b, err := json.Marshal(n.Run.Status)
	if err != nil {
		x.t.Fatal(err)
	}
	var st v1.SnapshotRunStatus
	if err := json.Unmarshal(b, &st); err != nil {
		x.t.Fatal(err)
	}
	if len(b) > MaxJournalBytes {
		x.fail(n, "the record has %d bytes", len(b))
	}
	if !equality.Semantic.DeepEqual(st, n.Run.Status) {
		x.fail(n, "the record is another one when it is read back")
	}
}

// checkForward: what is recorded only moves forward (I3).
func (x *explorer) checkForward(n, c *node) {
	from, to := slices.Index(order, phaseOf(n.Run)), slices.Index(order, phaseOf(c.Run))
	if to < from {
		x.fail(c, "phase went back from %s to %s (I3)", order[from], order[to])
	}
	release := slices.Index(order, v1.PhasePostHooks)
	if hooked(c.Run) && to > release && from < release {
		x.fail(c, "the release was skipped: %s to %s (I2)", order[from], order[to])
	}
	if hooked(n.Run) && to > release && from == release {
		for i := range c.Run.Status.Hooks {
			if h := &c.Run.Status.Hooks[i]; !hookEnded(h) && (h.Stage == v1.StagePre || h.Pass == c.Run.Status.Release.Pass) {
				x.fail(c, "the release is over and hook %s has not ended (I2)", h.Name)
			}
		}
	}
	if a, b := n.Run.Status.Release, c.Run.Status.Release; a != nil && (b == nil || b.Pass < a.Pass) {
		x.fail(c, "a pass of the release was taken back (I3)")
	}
	if a, b := n.Run.Status.Plan, c.Run.Status.Plan; a != nil && a != b {
		p := *b
		if n.Run.Annotations[v1.AnnotationRelease] != "" {
			p.PostHooks, p.ServiceAccountName = a.PostHooks, a.ServiceAccountName
		}
		if !equality.Semantic.DeepEqual(a, &p) {
			x.fail(c, "the plan was changed (I3)")
		}
	}
	if a, b := n.Run.Status.QuiescedTime, c.Run.Status.QuiescedTime; a != nil && !a.Equal(b) && (b != nil || c.quiescing()) {
		x.fail(c, "quiescedTime was changed (I3)")
	}
}

// quiescing: something is quiesced, or may yet be by a command that nobody watches.
func (n *node) quiescing() bool {
	for _, frozen := range n.Frozen {
		if frozen {
			return true
		}
	}
	return len(n.Loose) > 0
}

// checkResult of a run that has just completed (I6).
func (x *explorer) checkResult(n *node) {
	st := &n.Run.Status
	if st.Result != v1.ResultSucceeded || ModeOf(n.Run) != v1.RunSnapshot {
		return
	}
	for _, s := range st.Snapshots {
		asked := len(st.Plan.PreHooks) > 0 && !st.Consistency.Allowed
		if seen, ok := n.Snapshots[s.Name]; !ok || seen.Foreign || !seen.Ready || (asked && seen.Consistency != v1.ConsistencyApplication) {
			x.fail(n, "the run succeeded and snapshot %s is not as asked (I6)", s.Name)
		}
	}
}

// check what must hold in every state.
func (x *explorer) check(n *node) {
	st := &n.Run.Status
	if past := slices.Index(order, phaseOf(n.Run)) > slices.Index(order, v1.PhasePostHooks); past && st.QuiescedTime != nil && st.ReleasedTime == nil {
		x.fail(n, "phase %s without a release (I2)", st.Phase)
	}
	for name, s := range n.Snapshots {
		if s.Consistency != v1.ConsistencyApplication {
			continue
		}
		if !n.CutFrozen[name] {
			x.fail(n, "snapshot %s is labelled application and was not cut while everything was quiesced (I11)", name)
		}
		for i := range st.Snapshots {
			if r := &st.Snapshots[i]; r.Name == name && st.Plan.MaxQuiesceSeconds > 0 &&
				r.CutSeenTime.Sub(st.QuiescedTime.Time) > time.Duration(st.Plan.MaxQuiesceSeconds)*time.Second {
				x.fail(n, "snapshot %s is labelled application and was cut after maxQuiesceSeconds (I11)", name)
			}
		}
	}
}

// checkEnd what must hold when the run is over.
func (x *explorer) checkEnd(n *node) {
	alarm := meta.IsStatusConditionTrue(n.Run.Status.Conditions, v1.ConditionMayBeQuiesced)
	for pod, frozen := range n.Frozen {
		if frozen && !alarm {
			x.fail(n, "the run is over, the application of %s is quiesced, and nobody says so (I2, I8)", pod)
		}
	}
	if n.Lock {
		x.fail(n, "the run is over and keeps its lock")
	}
}

// decided: a decision led from n to c. Decisions alone, without an event between them, come to rest: the record is not written for ever, nor
// are two effects repeated in turns. Time does not pass in between, so that states which differ in times alone are the same.
func (x *explorer) decided(n, c *node) {
	from, to := n.key(), c.key()
	x.next[from] = append(x.next[from], to)
	if x.failure == "" && x.leads(to, from, map[uint64]bool{}) {
		x.fail(c, "decisions go round in a circle without an event: a persist loop (I7)")
	}
	x.visit(c)
}

func (x *explorer) leads(from, to uint64, seen map[uint64]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(x.next[from], func(k uint64) bool { return x.leads(k, to, seen) })
}

// checkReach: from every state an end can be reached (I7).
func (x *explorer) checkReach() {
	before := make([][]int32, len(x.nodes))
	for _, e := range x.graph {
		before[e[1]] = append(before[e[1]], e[0])
	}
	good := make([]bool, len(x.nodes))
	var queue []int32
	for i, n := range x.nodes {
		if good[i] = n.end; n.end {
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, j := range before[i] {
			if !good[j] {
				good[j] = true
				queue = append(queue, j)
			}
		}
	}
	if i := slices.Index(good, false); i >= 0 {
		x.failure = "no end can be reached from here (I7)\n  " + (&node{trace: x.nodes[i].trace}).history()
	}
}
