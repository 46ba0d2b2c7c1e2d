// SPDX-License-Identifier: Apache-2.0

package run

import (
	"flag"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

var exploreMore = flag.Int("explore", 0, "how many more faults than usual one explored history may have")

// explorer walks all states breadth first.
type explorer struct {
	t      *testing.T
	decide func(Input) Decision
	limit  int // of states

	ids             map[uint64]int32
	nodes           []known
	graph           [][2]int32
	next            map[uint64][]uint64 // decisions alone
	queue           []*node
	at              int32 // the node that is being expanded
	ends            int
	asked, persists int
	failure         string
}

// known is what is kept of a state.
type known struct {
	end   bool
	trace *trace
}

func (x *explorer) fail(n *node, format string, args ...any) {
	if x.failure == "" {
		x.failure = fmt.Sprintf(format, args...) + "\n  " + n.history()
	}
}

func (x *explorer) visit(n *node) {
	x.check(n)
	k := n.key()
	id, seen := x.ids[k]
	if !seen {
		id = int32(len(x.nodes))
		x.ids[k] = id
		x.nodes = append(x.nodes, known{trace: n.trace})
		x.queue = append(x.queue, n)
	}
	x.graph = append(x.graph, [2]int32{x.at, id})
}

// run explores from start and returns what is wrong with the first state that is.
func (x *explorer) run(start *node) string {
	x.ids, x.next = map[uint64]int32{}, map[uint64][]uint64{}
	x.visit(start)
	for i := 0; len(x.queue) > 0 && x.failure == ""; i++ {
		n := x.queue[0]
		x.queue[0] = nil
		x.queue = x.queue[1:]
		x.at = int32(i) // the queue keeps the order of ids
		x.expand(n)
		if x.limit > 0 && len(x.nodes) > x.limit {
			x.fail(n, "more than %d states", x.limit)
		}
	}
	if x.failure == "" {
		x.checkReach()
	}
	return x.failure
}

// expand all that can happen next: a decision, or something in the world, or a fault, or a deadline that passes.
func (x *explorer) expand(n *node) {
	d := x.ask(n, n.Run)
	x.checkDecision(n, d)
	moved := false
	switch {
	case d.Persist != nil:
		moved = true
		x.persist(n, d.Persist)
	case len(d.Act) > 0:
		moved = x.acted(n, d.Act)
	}
	happened := x.happen(n)
	x.faults(n)
	if n.Run.Status.Phase == v1.PhaseCompleted && !moved && !happened {
		x.completed(n)
		return
	}
	x.delay(n, d, moved, happened)
}

// acted carries effects out and reports whether they made a difference. If not, they are repeated after a while.
func (x *explorer) acted(n *node, effects []Effect) bool {
	edges := len(x.graph)
	x.act(n, n.Run, effects, "act")
	return x.failure != "" || slices.ContainsFunc(x.graph[edges:], func(e [2]int32) bool { return e[1] != x.at })
}

// completed: an end, or the run waits for its schedule to show the alarm.
func (x *explorer) completed(n *node) {
	if len(n.Run.Finalizers) == 0 {
		x.ends++
		x.nodes[x.at].end = true
		x.checkEnd(n)
		return
	}
	if gaveUp(&n.Run.Status) && n.Schedule != nil && !alarmed(n.Schedule) {
		c := n.clone("the schedule controller takes the alarm over")
		c.Schedule = n.Schedule.DeepCopy()
		c.Schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
		x.visit(c)
		return
	}
	x.fail(n, "the run is completed and keeps its finalizer (I7)")
}

// exploreHang is how long the process hangs, more than a claim's window.
const exploreHang = 11 * time.Second

// delay: the clock goes on. If nothing else can happen, it goes to the next deadline; else a deadline may pass first, as often as Delays says.
func (x *explorer) delay(n *node, d Decision, moved, happened bool) {
	idle := !moved && !happened
	if !idle && n.Delays == 0 {
		return
	}
	next, what := d.Wait, "time passes to "
	hangs := moved || len(d.Act) > 0
	if hangs {
		next, what = n.Now.Add(exploreHang), "the process hangs until "
		if !moved {
			what = "it is tried in vain until "
		}
	}
	if moved && n.Run.Status.Phase == v1.PhaseCompleted {
		return
	}
	for _, until := range n.Ends {
		if !moved && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	for _, until := range n.Loose {
		if !moved && until.After(n.Now) && (next.IsZero() || until.Before(next)) {
			next = until
		}
	}
	if next.IsZero() {
		if idle {
			x.fail(n, "the run waits for nothing in phase %s (I7)", phaseOf(n.Run))
		}
		return
	}
	c := n.clone(what + next.Sub(begin).String())
	c.Now = next
	if !next.After(n.Now) {
		c.Now = n.Now.Add(time.Millisecond)
	}
	if moved { // else it was tried in vain, and is again
		c.Up = c.Now
	}
	if !idle {
		c.Delays--
	}
	c.expire()
	x.visit(c)
}

// expire what the clock has ended: loose commands, and those that ran as long as they may.
func (n *node) expire() {
	maps.DeleteFunc(n.Loose, func(_ string, until time.Time) bool { return !until.After(n.Now) })
	for _, k := range sortedKeys(n.Ends) {
		if !n.Ends[k].After(n.Now) {
			n.loosen(k)
			n.end(k, timedOut())
		}
	}
}

// Every history of a small world is walked: all outcomes of commands and snapshots, crashes, stale reads, edits, and the clock passing
// every deadline. "make explore" allows more faults in one history.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("explores some hundred thousand states")
	}
	if *exploreMore == 0 { // else there is not the memory for it
		percent := debug.SetGCPercent(400)
		t.Cleanup(func() { debug.SetGCPercent(percent) })
	}
	for name, world := range exploredWorlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := world()
			n.Faults += *exploreMore
			x := &explorer{t: t, decide: Decide, limit: 10_000_000}
			if failure := x.run(n); failure != "" {
				t.Fatal(failure)
			}
			t.Logf("%s: %d states, %d edges, %d ends", t.Name(), len(x.nodes), len(x.graph), x.ends)
		})
	}
}
