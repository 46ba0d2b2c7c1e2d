// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// compareTargets is the second look at the pre hooks' targets: a container that was restarted or replaced, or a pod that
// came, was not quiesced when the snapshots were cut.
func (m *machine) compareTargets(look *Look) {
	for _, s := range m.preSteps() {
		if int(s.index) >= len(look.Pre) {
			continue
		}
		if p := look.Pre[s.index].Problems; len(p) > 0 && p[0].Reason == v1.ReasonForbidden {
			m.crash(fmt.Sprintf("hook %s: its pods could not be looked up after the release: %s", s.plan.Name, p[0].Message))
			continue
		}
		planned := map[string]v1.TargetStatus{}
		for _, t := range s.status.Targets {
			planned[string(t.PodUID)+"/"+t.Container] = t
		}
		seen := map[types.UID]bool{}
		for _, n := range look.Pre[s.index].Targets {
			p, ok := planned[string(n.UID)+"/"+n.Container]
			switch {
			case !ok && n.Terminating:
			case !ok && s.plan.TargetPolicy == v1.TargetOne && len(s.status.Targets) > 0:
			case !ok:
				m.crash(fmt.Sprintf("hook %s: pod %s/%s came after the hook ran", s.plan.Name, n.Namespace, n.Pod))
			case p.ContainerID != n.ContainerID || p.RestartCount != n.RestartCount:
				m.crash(fmt.Sprintf("hook %s: container %s of pod %s/%s was restarted", s.plan.Name, n.Container, n.Namespace, n.Pod))
			}
			seen[n.UID] = true
		}
		for _, t := range s.status.Targets {
			if !seen[t.PodUID] && (s.plan.TargetPolicy != v1.TargetOne || !look.Existing[t.PodUID]) {
				m.crash(fmt.Sprintf("hook %s: pod %s/%s went away or stopped running", s.plan.Name, t.Namespace, t.Pod))
			}
		}
	}
}

// crash notes the first reason why the snapshots may not be called consistent.
func (m *machine) crash(reason string) {
	if m.st.Consistency == nil {
		m.st.Consistency = &v1.ConsistencyStatus{Verdict: v1.ConsistencyCrash, Reason: shorten(reason)}
	}
}

// judge what the snapshots may claim, once, when the release is over.
func (m *machine) judge() {
	if m.mode() != v1.RunSnapshot {
		return
	}
	skipped := ""
	for _, s := range m.preSteps() {
		switch reason := hookReason(s.status); {
		case reason == v1.ReasonHookSkipped && hookSucceeded(s.status):
			skipped = fmt.Sprintf("hook %s was skipped: no running pod matched", s.plan.Name)
		case !hookSucceeded(s.status):
			m.crash(fmt.Sprintf("hook %s failed: %s", s.plan.Name, reason))
		}
		for i := range s.status.Targets {
			if s.status.Targets[i].UnknownUntil != nil {
				m.crash(fmt.Sprintf("hook %s: the end of an attempt is unknown; it may have run while snapshots were cut", s.plan.Name))
			}
		}
	}
	if m.st.Consistency != nil {
		return
	}
	switch {
	case len(m.st.Plan.PreHooks) == 0:
		m.st.Consistency = &v1.ConsistencyStatus{Verdict: v1.ConsistencyCrash, Reason: "the schedule has no pre hooks", Allowed: true}
	case skipped != "":
		m.st.Consistency = &v1.ConsistencyStatus{Verdict: v1.ConsistencyCrash, Reason: skipped, Allowed: true}
	default:
		m.st.Consistency = &v1.ConsistencyStatus{Verdict: v1.ConsistencyApplication}
	}
}

