// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// pending: nothing is quiesced and nothing but names is taken. The run plans itself, waits, or completes.
func (m *machine) pending() {
	m.st = waitingRecord(m.st)
	if m.deleted() {
		m.complete(v1.ResultFailed, v1.ReasonCancelled, "the run was deleted before it began; nothing was quiesced")
		return
	}
	if m.World.Draining {
		return
	}
	if m.Schedule == nil {
		m.complete(v1.ResultFailed, v1.ReasonInvalidPlan, fmt.Sprintf("SnapshotSchedule %s/%s does not exist", m.Run.Namespace, m.Run.Spec.ScheduleName))
		return
	}
	if !m.slotIsOurs() {
		m.complete(v1.ResultSkipped, v1.ReasonNotTaken,
			"spec.slot is not one that the schedule is at (a restored or copied run?); to start a run by hand, create one without spec.slot")
		return
	}
	pre, post, err := PlanHooks(m.Schedule, m.Config.Hooks)
	if err != nil {
		m.invalid(err.Error())
		return
	}
	asGroup := m.mode() == v1.RunSnapshot && GroupClass(m.Schedule) != ""
	if why := GroupProblem(m.Schedule); asGroup && why != "" {
		m.refuse(v1.ReasonInvalidGroup, why)
		return
	}
	if s := m.World.Survey; s == nil || len(s.Post) != len(post) || (m.mode() != v1.RunRelease && len(s.Pre) != len(pre)) {
		m.wakeAt(m.Now.Add(LookInterval)) // there is none, or it is of other hooks: again
		return
	}
	m.st.ClaimsLeftOut = leftOutWords(m.World.Survey.LeftOut)
	if p := m.World.Survey.NoGroup; asGroup && p != nil {
		m.refuse(p.Reason, p.Message)
		return
	}
	switch {
	case m.mode() == v1.RunRelease && len(post) == 0:
		m.complete(v1.ResultSkipped, v1.ReasonNoHooks, "the schedule has no post hooks: there is nothing to release")
	case m.mode() == v1.RunTestHooks && len(pre)+len(post) == 0:
		m.complete(v1.ResultSkipped, v1.ReasonNoHooks, "the schedule has no hooks to test")
	case m.mode() == v1.RunSnapshot && len(m.World.Survey.Claims) == 0:
		msg := "no claim to take: no bound PersistentVolumeClaim matches spec.claimSelector"
		if len(m.st.ClaimsLeftOut) > 0 {
			msg += " (left out: " + join(m.st.ClaimsLeftOut) + ")"
		}
		m.complete(v1.ResultSkipped, v1.ReasonRunSkipped, msg)
	case len(pre)+len(post) == 0 && !asGroup:
		m.direct()
	case !m.hasFinalizer():
		m.act(AddFinalizer{})
	case len(pre)+len(post) == 0:
		m.groupWithoutHooks()
	case m.mode() != v1.RunRelease && !m.World.Lock.Held:
		m.waitForLock()
	default:
		m.plan(pre, post)
	}
}

// waitingRecord is what the record of a run that has not begun may say: what it waits for. Anything else there was written by somebody else.
func waitingRecord(st *v1.SnapshotRunStatus) *v1.SnapshotRunStatus {
	out := &v1.SnapshotRunStatus{Phase: st.Phase, Message: st.Message, ClaimsLeftOut: st.ClaimsLeftOut}
	if c := meta.FindStatusCondition(st.Conditions, v1.ConditionComplete); c != nil {
		out.Conditions = []metav1.Condition{*c}
	}
	return out
}

// slotIsOurs: a run with a slot is the operator's own, and for a slot that the schedule is at. Restored, copied and made-up runs are not.
func (m *machine) slotIsOurs() bool {
	slot := m.Run.Spec.Slot
	if slot == nil {
		return true
	}
	if _, ok := Repetition(m.Run, m.Schedule); !ok || slot.After(m.Now.Add(maxEarly)) {
		return false
	}
	// The schedule controller creates the run first and records the slot afterwards: until then its next slot is
	// still this one, and from then on the run is its active one.
	next := m.Schedule.Status.NextSnapshotTime
	return m.Schedule.Status.ActiveRun == m.Run.Name || next == nil || !slot.Before(next)
}

// Repetition of a run that a schedule has for a slot: 0 is the first run of the slot. ok is false for any other run. What a run is called and whom it
// belongs to says so, and nothing that can be changed about it.
func Repetition(r *v1.SnapshotRun, s *v1.SnapshotSchedule) (n int, ok bool) {
	if r.Spec.Slot == nil || r.Spec.ScheduleName != s.Name || !metav1.IsControlledBy(r, s) {
		return 0, false
	}
	for n := range MaxRetries + 1 {
		if r.Name == naming.RetryRun(s.Name, r.Spec.Slot.Time, n) {
			return n, true
		}
	}
	return 0, false
}

func (m *machine) invalid(message string) { m.refuse(v1.ReasonInvalidPlan, message) }

func (m *machine) refuse(reason, message string) {
	m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, reason, message)
	m.complete(v1.ResultFailed, reason, message)
}

// waitForLock says what the run waits for; it is woken when its turn has come.
func (m *machine) waitForLock() {
	msg := "waiting for " + m.World.Lock.WaitingFor
	if m.st.Message == msg {
		return
	}
	m.changed = true
	m.st.Phase = v1.PhasePending
	m.st.Message = msg
	m.condition(v1.ConditionComplete, metav1.ConditionFalse, v1.ReasonWaiting, msg)
}

