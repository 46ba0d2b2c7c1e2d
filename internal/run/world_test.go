// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster in memory in which one run is carried to its end: it does what effects ask for and lets tests decide how
// commands and snapshots end.
type world struct {
	t        *testing.T
	now      time.Time
	process  string
	run      *v1.SnapshotRun
	schedule *v1.SnapshotSchedule
	config   Config

	pods      []Target
	claims    []Claim
	problems  map[string]Problem // by hook name
	locked    string             // another run that holds the lock
	lockHeld  bool
	draining  bool
	snapshots map[string]*Snapshot
	groups    groupWorld
	creates   map[string]CreateFailure
	leftovers []Leftover
	// undeletable leftovers, unlabellable snapshots: the API server refuses.
	undeletable, unlabellable bool
	exec                      map[ExecKey]*Exec
	lookFails                 bool
	forged                    bool // somebody else writes the record too: it may be begun anew

	// onStart answers a started attempt; nil: it completes at once. Without an answer it keeps running.
	onStart func(w *world, e StartExec) *Outcome
	// onCreate may refuse a create.
	onCreate func(w *world, e CreateSnapshot) *CreateFailure
	// onCreated may change the new snapshot; default: cut and ready at once.
	onCreated func(w *world, s *Snapshot)
	// onStep runs before each decision.
	onStep func(w *world)

	started  []string // "Pre/flush/db-0#1" in order
	created  []string
	deleted  []string
	labelled []string
	phases   []v1.RunPhase
	starts   map[ExecKey]int
}

func completed() *Outcome {
	return &Outcome{Reason: v1.ReasonHookCompleted, ExitCode: ptr.To[int32](0)}
}
func failed() *Outcome {
	return &Outcome{Reason: v1.ReasonNonZeroExit, ExitCode: ptr.To[int32](7), Message: "exit code 7"}
}
func lost() *Outcome { return &Outcome{Reason: v1.ReasonConnectionLost, EndUnknown: true} }
func timedOut() *Outcome {
	return &Outcome{Reason: v1.ReasonTimeout, EndUnknown: true}
}

func hook(name string, labels ...string) v1.Hook {
	app := "db"
	if len(labels) > 0 {
		app = labels[0]
	}
	return v1.Hook{Name: name, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Command: []string{"run", name}}
}

// newWorld: two claims, two pods, one pre and one post hook.
func newWorld(t *testing.T) *world {
	w := &world{
		t: t, now: begin, process: "p1",
		config:    Config{ReleaseDeadline: time.Hour, ReadyTimeout: 24 * time.Hour},
		problems:  map[string]Problem{},
		snapshots: map[string]*Snapshot{}, creates: map[string]CreateFailure{}, exec: map[ExecKey]*Exec{}, starts: map[ExecKey]int{},
		pods: []Target{
			{Namespace: "shop", Pod: "db-0", UID: "u0", Container: "c", ContainerID: "c0"},
			{Namespace: "shop", Pod: "db-1", UID: "u1", Container: "c", ContainerID: "c1"},
		},
		claims: []Claim{{Name: "data", UID: "k0"}, {Name: "wal", UID: "k1"}},
	}
	w.schedule = &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Name: "hourly", Namespace: "shop", UID: "s"}}
	w.schedule.Spec.PreHooks = []v1.PreHook{{Hook: hook("quiesce")}}
	w.schedule.Spec.PostHooks = []v1.PostHook{{Hook: hook("release")}}
	w.run = &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Name: "hourly-202603011200", Namespace: "shop", UID: "r", CreationTimestamp: metav1.NewTime(begin),
		Finalizers:      []string{v1.FinalizerRelease},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.schedule, v1.GroupVersion.WithKind("SnapshotSchedule"))}},
		Spec: v1.SnapshotRunSpec{ScheduleName: "hourly", Slot: ptr.To(metav1.NewTime(begin))}}
	w.schedule.Status.ActiveRun = w.run.Name
	return w
}

func (w *world) targets(list []v1.PlannedHook) []HookTargets {
	out := make([]HookTargets, len(list))
	for i, h := range list {
		if p, bad := w.problems[h.Name]; bad {
			out[i].Problems = []Problem{p}
			continue
		}
		for _, p := range w.pods {
			if h.PodSelector.MatchLabels["app"] == "db" {
				out[i].Targets = append(out[i].Targets, p)
			}
		}
		if h.TargetPolicy == v1.TargetOne && len(out[i].Targets) > 1 {
			out[i].Targets = out[i].Targets[:1]
		}
	}
	return out
}

