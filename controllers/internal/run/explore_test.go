// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

var exploreMore = flag.Int("explore", 0, "how many more faults than usual one explored history may have")

// node is one state of a small world: the run as it is recorded, and what is really so, which the run can only observe.
type node struct {
	Now      time.Time
	Process  int
	Run      *v1.SnapshotRun
	Stale    *v1.SnapshotRun // the record before the last write: what a trailing cache may show to a new process
	Schedule *v1.SnapshotSchedule
	Exec     map[string]Exec // what this process knows, by key
	Keys     map[string]ExecKey
	Starts   map[string]int  // how often an attempt was really started, over all processes
	Frozen   map[string]bool // by volume: the application is quiesced, really
	// Loose commands whose end nobody will report: they may still freeze the pod until the time is over.
	Loose     map[string]time.Time
	Pods      []Target
	Snapshots map[string]Snapshot
	CutFrozen map[string]bool // snapshots that were cut while every pod was quiesced
	Claims    int
	Creates   map[string]CreateFailure
	Lock      bool

	Faults, Edits, Crashes int // left
	trace                  *trace
}

type trace struct {
	what string
	from *trace
}

func (n *node) history() string {
	var lines []string
	for t := n.trace; t != nil; t = t.from {
		lines = append(lines, t.what)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n  ")
}

func (n *node) clone(what string) *node {
	c := *n
	c.Run = n.Run.DeepCopy()
	c.Exec, c.Keys, c.Starts, c.Frozen, c.Loose = maps.Clone(n.Exec), maps.Clone(n.Keys), maps.Clone(n.Starts), maps.Clone(n.Frozen), maps.Clone(n.Loose)
	c.Snapshots, c.CutFrozen, c.Creates = maps.Clone(n.Snapshots), maps.Clone(n.CutFrozen), maps.Clone(n.Creates)
	c.Pods = slices.Clone(n.Pods)
	c.trace = &trace{what, n.trace}
	return &c
}

// key of a state: everything that decisions depend on, with times relative to now.
func (n *node) key() uint64 {
	h := fnv.New64a()
	st := &n.Run.Status
	rel := func(t *metav1.MicroTime) string {
		if t == nil {
			return "-"
		}
		return t.Sub(n.Now).Round(100 * time.Millisecond).String()
	}
	_, _ = fmt.Fprintln(h, st.Phase, st.Result, n.Process, n.Lock, n.Faults, n.Edits, n.Crashes, n.Run.DeletionTimestamp != nil, n.Run.Finalizers, n.Run.Annotations,
		n.Schedule != nil, rel(st.QuiescedTime), rel(st.SnapshottingTime), st.Consistency, n.Now.Sub(begin) > 25*time.Hour)
	if n.Schedule != nil {
		_, _ = fmt.Fprintln(h, len(n.Schedule.Spec.PostHooks), alarmed(n.Schedule))
	}
	if r := st.Release; r != nil {
		_, _ = fmt.Fprintln(h, r.Pass, r.Looked, r.Reason, r.Requested, rel(&r.PassTime), rel(r.NextPassTime))
	}
	for i := range st.Hooks {
		k := &st.Hooks[i]
		_, _ = fmt.Fprintln(h, k.Stage, k.Pass, hookReason(k), hookSucceeded(k))
		for _, t := range k.Targets {
			claim := ""
			if t.Claim != nil {
				claim = t.Claim.Process + rel(&t.Claim.Time)
			}
			_, _ = fmt.Fprintln(h, t.PodUID, t.Attempts, claim, t.HeldTime != nil, t.Reason, t.Gone, rel(t.NextAttemptTime), rel(t.UnknownUntil))
		}
	}
	for _, s := range st.Snapshots {
		_, _ = fmt.Fprintln(h, s.Name, s.State, s.CutBeforeRelease)
	}
	var conditions []string
	for _, c := range st.Conditions {
		conditions = append(conditions, c.Type+string(c.Status)+c.Reason)
	}
	slices.Sort(conditions)
	_, _ = fmt.Fprintln(h, conditions)
	for _, k := range slices.Sorted(maps.Keys(n.Exec)) {
		_, _ = fmt.Fprintln(h, k, n.Exec[k].State, n.Exec[k].Outcome.Reason)
	}
	for _, k := range slices.Sorted(maps.Keys(n.Loose)) {
		_, _ = fmt.Fprintln(h, k, n.Loose[k].Sub(n.Now))
	}
	_, _ = fmt.Fprintln(h, n.Frozen, n.Pods, n.CutFrozen)
	for _, k := range slices.Sorted(maps.Keys(n.Snapshots)) {
		s := n.Snapshots[k]
		_, _ = fmt.Fprintln(h, k, s.Cut, s.Ready, s.Error, s.Consistency)
	}
	for _, k := range slices.Sorted(maps.Keys(n.Creates)) {
		_, _ = fmt.Fprintln(h, k, n.Creates[k].RetryTime.Sub(n.Now), n.Creates[k].Refused)
	}
	if n.Stale != nil {
		_, _ = fmt.Fprintln(h, n.Stale.Status.Phase)
	}
	return h.Sum64()
}

func (n *node) process() string { return fmt.Sprintf("p%d", n.Process) }

func (n *node) targets(list []v1.PlannedHook) []HookTargets {
	out := make([]HookTargets, len(list))
	for i := range list {
		out[i].Targets = slices.Clone(n.Pods)
	}
	return out
}

func (n *node) input(r *v1.SnapshotRun) Input {
	in := Input{Now: n.Now, Process: n.process(), Run: r, Config: Config{ReleaseDeadline: time.Minute, ReadyTimeout: 24 * time.Hour}}
	needs := NeedsOf(r)
	if needs.Schedule {
		in.Schedule = n.Schedule
	}
	in.World.Creates = n.Creates
	if needs.Survey && n.Schedule != nil {
		if pre, post, err := PlanHooks(n.Schedule); err == nil {
			in.World.Survey = &Survey{Claims: []Claim{{Name: "data", UID: "k0"}, {Name: "wal", UID: "k1"}}[:n.Claims], Pre: n.targets(pre), Post: n.targets(post)}
		}
	}
	in.World.Lock = Lock{Held: n.Lock || phaseOf(r) == v1.PhasePending}
	if needs.Snapshots {
		in.World.Snapshots = n.Snapshots
	}
	if needs.Exec {
		in.World.Exec = map[ExecKey]Exec{}
		for _, k := range ExecKeys(r) {
			if e, ok := n.Exec[fmt.Sprint(k)]; ok {
				in.World.Exec[k] = e
			}
		}
	}
	if needs.Look && !Unstarted(r, in.World.Exec) {
		l := &Look{Pre: n.targets(r.Status.Plan.PreHooks), Post: n.targets(r.Status.Plan.PostHooks), Existing: map[types.UID]bool{}}
		for _, p := range n.Pods {
			l.Existing[p.UID] = true
		}
		in.World.Look = l
	}
	return in
}

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