// plan is the preflight: with the lock held, everything the run will do and where is written down before anything is quiesced.
func (m *machine) plan(pre, post []v1.PlannedHook) {
	m.changed, m.anew = true, true // if it had begun before, somebody has made it begin again
	st, survey := m.st, m.World.Survey
	st.Phase = v1.PhasePlanned
	st.Message = ""
	st.StartTime = m.now()
	st.Plan = m.newPlan()
	if m.mode() != v1.RunRelease {
		st.Plan.PreHooks = pre
	}
	st.Plan.PostHooks = post
	if m.mode() == v1.RunSnapshot {
		m.planSnapshots()
	}
	var problems []string
	st.Hooks = nil
	if m.mode() != v1.RunRelease {
		for i := range pre {
			h := v1.HookStatus{Stage: v1.StagePre, Name: pre[i].Name}
			problems = append(problems, m.planTargets(&h, &pre[i], survey.Pre[i])...)
			st.Hooks = append(st.Hooks, h)
		}
	}
	for i := range post {
		h := v1.HookStatus{Stage: v1.StagePost, Name: post[i].Name, Pass: 1}
		p := m.planTargets(&h, &post[i], survey.Post[i])
		if m.mode() != v1.RunRelease {
			problems = append(problems, p...)
		}
		h.Conditions = nil // post hooks are tried all the same
		st.Hooks = append(st.Hooks, h)
	}
	if size, err := journalEstimate(st); err != nil || size > MaxJournalBytes {
		m.st = waitingRecord(&m.Run.Status)
		m.invalid(fmt.Sprintf("the run's record could grow to %d KiB, more than %d: select fewer pods or claims, or shorten the commands", size>>10, MaxJournalBytes>>10))
		return
	}
	m.condition(v1.ConditionComplete, metav1.ConditionFalse, v1.ReasonInProgress, "")
	switch {
	case len(problems) > 0:
		m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, v1.ReasonPreflightFailed, join(problems))
		m.release(v1.ReasonPreflightFailed, join(problems))
	case m.mode() == v1.RunRelease:
		m.release(v1.ReasonReleaseRequested, "")
	}
}

// planTargets records where a hook will run. A hook that cannot run has failed; its problems are returned in words.
func (m *machine) planTargets(h *v1.HookStatus, p *v1.PlannedHook, t HookTargets) []string {
	for _, target := range t.Targets {
		h.Targets = append(h.Targets, newTarget(target))
	}
	if len(t.Problems) > 0 {
		var words []string
		for _, problem := range t.Problems {
			words = append(words, fmt.Sprintf("hook %s: %s", p.Name, problem.Message))
		}
		m.hookCondition(h, metav1.ConditionFalse, t.Problems[0].Reason, join(words))
		return words
	}
	if len(h.Targets) > 0 {
		return nil
	}
	none := fmt.Sprintf("hook %s: no running pod in namespace %s matches %s", p.Name, p.Namespace, metav1.FormatLabelSelector(&p.PodSelector))
	if p.SkipIfNoSelectorFound {
		m.hookCondition(h, metav1.ConditionTrue, v1.ReasonHookSkipped, none)
		return nil
	}
	m.hookCondition(h, metav1.ConditionFalse, v1.ReasonPodNotFound, none)
	return []string{none}
}

func newTarget(t Target) v1.TargetStatus {
	return v1.TargetStatus{Namespace: t.Namespace, Pod: t.Pod, PodUID: t.UID, Container: t.Container, ContainerID: t.ContainerID, RestartCount: t.RestartCount}
}

func (m *machine) planSnapshots() {
	at := m.st.Plan.At.Time
	if GroupClass(m.Schedule) != "" {
		m.planGroup()
		return
	}
	var claims []string
	for _, c := range m.World.Survey.Claims {
		claims = append(claims, c.Name)
	}
	names := naming.PlanSnapshots(m.Run.Spec.ScheduleName, claims, at)
	m.st.Snapshots = nil
	for _, c := range m.World.Survey.Claims {
		m.st.Snapshots = append(m.st.Snapshots, v1.SnapshotStatus{Claim: c.Name, ClaimUID: c.UID, Name: names[c.Name], ClassName: c.ClassName, State: v1.SnapshotPending})
	}
}

// direct: a run without hooks. Its snapshots are created at once; its record is written when they are ready, or after DirectGrace.
func (m *machine) direct() {
	now := m.now()
	m.st.StartTime, m.st.SnapshottingTime = now, now
	m.st.Plan = m.newPlan()
	m.planSnapshots()
	if size, err := recordEstimate(m.st); err != nil || size > maxRecordBytes {
		m.st = waitingRecord(&m.Run.Status)
		m.invalid(fmt.Sprintf("the run's record could grow to %d KiB, more than %d: select fewer claims, or shorten spec.snapshotTemplate", size>>10, maxRecordBytes>>10))
		return
	}
	m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionTrue, v1.ReasonNoHooks, "")
	creating := m.createSnapshots()
	m.observeSnapshots()
	switch {
	case m.changed: // a name that is taken by another object is changed in the record, so there must be one
		m.st.Phase = v1.PhaseSnapshotting
	case len(m.effects) > 0:
	case !creating && m.allFinal():
		m.finish()
	case m.due(m.Run.CreationTimestamp.Add(DirectGrace)):
		m.changed = true
		m.st.Phase = v1.PhaseAwaitingReady
		m.condition(v1.ConditionComplete, metav1.ConditionFalse, v1.ReasonInProgress, "")
	}
}