// judgeRelease: the post hooks have ended, and the application is released, or that was given up on record.
func (m *machine) judgeRelease() {
	var failed, stuck []string
	for _, s := range m.postSteps() {
		if !hookSucceeded(s.status) {
			msg := fmt.Sprintf("hook %s: %s", s.plan.Name, meta.FindStatusCondition(s.status.Conditions, v1.ConditionSucceeded).Message)
			failed = append(failed, msg)
			if s.plan.ExecutionPolicy == v1.ExecuteAlways {
				stuck = append(stuck, msg)
			}
		}
	}
	if m.unreleasedHold() && (len(m.st.Plan.PostHooks) == 0 || len(stuck) > 0) {
		stuck = append(stuck, "a held command ended without saying that it had released the application")
	}
	switch {
	case len(m.st.Plan.PostHooks) == 0:
		m.condition(v1.ConditionPostHooksSucceeded, metav1.ConditionTrue, v1.ReasonNoHooks, "")
	case len(failed) > 0:
		m.condition(v1.ConditionPostHooksSucceeded, metav1.ConditionFalse, v1.ReasonHookFailed, join(failed))
	default:
		m.condition(v1.ConditionPostHooksSucceeded, metav1.ConditionTrue, v1.ReasonHooksSucceeded, "")
	}
	switch {
	case m.st.Release.BestEffort || (m.st.QuiescedTime == nil && m.mode() != v1.RunRelease):
		m.condition(v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonNothingQuiesced, "")
	case len(stuck) > 0:
		m.condition(v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp,
			"the release did not succeed, the application may still be quiesced: "+join(stuck)+
				"; release it by hand, or correct the post hooks and create a SnapshotRun with mode: Release")
	default:
		m.condition(v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonReleased, "")
	}
}

// endRelease: the release is done, or given up on record.
func (m *machine) endRelease() {
	m.changed = true
	m.judgeRelease()
	m.judge()
	m.st.Phase = v1.PhaseAwaitingReady
	if until := lingers(m.Run, m.st); m.Now.Before(until) {
		m.condition(v1.ConditionComplete, metav1.ConditionFalse, v1.ReasonInProgress, "the end of a post hook is unknown: the run keeps its pods and claims from others until "+
			until.UTC().Format(time.RFC3339))
		return
	}
	if m.mode() != v1.RunSnapshot || len(m.st.Snapshots) == 0 {
		m.finish()
		return
	}
}

func (m *machine) unreleasedHold() bool {
	for _, s := range m.preSteps() {
		if s.plan.Mode != v1.ModeHold {
			continue
		}
		for i := range s.status.Targets {
			// It quiesces before it says that it is ready: one whose end is unknown may have. One that was lost had said so.
			t := &s.status.Targets[i]
			if held := t.HeldTime != nil || t.UnknownUntil != nil || t.Reason == v1.ReasonHoldLost; held && !targetSucceeded(t) {
				return true
			}
		}
	}
	return false
}

// awaitingReady: the application is free; snapshots get their final label and become ready, or not.
func (m *machine) awaitingReady() {
	lingering := !m.due(lingers(m.Run, m.st))
	if m.World.Lock.Held && !lingering {
		m.act(DropLock{})
	}
	creating := false
	if !m.hooked() && m.st.SnapshottingTime != nil && !m.deleted() && !m.due(m.creationDeadline()) {
		creating = m.createSnapshots()
	}
	m.observeSnapshots()
	if m.changed {
		return
	}
	if m.grouped() && m.tendGroup() {
		return
	}
	for i := range m.st.Snapshots {
		s := &m.st.Snapshots[i]
		if s.State == v1.SnapshotPending && creating {
			continue
		}
		if s.State != v1.SnapshotFailed && m.gone(s) {
			if s.State == v1.SnapshotPending {
				s.Message = orDefault(s.Message, "it was not created, or deleted before it was cut")
			} else {
				s.Message = "it was deleted before the run completed"
			}
			s.State = v1.SnapshotFailed
		}
		if m.labelOwed(s) && !m.labelOverdue() {
			seen, _ := m.own(s)
			m.act(LabelConsistency{Name: s.Name, UID: seen.UID, Value: v1.ConsistencyApplication})
		}
	}
	if len(m.effects) > 0 || lingering {
		return
	}
	if m.allFinal() || m.deleted() {
		m.finish()
		return
	}
	if m.due(m.Run.CreationTimestamp.Add(m.Config.ReadyTimeout)) {
		for i := range m.st.Snapshots {
			if s := &m.st.Snapshots[i]; s.State != v1.SnapshotReady && s.State != v1.SnapshotFailed {
				s.State = v1.SnapshotFailed
				s.Message = orDefault(s.Message, fmt.Sprintf("it was not ready within %s", m.Config.ReadyTimeout))
			}
		}
		m.finish()
	}
}

func (m *machine) gone(s *v1.SnapshotStatus) bool {
	seen, ok := m.own(s)
	return !ok || seen.Terminating
}

