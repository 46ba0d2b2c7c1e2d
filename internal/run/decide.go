// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Needs says which parts of the world the next decision depends on.
type Needs struct {
	Schedule  bool
	Survey    bool // claims and targets, listed live
	Lock      bool // in phase Pending: taken, or a place in the queue
	Snapshots bool
	Look      bool // pods, listed live
	Exec      bool
}

// NeedsOf a run. The caller gathers exactly that.
func NeedsOf(r *v1.SnapshotRun) Needs {
	if unsound(r) != "" {
		return Needs{Schedule: true, Lock: true}
	}
	switch phaseOf(r) {
	case v1.PhasePending:
		return Needs{Schedule: true, Survey: r.DeletionTimestamp == nil, Lock: true, Snapshots: true}
	case v1.PhasePlanned, v1.PhasePreHooks:
		return Needs{Schedule: true, Lock: true, Exec: true}
	case v1.PhaseSnapshotting:
		return Needs{Schedule: true, Lock: true, Snapshots: true, Exec: true}
	case v1.PhasePostHooks:
		return Needs{Schedule: true, Lock: true, Exec: true, Look: lookDue(r)}
	case v1.PhaseAwaitingReady:
		return Needs{Lock: true, Snapshots: true}
	case v1.PhaseCompleted:
		return Needs{Lock: true, Schedule: slices.Contains(r.Finalizers, v1.FinalizerRelease) && gaveUp(&r.Status)}
	}
	// A phase of another version: what it quiesced is released.
	return Needs{Schedule: true, Lock: true, Exec: true}
}

// Decide what a run does next. It is deterministic and mutates nothing of its input.
func Decide(in Input) Decision {
	m := &machine{Input: in, st: in.Run.Status.DeepCopy(), phase: phaseOf(in.Run)}
	if why := orDefault(unsound(in.Run), m.untimely()); why != "" {
		m.distrust(why)
		return m.decision()
	}
	switch m.phase {
	case v1.PhasePending:
		m.pending()
	case v1.PhasePlanned, v1.PhasePreHooks:
		m.preHooks()
	case v1.PhaseSnapshotting:
		m.snapshotting()
	case v1.PhasePostHooks:
		m.postHooks()
	case v1.PhaseAwaitingReady:
		m.awaitingReady()
	case v1.PhaseCompleted:
		m.completed()
	default: // of another version; see unsound
		m.interrupted()
	}
	return m.decision()
}

// machine collects one decision. Every method either marks the state as changed, adds effects, or adds a time to wait for; decision
// lets a changed state go before effects, which are then derived again from what was persisted.
type machine struct {
	Input
	st      *v1.SnapshotRunStatus
	phase   v1.RunPhase
	changed bool
	anew    bool // see Decision
	effects []Effect
	wait    time.Time
	waits   []string // what post hooks wait for, in words
}

func (m *machine) decision() Decision {
	if m.changed {
		return Decision{Persist: m.st, Anew: m.anew}
	}
	if len(m.effects) > 0 {
		return Decision{Act: m.effects}
	}
	return Decision{Wait: m.wait}
}

func (m *machine) act(e Effect) { m.effects = append(m.effects, e) }

// wakeAt notes a time at which the decision may be another one.
func (m *machine) wakeAt(t time.Time) {
	if !t.IsZero() && (m.wait.IsZero() || t.Before(m.wait)) {
		m.wait = t
	}
}

// due reports whether t has come; if not, the decision waits for it.
func (m *machine) due(t time.Time) bool {
	if m.Now.Before(t) {
		m.wakeAt(t)
		return false
	}
	return true
}

func (m *machine) now() *metav1.MicroTime {
	t := metav1.NewMicroTime(m.Now.Truncate(time.Microsecond))
	return &t
}

func (m *machine) deleted() bool { return m.Run.DeletionTimestamp != nil }

func (m *machine) hasFinalizer() bool { return slices.Contains(m.Run.Finalizers, v1.FinalizerRelease) }

func (m *machine) mode() v1.RunMode { return ModeOf(m.Run) }

// ModeOf a run, with its default.
func ModeOf(r *v1.SnapshotRun) v1.RunMode {
	if r.Spec.Mode == "" {
		return v1.RunSnapshot
	}
	return r.Spec.Mode
}

func phaseOf(r *v1.SnapshotRun) v1.RunPhase {
	if r.Status.Phase == "" {
		return v1.PhasePending
	}
	return r.Status.Phase
}

// Active reports whether a run may have quiesced something: from its plan until its release is over.
func Active(r *v1.SnapshotRun) bool {
	switch phaseOf(r) {
	case v1.PhasePending, v1.PhaseAwaitingReady, v1.PhaseCompleted:
		return false
	case v1.PhasePlanned, v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks:
	}
	return true // also in a phase that only another version knows
}

// BeforeAwaitingReady reports whether a slot that comes now would overlap with the run.
func BeforeAwaitingReady(r *v1.SnapshotRun) bool {
	return Active(r) || phaseOf(r) == v1.PhasePending
}

func (m *machine) completed() {
	if m.World.Lock.Held {
		m.act(DropLock{})
	}
	if !m.hasFinalizer() {
		return
	}
	// The run may be gone as soon as its finalizer is: the alarm must have reached the schedule before.
	if s := m.Schedule; gaveUp(m.st) && s != nil && s.DeletionTimestamp == nil && !alarmed(s) {
		m.wakeAt(m.Now.Add(time.Second))
		return
	}
	m.act(RemoveFinalizer{})
}

func gaveUp(st *v1.SnapshotRunStatus) bool {
	c := meta.FindStatusCondition(st.Conditions, v1.ConditionMayBeQuiesced)
	return c != nil && c.Reason == v1.ReasonGivenUp
}

func alarmed(s *v1.SnapshotSchedule) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, v1.ConditionMayBeQuiesced)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1.ReasonGivenUp
}

// complete ends the run. Its release must be over, or nothing may have been quiesced.
func (m *machine) complete(result v1.RunResult, reason, message string) {
	m.changed = true
	m.st.Phase = v1.PhaseCompleted
	m.st.Result = result
	m.st.Message = shorten(message)
	m.st.CompletionTime = m.now()
	m.condition(v1.ConditionComplete, metav1.ConditionTrue, reason, message)
}
