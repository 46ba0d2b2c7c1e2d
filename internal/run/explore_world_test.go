// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// happen: everything that the world may do by itself.
func (x *explorer) happen(n *node) bool {
	happened := false
	for _, name := range slices.Sorted(maps.Keys(n.Exec)) {
		k, e := n.Keys[name], n.Exec[name]
		pod := volumeOf(podOf(k))
		switch e.State {
		case ExecRunning:
			happened = true
			if !n.exists(podOf(k)) {
				c := n.clone("finds no pod: " + name)
				c.Exec[name] = Exec{State: ExecDone, Outcome: Outcome{Reason: v1.ReasonPodNotFound, NeverStarted: true}}
				x.visit(c)
				continue
			}
			held := k.Stage == v1.StagePre && n.Run.Status.Plan.PreHooks[k.Hook].Mode == v1.ModeHold
			c := n.clone("ends well: " + name)
			c.Frozen[pod] = k.Stage == v1.StagePre
			c.Exec[name] = Exec{State: ExecDone, Outcome: *completed()}
			if held {
				c.Exec[name] = Exec{State: ExecHeld, HeldAt: c.Now}
			}
			x.visit(c)
			if n.Faults == 0 {
				continue
			}
			for what, o := range map[string]*Outcome{"fails": failed(), "times out": timedOut(), "is lost": lost()} {
				c := n.clone(what + ": " + name)
				c.Faults--
				c.Exec[name] = Exec{State: ExecDone, Outcome: *o}
				if o.EndUnknown {
					c.loosen(k)
				}
				x.visit(c)
				if k.Stage == v1.StagePre && !held {
					f := c.clone("and had quiesced")
					f.Frozen[pod] = true
					x.visit(f)
				}
			}
		case ExecReleasing:
			happened = true
			c := n.clone("is released: " + name)
			c.Frozen[pod] = false
			c.Exec[name] = Exec{State: ExecDone, Outcome: *completed()}
			x.visit(c)
		case ExecHeld:
			if n.Faults > 0 {
				c := n.clone("is lost while held: " + name)
				c.Faults--
				c.Frozen[pod] = false
				c.Exec[name] = Exec{State: ExecDone, Outcome: Outcome{Reason: v1.ReasonHoldLost, EndUnknown: true}}
				x.visit(c)
			}
		case ExecUnknown, ExecQueued, ExecReserved, ExecDone:
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Snapshots)) {
		s := n.Snapshots[name]
		if s.Ready || s.Error != "" {
			continue
		}
		happened = true
		c := n.clone("is cut: " + name)
		t := s
		t.Bound, t.Cut, t.Ready = true, true, true
		c.Snapshots[name] = t
		c.CutFrozen[name] = !slices.ContainsFunc(n.Pods, func(p Target) bool { return !n.Frozen[volumeOf(string(p.UID))] })
		x.visit(c)
		if n.Faults > 0 {
			c := n.clone("fails: " + name)
			c.Faults--
			t := s
			t.Error = "refused"
			c.Snapshots[name] = t
			x.visit(c)
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(n.Loose)) {
		if !n.Frozen[pod] {
			c := n.clone("a loose command freezes " + pod)
			c.Frozen[pod] = true
			delete(c.Loose, pod)
			x.visit(c)
		}
	}
	return happened
}

// faults: what people and machines do at the worst time.
func (x *explorer) faults(n *node) {
	if n.Crashes > 0 && n.Run.Status.Phase != v1.PhaseCompleted {
		c := n.clone("CRASH")
		c.Crashes--
		c.Process++
		for name, e := range n.Exec {
			k := n.Keys[name]
			switch e.State {
			case ExecRunning:
				c.loosen(k)
			case ExecHeld, ExecReleasing:
				c.Frozen[volumeOf(podOf(k))] = false // a held command releases when its client dies
			case ExecUnknown, ExecQueued, ExecReserved, ExecDone:
			}
		}
		c.Exec, c.Keys, c.Creates = map[string]Exec{}, map[string]ExecKey{}, map[string]CreateFailure{}
		x.visit(c)
		// The new process may see the record as it was before the last write: what it then wants to record is refused, what it does is done.
		if n.Stale != nil {
			if d := x.decide(c.input(n.Stale.DeepCopy())); len(d.Act) > 0 {
				x.act(c, d.Act, "act on a stale record:")
			}
		}
	}
	if n.Edits == 0 || n.Run.Status.Phase == v1.PhaseCompleted {
		return
	}
	edit := func(what string, do func(c *node)) {
		c := n.clone(what)
		c.Edits--
		do(c)
		x.visit(c)
	}
	if n.Run.DeletionTimestamp == nil {
		edit("the run is deleted", func(c *node) { c.Run.DeletionTimestamp = ptr.To(metav1.NewTime(begin)) })
	}
	if n.Schedule != nil {
		edit("the schedule is deleted", func(c *node) { c.Schedule = nil })
		edit("the schedule loses its hooks", func(c *node) {
			c.Schedule = c.Schedule.DeepCopy()
			c.Schedule.Spec.PreHooks, c.Schedule.Spec.PostHooks = nil, nil
		})
	}
	edit("the release is asked for", func(c *node) { c.Run.Annotations = map[string]string{v1.AnnotationRelease: "x"} })
	if len(n.Pods) > 0 && Active(n.Run) {
		edit("a pod is replaced", func(c *node) {
			old := string(c.Pods[0].UID)
			c.Pods[0].Pod += "x"
			c.Pods[0].UID += "'"
			c.Pods[0].ContainerID += "'"
			for name, e := range c.Exec {
				if podOf(c.Keys[name]) == old && (e.State == ExecRunning || e.State == ExecHeld || e.State == ExecReleasing) {
					c.Exec[name] = Exec{State: ExecDone, Outcome: Outcome{Reason: v1.ReasonPodGone, Message: "gone"}}
				}
			}
			delete(c.Loose, volumeOf(old)) // its processes ended with it
		})
	}
}

// check what must hold in every state.
func (x *explorer) check(n *node) {
	st := &n.Run.Status
	if past := slices.Index(order, phaseOf(n.Run)) > slices.Index(order, v1.PhasePostHooks); past && st.QuiescedTime != nil && st.ReleasedTime == nil {
		x.fail(n, "phase %s without a release (I2)", st.Phase)
	}
	for name, s := range n.Snapshots {
		if s.Consistency == v1.ConsistencyApplication && !n.CutFrozen[name] {
			x.fail(n, "snapshot %s is labelled application and was not cut while everything was quiesced (I11)", name)
		}
	}
}

// checkEnd what must hold when the run is over.
func (x *explorer) checkEnd(n *node) {
	st := &n.Run.Status
	alarm := meta.IsStatusConditionTrue(st.Conditions, v1.ConditionMayBeQuiesced)
	for pod, frozen := range n.Frozen {
		if frozen && !alarm {
			x.fail(n, "the run is over, the application of %s is quiesced, and nobody says so (I2)", pod)
		}
	}
	if st.Result == v1.ResultSucceeded {
		for _, s := range st.Snapshots {
			asked := len(st.Plan.PreHooks) > 0 && !st.Consistency.Allowed
			if seen, ok := n.Snapshots[s.Name]; !ok || !seen.Ready || (asked && seen.Consistency != v1.ConsistencyApplication) {
				x.fail(n, "the run succeeded and snapshot %s is not as asked (I6)", s.Name)
			}
		}
	}
}
