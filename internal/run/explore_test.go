// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

var exploreMore = flag.Int("explore", 0, "how many more faults than usual one explored history may have")

// explorer walks all states breadth first.
type explorer struct {
	t       *testing.T
	decide  func(Input) Decision
	seen    map[uint64]bool
	queue   []*node
	edges   int
	ends    int
	limit   int
	failure string
}

func (x *explorer) fail(n *node, format string, args ...any) {
	if x.failure == "" {
		x.failure = fmt.Sprintf(format, args...) + "\n  " + n.history()
	}
}

func (x *explorer) visit(n *node) {
	x.edges++
	x.check(n)
	if k := n.key(); !x.seen[k] {
		x.seen[k] = true
		x.queue = append(x.queue, n)
	}
}

// run explores from start and returns what is wrong with the first state that is.
func (x *explorer) run(start *node) string {
	x.seen = map[uint64]bool{}
	x.visit(start)
	for len(x.queue) > 0 && x.failure == "" {
		n := x.queue[0]
		x.queue = x.queue[1:]
		x.expand(n)
		if x.limit > 0 && len(x.seen) > x.limit {
			x.fail(n, "more than %d states", x.limit)
		}
	}
	return x.failure
}

// expand all that can happen next: a decision, or something in the world, or a fault.
func (x *explorer) expand(n *node) {
	d := x.decide(n.input(n.Run.DeepCopy()))
	moved := false
	switch {
	case d.Persist != nil:
		moved = true
		x.persist(n, d.Persist)
	case len(d.Act) > 0:
		moved = true
		x.act(n, d.Act, "act")
	}
	happened := x.happen(n)
	x.faults(n)
	if moved || happened {
		return
	}
	if n.Run.Status.Phase == v1.PhaseCompleted && len(n.Run.Finalizers) == 0 {
		x.ends++
		x.checkEnd(n)
		return
	}
	if n.Run.Status.Phase == v1.PhaseCompleted && gaveUp(&n.Run.Status) && n.Schedule != nil && !alarmed(n.Schedule) {
		c := n.clone("the schedule controller takes the alarm over")
		c.Schedule = n.Schedule.DeepCopy()
		c.Schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
		x.visit(c)
		return
	}
	// Nothing but time can move the run (I7).
	next := d.Wait
	for _, until := range n.Loose {
		if until.After(n.Now) && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	if next.IsZero() {
		x.fail(n, "the run waits for nothing in phase %s (I7)", n.Run.Status.Phase)
		return
	}
	c := n.clone("time passes to " + next.Sub(begin).String())
	c.Now = next
	if !next.After(n.Now) {
		c.Now = n.Now.Add(time.Millisecond)
	}
	maps.DeleteFunc(c.Loose, func(_ string, until time.Time) bool { return !until.After(c.Now) })
	x.visit(c)
}

func (x *explorer) persist(n *node, st *v1.SnapshotRunStatus) {
	b, err := json.Marshal(st)
	if err != nil {
		x.t.Fatal(err)
	}
	c := n.clone("record " + string(st.Phase))
	c.Stale = n.Run
	c.Run.Status = v1.SnapshotRunStatus{}
	if err := json.Unmarshal(b, &c.Run.Status); err != nil {
		x.t.Fatal(err)
	}
	if from, to := slices.Index(order, phaseOf(n.Run)), slices.Index(order, phaseOf(c.Run)); to < from {
		x.fail(c, "phase went back from %s to %s (I3)", order[from], order[to])
	}
	x.visit(c)
}

// act carries out effects. Commands and snapshots that begin end later, by happen.
func (x *explorer) act(n *node, effects []Effect, what string) {
	c := n.clone(what)
	for _, e := range effects {
		c.trace.what += fmt.Sprintf(" %T", e)
		switch e := e.(type) {
		case AddFinalizer:
			c.Run.Finalizers = []string{v1.FinalizerRelease}
		case RemoveFinalizer:
			c.Run.Finalizers = nil
			if c.Run.Status.Phase != v1.PhaseCompleted {
				x.fail(c, "the finalizer went in phase %s (I2)", c.Run.Status.Phase)
			}
		case DropLock:
			c.Lock = false
		case CreateSnapshot:
			if _, ok := c.Snapshots[e.Name]; !ok {
				c.Snapshots[e.Name] = Snapshot{UID: types.UID(e.Name), Consistency: e.Labels[v1.LabelConsistency]}
			}
			delete(c.Creates, e.Name)
		case LabelConsistency:
			s := c.Snapshots[e.Name]
			s.Consistency = e.Value
			c.Snapshots[e.Name] = s
		case ReserveExec:
			c.Exec[fmt.Sprint(e.Key)] = Exec{State: ExecReserved}
			c.Keys[fmt.Sprint(e.Key)] = e.Key
		case StartExec:
			k := fmt.Sprint(e.Key)
			if c.Exec[k].State != ExecReserved {
				continue // the pool refuses it
			}
			c.Exec[k] = Exec{State: ExecRunning}
			c.Starts[k]++
			if c.Starts[k] > 1 {
				x.fail(c, "%s was started twice (I4)", k)
			}
			if !claimed(c.Run, e.Key, c.process()) {
				x.fail(c, "%s was started without a recorded claim (I1)", k)
			}
		case ReleaseHeld:
			c.Exec[fmt.Sprint(e.Key)] = Exec{State: ExecReleasing}
		case CancelExec:
			k := fmt.Sprint(e.Key)
			if c.Exec[k].State == ExecRunning {
				c.loosen(e.Key)
			}
			if c.Exec[k].State == ExecHeld || c.Exec[k].State == ExecReleasing {
				c.Frozen[volumeOf(podOf(e.Key))] = false // its input is closed
			}
			c.Exec[k] = Exec{State: ExecDone, Outcome: Outcome{Reason: v1.ReasonInterrupted, EndUnknown: true}}
		}
	}
	x.visit(c)
}

func claimed(r *v1.SnapshotRun, k ExecKey, process string) bool {
	for i := range r.Status.Hooks {
		h := &r.Status.Hooks[i]
		for j := range h.Targets {
			t := &h.Targets[j]
			if h.Stage == k.Stage && h.Pass == k.Pass && targetID(t) == k.Target && t.Attempts == k.Attempt && t.Claim != nil && t.Claim.Process == process {
				return true
			}
		}
	}
	return false
}

// podOf an attempt, by UID.
func podOf(k ExecKey) string { return strings.Split(k.Target, "/")[2] }

// volumeOf a pod: a replaced pod has a new UID, the same volume, and finds its file system as frozen as it was.
func volumeOf(uid string) string { return strings.TrimRight(uid, "'") }

func (n *node) exists(uid string) bool {
	return slices.ContainsFunc(n.Pods, func(p Target) bool { return string(p.UID) == uid })
}

// loosen a command whose end nobody will report. A pre hook may freeze its pod as long as its own timeout runs.
func (n *node) loosen(k ExecKey) {
	if k.Stage == v1.StagePre {
		n.Loose[volumeOf(podOf(k))] = n.Now.Add(exploreTimeout)
	}
}

const exploreTimeout = 5 * time.Second

func startNode(claims, pods int) *node {
	w := newWorld(nil)
	w.schedule.Spec.PreHooks[0].TimeoutSeconds = ptr.To(int32(exploreTimeout / time.Second))
	n := &node{Now: begin, Run: w.run, Schedule: w.schedule, Exec: map[string]Exec{}, Keys: map[string]ExecKey{}, Starts: map[string]int{}, Frozen: map[string]bool{},
		Loose: map[string]time.Time{}, Snapshots: map[string]Snapshot{}, CutFrozen: map[string]bool{}, Creates: map[string]CreateFailure{}, Lock: true,
		Pods: w.pods[:pods], Claims: claims}
	return n
}

var exploredWorlds = map[string]func() *node{
	"one pod, one claim, everything goes wrong": func() *node {
		n := startNode(1, 1)
		n.Faults, n.Edits, n.Crashes = 1, 1, 1
		return n
	},
	"two pods, two claims": func() *node {
		n := startNode(2, 2)
		n.Faults, n.Crashes = 1, 1
		return n
	},
	"two pods, one claim, a person": func() *node {
		n := startNode(1, 2)
		n.Faults, n.Edits = 1, 1
		return n
	},
	"a repeated pre hook": func() *node {
		n := startNode(1, 1)
		n.Schedule.Spec.PreHooks[0].BackoffLimit = ptr.To[int32](1)
		n.Faults, n.Crashes = 2, 1
		return n
	},
	"a held pre hook": func() *node {
		n := startNode(1, 1)
		n.Schedule.Spec.PreHooks[0].Mode, n.Schedule.Spec.PreHooks[0].ExpectOutput, n.Schedule.Spec.PreHooks[0].ExpectReleaseOutput = v1.ModeHold, "READY", "RELEASED"
		n.Faults, n.Edits, n.Crashes = 1, 1, 1
		return n
	},
	"two pre hooks and two crashes": func() *node {
		n := startNode(1, 1)
		n.Schedule.Spec.PreHooks = append(n.Schedule.Spec.PreHooks, *n.Schedule.Spec.PreHooks[0].DeepCopy())
		n.Schedule.Spec.PreHooks[1].Name = "second"
		n.Faults, n.Crashes = 1, 2
		return n
	},
}

// Every history of a small world is walked: all outcomes of commands and snapshots, crashes, stale reads, edits, and the clock passing
// every deadline. "make explore" allows more faults in one history.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("explores a hundred thousand states")
	}
	for name, world := range exploredWorlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := world()
			n.Faults += *exploreMore
			x := &explorer{t: t, decide: Decide, limit: 5_000_000}
			if failure := x.run(n); failure != "" {
				t.Fatal(failure)
			}
			t.Logf("%d states, %d edges, %d ends", len(x.seen), x.edges, x.ends)
		})
	}
}
