// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// happen: everything that the world may do by itself. It reports whether the run may rely on something to happen.
func (x *explorer) happen(n *node) bool {
	happened := false
	for _, k := range sortedKeys(n.Exec) {
		switch n.Exec[k].State {
		case ExecQueued:
			happened = true
			c := n.clone("a slot is free: " + k.Target)
			c.Exec[k] = Exec{State: ExecReserved}
			x.visit(c)
		case ExecRunning:
			happened = true
			x.running(n, k)
		case ExecReleasing:
			happened = true
			x.releasing(n, k)
		case ExecHeld:
			x.holding(n, k)
		case ExecReserved:
			if n.Delays > 0 {
				c := n.clone("the slot is given to somebody else: " + k.Target)
				c.Delays--
				delete(c.Exec, k)
				x.visit(c)
			}
		case ExecUnknown, ExecDone:
		}
	}
	if !in(n.Run, v1.PhaseCompleted) {
		for _, name := range slices.Sorted(maps.Keys(n.Snapshots)) {
			happened = x.snapshot(n, name) || happened
		}
	}
	for _, volume := range slices.Sorted(maps.Keys(n.Loose)) {
		if !n.Frozen[volume] {
			c := n.clone("a loose command freezes " + volume)
			c.Frozen[volume] = true
			delete(c.Loose, volume)
			x.visit(c)
		}
	}
	for i := range n.Away {
		c := n.clone("a pod comes back: " + n.Away[i].Pod)
		c.Away = slices.Delete(c.Away, i, i+1)
		c.Pods = append(c.Pods, again(n.Away[i]))
		x.visit(c)
	}
	return happened
}

// again is the pod that takes the place of p.
func again(p Target) Target {
	p.Pod += "x"
	p.UID += "'"
	p.ContainerID += "'"
	return p
}

// outcome of a command, and whether it quiesced (or released) its application: it did, it did not, or either is possible.
type outcome struct {
	what string
	of   *Outcome
	did  []bool
}

// running commands end, well or not.
func (x *explorer) running(n *node, k ExecKey) {
	volume, pre, held := volumeOf(podOf(k)), k.Stage == v1.StagePre, n.held(k)
	if !n.exists(podOf(k)) {
		c := n.clone("finds no pod: " + k.Target)
		c.free(k)
		c.end(k, &Outcome{Reason: v1.ReasonPodNotFound, NeverStarted: true})
		x.visit(c)
		return
	}
	if !n.Broken[volume] || pre {
		c := n.clone("ends well: " + k.Target)
		c.Frozen[volume] = pre || (n.Frozen[volume] && !releases(n.plannedHook(k)))
		c.end(k, completed())
		if held {
			c.Exec[k] = Exec{State: ExecHeld, HeldAt: c.Now}
		}
		x.visit(c)
	} else {
		c := n.clone("fails again: " + k.Target)
		c.end(k, failed())
		x.visit(c)
	}
	if n.Faults == 0 {
		return
	}
	either := []bool{false, true}
	outcomes := []outcome{
		{"fails", failed(), either},
		{"times out", timedOut(), either},
		{"is lost", lost(), either},
		{"is not reached", &Outcome{Reason: v1.ReasonUnreachable, NeverStarted: true}, []bool{false}},
		{"is forbidden", &Outcome{Reason: v1.ReasonForbidden, NeverStarted: true}, []bool{false}},
	}
	if held {
		// One that ends by itself has released. TestAHeldCommandThatEndsBeforeItIsReady says what is not known of it.
		outcomes[0].did = []bool{false}
	}
	for _, o := range outcomes {
		for _, did := range o.did {
			c := n.clone(o.what + ": " + k.Target)
			c.Faults--
			c.end(k, o.of)
			if did {
				c.trace.what += ", and had done its work"
				c.Frozen[volume] = pre
			}
			switch {
			case o.of.Reason == v1.ReasonUnreachable:
				c.free(k)
			case o.of.Reason == v1.ReasonTimeout:
				c.loosen(k)
			case o.of.EndUnknown:
				c.lose(k)
			}
			x.visit(c)
		}
	}
	if !pre && !n.Broken[volume] {
		c := n.clone("fails from now on: " + k.Target)
		c.Faults--
		c.Broken[volume] = true
		c.end(k, failed())
		x.visit(c)
	}
}