func (w *world) input() Input {
	in := Input{Now: w.now, Process: w.process, Config: w.config, Run: w.run.DeepCopy()}
	needs := NeedsOf(w.run)
	if needs.Schedule {
		in.Schedule = w.schedule
	}
	in.World.Draining = w.draining
	in.World.Creates = w.creates
	if needs.Survey && w.schedule != nil {
		pre, post, err := PlanHooks(w.schedule, w.config.Hooks)
		if err == nil {
			in.World.Survey = &Survey{Claims: w.claims, NoGroup: w.groups.refusal, Pre: w.targets(pre), Post: w.targets(post)}
		}
	}
	if needs.Lock {
		if w.locked == "" && phaseOf(w.run) == v1.PhasePending {
			w.lockHeld = true
		}
		in.World.Lock = Lock{Held: w.lockHeld, WaitingFor: w.locked}
	}
	if needs.Snapshots {
		in.World.Snapshots = map[string]Snapshot{}
		for name, s := range w.snapshots {
			in.World.Snapshots[name] = *s
		}
		in.World.Leftovers = w.leftovers
		in.World.Group = w.groupSeen()
	}
	if needs.Exec {
		in.World.Exec = map[ExecKey]Exec{}
		for _, k := range ExecKeys(w.run) {
			if e := w.exec[k]; e != nil {
				in.World.Exec[k] = *e
			}
		}
	}
	if needs.Look && !w.lookFails {
		l := &Look{Pre: w.targets(w.run.Status.Plan.PreHooks), Post: w.targets(w.run.Status.Plan.PostHooks), Existing: map[types.UID]bool{}}
		for _, p := range w.pods {
			l.Existing[p.UID] = true
		}
		in.World.Look = l
	}
	return in
}

// step makes one decision and carries it out. It reports false when there is nothing more to do but to wait.
func (w *world) step() (Decision, bool) {
	if w.onStep != nil {
		w.onStep(w)
	}
	in := w.input()
	before := mustJSON(in)
	d := Decide(in)
	if got := mustJSON(in); got != before {
		w.t.Fatalf("Decide changed its input (I10):\n%s\n%s", before, got)
	}
	if again := Decide(in); !reflect.DeepEqual(d, again) {
		w.t.Fatalf("Decide is not deterministic (I10)")
	}
	switch {
	case d.Persist != nil:
		if len(d.Act) > 0 {
			w.t.Fatalf("a decision has both a state and effects")
		}
		w.persist(d.Persist)
		if d.Anew {
			w.exec, w.starts = map[ExecKey]*Exec{}, map[ExecKey]int{}
		}
	case len(d.Act) > 0:
		for _, e := range d.Act {
			w.act(e)
		}
	default:
		return d, false
	}
	return d, true
}

func mustJSON(in Input) string {
	b, err := json.Marshal([]any{in.Run, in.Schedule, in.Now})
	if err != nil {
		panic(err)
	}
	return string(b) + fmt.Sprintf("%#v", in.World.Snapshots)
}

var order = []v1.RunPhase{v1.PhasePending, v1.PhasePlanned, v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks, v1.PhaseAwaitingReady, v1.PhaseCompleted}

func (w *world) persist(st *v1.SnapshotRunStatus) {
	// What is persisted is read back from JSON: nothing finer than microseconds survives.
	b, err := json.Marshal(st)
	if err != nil {
		w.t.Fatal(err)
	}
	var back v1.SnapshotRunStatus
	if err := json.Unmarshal(b, &back); err != nil {
		w.t.Fatal(err)
	}
	from, to := slices.Index(order, phaseOf(w.run)), slices.Index(order, back.Phase)
	if to < from && !w.forged {
		w.t.Fatalf("phase went back from %s to %s (I3)", order[from], back.Phase)
	}
	planned := w.run.Status.Plan != nil && len(w.run.Status.Hooks) > 0
	if planned && !w.forged && to > slices.Index(order, v1.PhasePostHooks) && from < slices.Index(order, v1.PhasePostHooks) {
		w.t.Fatalf("the release was skipped: %s to %s (I2)", order[from], order[to])
	}
	if from != to {
		w.phases = append(w.phases, back.Phase)
	}
	w.run.Status = back
	if back.Phase == v1.PhaseCompleted {
		w.checkCompleted()
	}
}

func (w *world) checkCompleted() {
	if w.forged {
		return // who writes the record can write that, too
	}
	st := &w.run.Status
	if st.Result == v1.ResultSucceeded && ModeOf(w.run) == v1.RunSnapshot {
		for _, s := range st.Snapshots {
			seen := w.snapshots[s.Name]
			if st.GroupSnapshot != nil {
				seen = w.memberNamed(s.Name)
			}
			if seen == nil || seen.Foreign || !seen.Ready {
				w.t.Fatalf("Succeeded without snapshot %s being ours and ready (I6)", s.Name)
			}
			if len(st.Plan.PreHooks) > 0 && !st.Consistency.Allowed && seen.Consistency != v1.ConsistencyApplication {
				w.t.Fatalf("Succeeded and snapshot %s is labelled %q (I6)", s.Name, seen.Consistency)
			}
		}
	}
}

