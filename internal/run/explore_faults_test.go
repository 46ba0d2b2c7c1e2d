// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// faults: what people and machines do at the worst time.
func (x *explorer) faults(n *node) {
	if in(n.Run, v1.PhaseCompleted) {
		return
	}
	if n.Crashes > 0 {
		x.crash(n, 0)
		if n.Downtime > 0 {
			x.crash(n, n.Downtime)
		}
	}
	if n.Edits == 0 {
		return
	}
	for _, e := range edits {
		if len(n.Persons) > 0 && !slices.Contains(n.Persons, e.what) {
			continue
		}
		c := n.clone(e.what)
		c.Edits--
		if e.do(c) {
			x.visit(c)
		}
	}
}

func (x *explorer) crash(n *node, downtime time.Duration) {
	c := n.clone("CRASH")
	c.Crashes--
	c.Process++
	for k, e := range n.Exec {
		switch e.State {
		case ExecRunning:
			c.lose(k)
		case ExecHeld, ExecReleasing:
			c.Frozen[volumeOf(podOf(k))] = false // a held command releases when its client dies
		case ExecUnknown, ExecQueued, ExecReserved, ExecDone:
		}
	}
	c.Exec, c.Ends, c.Creates = map[ExecKey]Exec{}, map[ExecKey]time.Time{}, map[string]CreateFailure{}
	c.Lock = Active(n.Run) || Lingers(n.Run, c.Now)
	if downtime > 0 {
		c.trace.what += " and nobody runs for " + downtime.String()
		c.Now = n.Now.Add(downtime)
		c.Up = c.Now
		c.Lock = Active(n.Run) || Lingers(n.Run, c.Now)
		for volume := range c.Loose { // it has long run
			d := c.clone("the loose command freezes " + volume)
			d.Frozen[volume] = true
			d.expire()
			x.visit(d)
		}
		c.expire()
		x.visit(c)
		return
	}
	x.visit(c)
	// The new process may see the record as it was before the last write: what it then wants to record is refused, what it does is done.
	if n.Stale != nil {
		if d := x.ask(c, n.Stale); len(d.Act) > 0 {
			x.act(c, n.Stale, d.Act, "act on a stale record:")
		}
	}
	// Or its cache may lack a snapshot that exists.
	for _, name := range slices.Sorted(maps.Keys(n.Snapshots)) {
		if n.Stales > 0 && !n.Snapshots[name].Foreign {
			d := c.clone("and the cache lacks " + name)
			d.Stales--
			d.Behind[name] = Snapshot{}
			x.visit(d)
		}
	}
}

// edits are what a person, or the cluster, does once. do reports whether it can be done.
var edits = []struct {
	what string
	do   func(c *node) bool
}{
	{"the run is deleted", func(c *node) bool {
		if c.Run.DeletionTimestamp != nil || len(c.Run.Finalizers) == 0 {
			return false
		}
		c.Run = c.Run.DeepCopy()
		c.Run.DeletionTimestamp = ptr.To(metav1.NewTime(begin))
		return true
	}},
	{"the schedule is deleted", func(c *node) bool {
		exists := c.Schedule != nil
		c.Schedule = nil
		return exists
	}},
	{"the schedule is disabled", func(c *node) bool { return c.edit(func(s *v1.SnapshotScheduleSpec) { s.Disabled = true }) }},
	{"the schedule loses its hooks", func(c *node) bool {
		return c.edit(func(s *v1.SnapshotScheduleSpec) { s.PreHooks, s.PostHooks = nil, nil })
	}},
	{"the schedule gets other hooks", func(c *node) bool {
		return c.edit(func(s *v1.SnapshotScheduleSpec) {
			s.PreHooks = []v1.PreHook{{Hook: hook("other")}}
			s.PostHooks = []v1.PostHook{{Hook: hook("corrected")}}
		})
	}},
	{"the release is asked for", func(c *node) bool {
		c.Run = c.Run.DeepCopy()
		c.Run.Annotations = map[string]string{v1.AnnotationRelease: c.Run.Annotations[v1.AnnotationRelease] + "x"}
		return true
	}},
	{"the record is another version's", func(c *node) bool {
		if !Active(c.Run) || c.Run.Status.Plan.Version != JournalVersion {
			return false
		}
		c.Run = c.Run.DeepCopy()
		c.Run.Status.Plan.Version++
		return true
	}},
	{"a pod is replaced", func(c *node) bool {
		if len(c.Pods) == 0 {
			return false
		}
		c.endIn(c.Pods[0])
		c.Pods[0] = again(c.Pods[0])
		return true
	}},
	{"a pod goes away", func(c *node) bool {
		if len(c.Pods) == 0 || c.joined() {
			return false
		}
		c.endIn(c.Pods[0])
		c.Away = append(c.Away, c.Pods[0])
		c.Pods = c.Pods[1:]
		return true
	}},
	{"a container is restarted", func(c *node) bool {
		if len(c.Pods) == 0 {
			return false
		}
		c.endIn(c.Pods[0])
		c.Frozen[volumeOf(string(c.Pods[0].UID))] = false
		c.Pods[0].ContainerID += "r"
		c.Pods[0].RestartCount++
		return true
	}},
	{"a pod joins", func(c *node) bool {
		// While a pod is away a new one is taken for the one in its place, for nothing tells the two apart.
		if len(c.Away) > 0 || c.joined() {
			return false
		}
		c.Pods = append(c.Pods, Target{Namespace: "shop", Pod: "db-9", UID: "u9", Container: "c", ContainerID: "c9"})
		return true
	}},
	{"pods cannot be listed", func(c *node) bool {
		could := !c.Blind
		c.Blind = true
		return could
	}},
	{"a snapshot is deleted", func(c *node) bool {
		for _, name := range slices.Sorted(maps.Keys(c.Snapshots)) {
			if !c.Snapshots[name].Foreign {
				delete(c.Snapshots, name)
				delete(c.Behind, name)
				delete(c.CutFrozen, name)
				return true
			}
		}
		return false
	}},
}

func (n *node) edit(do func(s *v1.SnapshotScheduleSpec)) bool {
	if n.Schedule == nil {
		return false
	}
	n.Schedule = n.Schedule.DeepCopy()
	do(&n.Schedule.Spec)
	return true
}

func (n *node) joined() bool { return n.exists("u9") }

// endIn: every process of a pod's container ends.
func (n *node) endIn(p Target) {
	for k, e := range n.Exec {
		if podOf(k) == string(p.UID) && (e.State == ExecRunning || e.State == ExecHeld || e.State == ExecReleasing) {
			n.end(k, &Outcome{Reason: v1.ReasonPodGone, Message: "gone"})
		}
	}
	delete(n.Loose, volumeOf(string(p.UID)))
}
