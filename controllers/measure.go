// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"time"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

func metricsName(o interface{ GetNamespace() string }, schedule string) metrics.Schedule {
	return metrics.Schedule{Namespace: o.GetNamespace(), Name: schedule}
}

// measure counts what a persisted step of a run changed: each fact at the one step that brought it into the record. began is when this
// process first saw the run.
func measure(before, after *v1.SnapshotRun, s *v1.SnapshotSchedule, began, now time.Time) {
	name := metricsName(after, after.Spec.ScheduleName)
	b, a := &before.Status, &after.Status
	if n, ours := run.Repetition(after, s); b.StartTime == nil && a.StartTime != nil && ours && n == 0 {
		start := a.StartTime.Time
		if !hooked(after) {
			start = began // its record is written when it is over, and says when that was decided
		}
		metrics.RunStarted(name, start.Sub(after.Spec.Slot.Add(spreadOf(s))))
	}
	measureHooks(before, after, func(stage v1.HookStage, t *v1.TargetStatus) {
		metrics.HookEnded(name, string(stage), t.Reason, took(t))
	})
	if b.ReleasedTime == nil && a.ReleasedTime != nil && a.QuiescedTime != nil {
		metrics.Released(name, a.ReleasedTime.Sub(a.QuiescedTime.Time))
	}
	was := map[string]v1.SnapshotState{}
	for i := range b.Snapshots {
		was[b.Snapshots[i].Claim] = b.Snapshots[i].State
	}
	for i := range a.Snapshots {
		if x := &a.Snapshots[i]; x.State == v1.SnapshotReady && was[x.Claim] != v1.SnapshotReady {
			metrics.SnapshotReady(name, x.Claim, now)
		}
	}
	if b.Phase != v1.PhaseCompleted && a.Phase == v1.PhaseCompleted {
		metrics.RunCompleted(name, string(a.Result))
	}
}

func took(t *v1.TargetStatus) time.Duration {
	if t.StartTime == nil || t.EndTime == nil {
		return 0
	}
	return t.EndTime.Sub(t.StartTime.Time)
}

// measureHooks finds the attempts whose end a step recorded. An attempt is claimed in one step and ends in a later one.
func measureHooks(before, after *v1.SnapshotRun, ended func(v1.HookStage, *v1.TargetStatus)) {
	type place struct{ hook, target string }
	places := func(o *v1.SnapshotRun, visit func(place, v1.HookStage, *v1.TargetStatus)) {
		for i := range o.Status.Hooks {
			h := &o.Status.Hooks[i]
			for j := range h.Targets {
				t := &h.Targets[j]
				visit(place{fmt.Sprint(h.Stage, h.Pass, "/", h.Name), fmt.Sprint(t.PodUID, "/", t.Container)}, h.Stage, t)
			}
		}
	}
	claimed := map[place]bool{}
	places(before, func(p place, _ v1.HookStage, t *v1.TargetStatus) { claimed[p] = t.Claim != nil })
	places(after, func(p place, stage v1.HookStage, t *v1.TargetStatus) {
		// A claim that was taken back left no reason: nothing was started.
		if claimed[p] && t.Claim == nil && t.Reason != "" {
			ended(stage, t)
		}
	})
}

// making is what this process knows of a snapshot that it creates.
type making struct {
	claim               string
	at                  time.Time // of the newest attempt
	counted, cut, ready bool
}

// watchSnapshots counts what has become of the snapshots that this process creates. One whose creation was answered with an error and which
// exists all the same was created by it.
func watchSnapshots(o *v1.SnapshotRun, mem *runMemory, seen map[string]run.Snapshot, now time.Time) {
	name := metricsName(o, o.Spec.ScheduleName)
	for key, m := range mem.making {
		s, ok := seen[key]
		if !ok || s.Foreign {
			continue
		}
		if !m.counted {
			m.counted = true
			metrics.SnapshotCreated(name, m.claim, now)
		}
		if s.Cut && !m.cut {
			m.cut = true
			metrics.SnapshotCut(name, now.Sub(m.at))
		}
		if s.Ready && !m.ready {
			m.ready = true
			metrics.SnapshotRestorable(name, now.Sub(m.at))
		}
	}
}
