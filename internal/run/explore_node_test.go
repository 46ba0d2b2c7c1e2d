// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

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
		if pre, post, err := PlanHooks(n.Schedule, HookRules{}); err == nil {
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
