// SPDX-License-Identifier: Apache-2.0

package run

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// node is one state of a small world: the run as it is recorded, and what is really so, which the run can only observe.
type node struct {
	Now      time.Time
	Process  int
	Up       time.Time            // since when the process runs, without a pause
	Run      *v1.SnapshotRun      // never changed in place: nodes share it
	Stale    *v1.SnapshotRun      // the record before the last write: what a trailing cache may show to a new process
	Schedule *v1.SnapshotSchedule // never changed in place
	Config   Config

	Exec map[ExecKey]Exec // what this process knows
	// Ends are when the pool ends a command that runs or is being released.
	Ends map[ExecKey]time.Time
	// Starts: how often an attempt was really started, over all processes.
	Starts map[ExecKey]int
	// Lost are the pre hooks (without their attempt) of which a started attempt's end was never seen, other than by a timeout.
	Lost map[ExecKey]bool

	// Free: how many of a pre hook's attempts (again without their number) never started.
	Free map[ExecKey]int32

	Frozen map[string]bool // by volume: the application is quiesced, really
	// Loose commands whose end nobody will report: they may still freeze the volume until the time is over.
	Loose map[string]time.Time
	// Posts: until when a post hook whose end nobody saw may still be running.
	Posts  time.Time
	Broken map[string]bool // by volume: post hooks fail there, for good
	Pods   []Target        // the container's name says which hooks match: see matches
	Away   []Target        // pods that went away and may come back

	Claims    []Claim
	Snapshots map[string]Snapshot // as they are
	Behind    map[string]Snapshot // as a trailing cache shows them: zero: not at all
	Made      int                 // snapshots ever
	CutFrozen map[string]bool     // snapshots that were cut while every pod was quiesced
	Creates   map[string]CreateFailure
	Lock      bool
	Problems  map[string]Problem // by hook name: what the survey finds
	Blind     bool               // pods cannot be listed any more
	// Leftover: an earlier run left an uncut snapshot; Refusing: it cannot be deleted, and no label can be written.
	Leftover, Refusing bool
	Refusable          bool // a fault may be that
	// Slow: a snapshot becomes ready some time after its cut.
	Slow bool

	// Left of: faults of machines, edits by persons, crashes of the operator, deadlines that pass although something else could happen,
	// stale reads of snapshots.
	Faults, Edits, Crashes, Delays, Stales int
	// Downtime: a crash may also last so long.
	Downtime time.Duration
	// Persons do only this, by the names in edits; empty: everything.
	Persons []string

	trace *trace
	known uint64 // key, once it was asked for: from then on the node does not change
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
	c.known = 0
	c.Exec, c.Ends, c.Starts, c.Lost = maps.Clone(n.Exec), maps.Clone(n.Ends), maps.Clone(n.Starts), maps.Clone(n.Lost)
	c.Free = maps.Clone(n.Free)
	c.Frozen, c.Loose, c.Broken = maps.Clone(n.Frozen), maps.Clone(n.Loose), maps.Clone(n.Broken)
	c.Snapshots, c.Behind, c.CutFrozen, c.Creates = maps.Clone(n.Snapshots), maps.Clone(n.Behind), maps.Clone(n.CutFrozen), maps.Clone(n.Creates)
	c.Pods, c.Away = slices.Clone(n.Pods), slices.Clone(n.Away)
	c.trace = &trace{what, n.trace}
	return &c
}

func (n *node) process() string { return "p" + strconv.Itoa(n.Process) }

// matches: a hook whose selector names the app "db" runs in every pod; another one only in pods whose container has the app's name.
func matches(h *v1.PlannedHook, p Target) bool {
	app := h.PodSelector.MatchLabels["app"]
	return app == "db" || app == p.Container
}

func (n *node) targets(list []v1.PlannedHook) []HookTargets {
	out := make([]HookTargets, len(list))
	for i := range list {
		for _, p := range n.Pods {
			if matches(&list[i], p) && (list[i].TargetPolicy != v1.TargetOne || len(out[i].Targets) == 0) {
				out[i].Targets = append(out[i].Targets, p)
			}
		}
	}
	return out
}