// free is an attempt that never started, for a reason that passes: it does not count towards backoffLimit.
func (n *node) free(k ExecKey) {
	if k.Stage == v1.StagePre {
		k.Attempt = 0
		n.Free[k]++
	}
}

// releases says of a post hook that it releases its application; others tell somebody, or the like.
func releases(h *v1.PlannedHook) bool { return h.ExecutionPolicy == v1.ExecuteAlways }

// releasing: a held command whose input was closed.
func (x *explorer) releasing(n *node, k ExecKey) {
	volume := volumeOf(podOf(k))
	c := n.clone("is released: " + k.Target)
	c.Frozen[volume] = false
	c.end(k, completed())
	x.visit(c)
	if n.Faults == 0 {
		return
	}
	for _, o := range []outcome{
		{"ends without saying that it released", &Outcome{Reason: v1.ReasonOutputMissing, ExitCode: ptr.To[int32](0)}, []bool{false, true}},
		{"is not released in time", timedOut(), []bool{false}},
		{"is lost while it releases", lost(), []bool{false, true}},
	} {
		for _, did := range o.did {
			c := n.clone(o.what + ": " + k.Target)
			c.Faults--
			c.end(k, o.of)
			c.Frozen[volume] = n.Frozen[volume] && !did
			x.visit(c)
		}
	}
}

// holding: a held command is lost before it is released.
func (x *explorer) holding(n *node, k ExecKey) {
	if n.Faults == 0 {
		return
	}
	for _, o := range []outcome{
		{"is lost while held", &Outcome{Reason: v1.ReasonHoldLost, EndUnknown: true}, []bool{true}},
		{"is killed while held", &Outcome{Reason: v1.ReasonHoldLost, ExitCode: ptr.To[int32](137)}, []bool{false, true}},
	} {
		for _, did := range o.did {
			c := n.clone(o.what + ": " + k.Target)
			c.Faults--
			c.end(k, o.of)
			c.Frozen[volumeOf(podOf(k))] = !did
			x.visit(c)
		}
	}
}

// snapshot moves on. It reports whether the run may rely on that.
func (x *explorer) snapshot(n *node, name string) bool {
	s := n.Snapshots[name]
	if old, behind := n.Behind[name]; behind {
		c := n.clone("the cache shows " + name)
		delete(c.Behind, name)
		x.visit(c)
		if old.Cut != s.Cut {
			return true
		}
	}
	if s.Foreign || s.Ready || (s.Error != "" && !s.Bound) {
		return len(n.Behind) > 0
	}
	set := func(what string, t Snapshot) *node {
		c := n.clone(what + ": " + name)
		c.Snapshots[name] = t
		if t.Cut && !s.Cut {
			c.CutFrozen[name] = n.quiesced()
		}
		return c
	}
	if s.Cut {
		t := s
		t.Ready = true
		x.visit(set("is ready", t))
		if n.Faults > 0 {
			t = s
			t.Error = "upload failed"
			c := set("fails after its cut", t)
			c.Faults--
			c.trace.what += ", for good"
			x.visit(c)
		}
		return s.Error == ""
	}
	t := s
	t.Bound, t.Cut, t.Ready, t.Error = true, true, !n.Slow, ""
	c := set("is cut", t)
	x.visit(c)
	if n.Stales > 0 {
		d := c.clone("and the cache does not show it")
		d.Stales--
		d.Behind[name] = s
		x.visit(d)
	}
	if n.Faults > 0 {
		t := s
		t.Error = "refused"
		c := set("fails", t)
		c.Faults--
		x.visit(c)
		t.Bound = true
		c = set("fails for now", t)
		c.Faults--
		x.visit(c)
	}
	return true
}