// labelOwed: the snapshot may be called consistent and is not yet labelled so.
func (m *machine) labelOwed(s *v1.SnapshotStatus) bool {
	c := m.st.Consistency
	seen, _ := m.own(s)
	return c != nil && c.Verdict == v1.ConsistencyApplication && s.CutBeforeRelease && s.State != v1.SnapshotFailed &&
		!m.gone(s) && seen.UID != "" && seen.Consistency != v1.ConsistencyApplication
}

// labelOverdue: the label was refused until the ready timeout, or for a while since somebody deleted the run.
func (m *machine) labelOverdue() bool {
	if m.deleted() && m.due(m.Run.DeletionTimestamp.Add(LabelPatience)) {
		return true
	}
	return m.due(m.Run.CreationTimestamp.Add(m.Config.ReadyTimeout))
}

// finish completes the run with its result.
func (m *machine) finish() {
	st := m.st
	var problems, unlabelled []string
	ready := 0
	for i := range st.Snapshots {
		s := &st.Snapshots[i]
		if seen, ok := m.own(s); ok {
			s.Consistency = seen.Consistency
		}
		if m.labelOwed(s) {
			unlabelled = append(unlabelled, fmt.Sprintf("snapshot %s of claim %s could not be labelled as application consistent", s.Name, s.Claim))
		}
		if s.State == v1.SnapshotReady {
			ready++
			continue
		}
		if s.Name == "" {
			problems = append(problems, fmt.Sprintf("claim %s: %s", s.Claim, orDefault(s.Message, "not ready")))
			continue
		}
		problems = append(problems, fmt.Sprintf("snapshot %s of claim %s: %s", s.Name, s.Claim, orDefault(s.Message, "not ready")))
	}
	if m.mode() == v1.RunSnapshot {
		if len(problems) == 0 && ready > 0 {
			m.condition(v1.ConditionSnapshotsReady, metav1.ConditionTrue, v1.ReasonAllReady, "")
		} else {
			m.condition(v1.ConditionSnapshotsReady, metav1.ConditionFalse, v1.ReasonNotAllReady, join(problems))
		}
	}
	problems = append(problems, unlabelled...)
	problems = append(problems, m.unplannedMembers()...)
	preFailed := m.preFailed()
	for _, typ := range []string{v1.ConditionPreHooksSucceeded, v1.ConditionPostHooksSucceeded} {
		if c := meta.FindStatusCondition(st.Conditions, typ); c != nil && c.Status == metav1.ConditionFalse {
			problems = append([]string{c.Message}, problems...)
		}
	}
	if c := meta.FindStatusCondition(st.Conditions, v1.ConditionSnapshotsCut); c != nil && c.Status == metav1.ConditionFalse && !preFailed && c.Reason != v1.ReasonHookFailed {
		problems = append([]string{c.Message}, problems...)
	}
	if c := st.Consistency; c != nil && c.Verdict == v1.ConsistencyCrash && !c.Allowed && len(problems) == 0 {
		problems = append(problems, "the snapshots are only crash consistent: "+c.Reason)
	}
	if st.Release != nil && st.Release.Reason != "" && len(problems) == 0 && m.mode() != v1.RunRelease {
		problems = append(problems, st.Message)
	}
	switch {
	case len(problems) == 0:
		m.complete(v1.ResultSucceeded, v1.ReasonSucceeded, m.success())
	case m.mode() == v1.RunSnapshot && ready > 0 && !preFailed:
		m.complete(v1.ResultPartiallyFailed, v1.ReasonPartiallyFailed, shorten(join(problems)))
	default:
		m.complete(v1.ResultFailed, v1.ReasonFailed, shorten(join(problems)))
	}
}

// success in words.
func (m *machine) success() string {
	words := "all hooks succeeded"
	if m.mode() == v1.RunSnapshot {
		words = fmt.Sprintf("snapshots ready: %d", len(m.st.Snapshots))
	}
	if m.st.QuiescedFor != "" {
		words += ", quiesced for " + m.st.QuiescedFor
	}
	return words
}

// preFailed: a pre hook with onError Fail, the preflight, or the run's cancellation left no snapshot to be expected.
func (m *machine) preFailed() bool {
	c := meta.FindStatusCondition(m.st.Conditions, v1.ConditionPreHooksSucceeded)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1.ReasonHooksContinued
}