func (n *node) input(r *v1.SnapshotRun) Input {
	in := Input{Now: n.Now, Process: n.process(), Run: r, Config: n.Config}
	needs := NeedsOf(r)
	if needs.Schedule {
		in.Schedule = n.Schedule
	}
	in.World.Creates = n.Creates
	if needs.Survey && n.Schedule != nil {
		if pre, post, err := PlanHooks(n.Schedule, n.Config.Hooks); err == nil {
			s := &Survey{Claims: n.Claims, Pre: n.targets(pre), Post: n.targets(post)}
			for i := range pre {
				if p, ok := n.Problems[pre[i].Name]; ok {
					s.Pre[i] = HookTargets{Problems: []Problem{p}}
				}
			}
			in.World.Survey = s
		}
	}
	in.World.Lock = Lock{Held: n.Lock || phaseOf(r) == v1.PhasePending}
	if needs.Snapshots {
		in.World.Snapshots = n.seen(phaseOf(r))
		if n.Leftover {
			in.World.Leftovers = []Leftover{{Name: "old", UID: "old"}}
		}
	}
	if needs.Exec {
		in.World.Exec = map[ExecKey]Exec{}
		for _, k := range ExecKeys(r) {
			if e, ok := n.Exec[k]; ok {
				in.World.Exec[k] = e
			}
		}
	}
	if needs.Look && !n.Blind && !Unstarted(r, in.World.Exec) {
		l := &Look{Pre: n.targets(r.Status.Plan.PreHooks), Post: n.targets(r.Status.Plan.PostHooks), Existing: map[types.UID]bool{}}
		for _, p := range n.Pods {
			l.Existing[p.UID] = true
		}
		in.World.Look = l
	}
	return in
}

// seen are the snapshots as the cache shows them. In phase AwaitingReady one that it lacks is read live.
func (n *node) seen(phase v1.RunPhase) map[string]Snapshot {
	if len(n.Behind) == 0 {
		return n.Snapshots
	}
	out := maps.Clone(n.Snapshots)
	for name, s := range n.Behind {
		switch {
		case s != Snapshot{}:
			out[name] = s
		case phase != v1.PhaseAwaitingReady:
			delete(out, name)
		}
	}
	return out
}

// podOf an attempt, by UID.
func podOf(k ExecKey) string { return strings.Split(k.Target, "/")[2] }

// volumeOf a pod: a replaced pod has a new UID, the same volume, and finds its file system as frozen as it was.
func volumeOf(uid string) string { return strings.TrimRight(uid, "'") }

func (n *node) exists(uid string) bool {
	return slices.ContainsFunc(n.Pods, func(p Target) bool { return string(p.UID) == uid })
}

// quiesced: every pod in which a planned pre hook must run is quiesced now, really.
func (n *node) quiesced() bool {
	plan := n.Run.Status.Plan
	if plan == nil {
		return false
	}
	for i := range plan.PreHooks {
		h, some, all := &plan.PreHooks[i], false, true
		for _, p := range n.Pods {
			if matches(h, p) {
				frozen := n.Frozen[volumeOf(string(p.UID))]
				some, all = some || frozen, all && frozen
			}
		}
		if !some || (!all && h.TargetPolicy != v1.TargetOne) {
			return false
		}
	}
	return true
}

// loosen a command whose end nobody will report. A pre hook may freeze its pod as long as its own timeout runs, a post hook release it.
func (n *node) loosen(k ExecKey) {
	if k.Stage == v1.StagePost {
		n.Posts = n.Now.Add(exploreTimeout)
		return
	}
	n.Loose[volumeOf(podOf(k))] = n.Now.Add(exploreTimeout)
}

// lose the end of a command that was started. One that ran out of its time may be repeated, any other may not.
func (n *node) lose(k ExecKey) {
	n.loosen(k)
	if k.Stage == v1.StagePre {
		k.Attempt = 0
		n.Lost[k] = true
	}
}

// plannedHook of an attempt.
func (n *node) plannedHook(k ExecKey) *v1.PlannedHook {
	list := n.Run.Status.Plan.PostHooks
	if k.Stage == v1.StagePre {
		list = n.Run.Status.Plan.PreHooks
	}
	if int(k.Hook) >= len(list) {
		return &v1.PlannedHook{}
	}
	return &list[k.Hook]
}

func (n *node) held(k ExecKey) bool {
	return k.Stage == v1.StagePre && n.plannedHook(k).Mode == v1.ModeHold
}