func (w *world) act(e Effect) {
	switch e := e.(type) {
	case AddFinalizer:
		w.run.Finalizers = append(w.run.Finalizers, v1.FinalizerRelease)
	case RemoveFinalizer:
		w.run.Finalizers = nil
	case DropLock:
		w.lockHeld = false
	case CreateSnapshot:
		w.create(e)
	case DeleteLeftover:
		w.deleted = append(w.deleted, e.Name)
		if w.undeletable {
			return
		}
		w.leftovers = slices.DeleteFunc(w.leftovers, func(l Leftover) bool { return l.Name == e.Name })
	case LabelConsistency:
		s := w.snapshots[e.Name]
		if s == nil {
			s = w.memberNamed(e.Name)
		}
		if !s.Cut {
			w.t.Fatalf("snapshot %s was labelled before it was cut (I11)", e.Name)
		}
		if w.unlabellable {
			return
		}
		s.Consistency = e.Value
		w.labelled = append(w.labelled, e.Name)
	case ReserveExec:
		w.exec[e.Key] = &Exec{State: ExecReserved}
	case StartExec:
		w.start(e)
	case ReleaseHeld:
		w.exec[e.Key] = &Exec{State: ExecDone, Outcome: *completed()}
	case CancelExec:
		w.exec[e.Key] = &Exec{State: ExecDone, Outcome: Outcome{Reason: v1.ReasonInterrupted, EndUnknown: true}}
	case CreateGroup, LabelMember, DeleteGroup:
		w.actOnGroup(e)
	default:
		w.t.Fatalf("unknown effect %T", e)
	}
}

func (w *world) create(e CreateSnapshot) {
	if w.onCreate != nil {
		if f := w.onCreate(w, e); f != nil {
			w.creates[e.Name] = *f
			return
		}
	}
	delete(w.creates, e.Name)
	if w.snapshots[e.Name] != nil {
		return
	}
	s := &Snapshot{UID: types.UID("uid-" + e.Name), Consistency: e.Labels[v1.LabelConsistency]}
	w.snapshots[e.Name] = s
	w.created = append(w.created, e.Name)
	if w.onCreated != nil {
		w.onCreated(w, s)
		return
	}
	s.Cut, s.Ready, s.Bound, s.CreationTime = true, true, true, ptr.To(w.now)
}

func (w *world) start(e StartExec) {
	k := e.Key
	if w.forged && (w.exec[k] == nil || w.exec[k].State != ExecReserved) {
		return // the pool refuses, or has started it already
	}
	if w.exec[k] == nil || w.exec[k].State != ExecReserved {
		w.t.Fatalf("%v was started without a slot", k)
	}
	w.starts[k]++
	if w.starts[k] > 1 {
		w.t.Fatalf("%v was started twice (I4)", k)
	}
	w.started = append(w.started, fmt.Sprintf("%s/%s/%s#%d", k.Stage, e.Hook.Name, e.Target.Pod, k.Attempt))
	o := completed()
	if w.onStart != nil {
		o = w.onStart(w, e)
	}
	switch {
	case e.Hook.Mode == v1.ModeHold && o != nil && o.Reason == v1.ReasonHookCompleted:
		w.exec[k] = &Exec{State: ExecHeld, HeldAt: w.now}
	case o == nil:
		w.exec[k] = &Exec{State: ExecRunning}
	default:
		o.Started, o.Ended = w.now, w.now
		w.exec[k] = &Exec{State: ExecDone, Outcome: *o}
	}
}

// settle makes decisions until the run waits.
func (w *world) settle() Decision {
	w.t.Helper()
	var last Decision
	for range 500 {
		d, more := w.step()
		if !more {
			return d
		}
		if w.forged && reflect.DeepEqual(d, last) {
			w.now = w.now.Add(time.Second) // effects that leave the world as it was are not repeated at once
		}
		last = d
	}
	w.t.Fatalf("the run does not come to rest in phase %s: %+v", w.run.Status.Phase, w.run.Status)
	return Decision{}
}

// finish lets time pass until the run is completed.
func (w *world) finish() {
	w.t.Helper()
	for range 5000 {
		d := w.settle()
		if w.run.Status.Phase == v1.PhaseCompleted && len(w.run.Finalizers) == 0 {
			return
		}
		if d.Wait.IsZero() {
			w.t.Fatalf("the run waits for nothing in phase %s: %s (I7)", w.run.Status.Phase, w.run.Status.Message)
		}
		if d.Wait.After(w.now) {
			w.now = d.Wait
		} else {
			w.now = w.now.Add(time.Millisecond)
		}
	}
	w.t.Fatalf("the run does not end; phase %s (I7)", w.run.Status.Phase)
}

func (w *world) restart() {
	w.process += "'"
	w.exec = map[ExecKey]*Exec{}
	w.creates = map[string]CreateFailure{}
}

func (w *world) cond(typ string) metav1.Condition {
	c := meta.FindStatusCondition(w.run.Status.Conditions, typ)
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}
