// SPDX-License-Identifier: Apache-2.0

package run

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// release begins: from here on the run only moves towards its end. reason is empty if every snapshot was cut.
func (m *machine) release(reason, message string) {
	m.changed = true
	st := m.st
	st.Phase = v1.PhasePostHooks
	st.ReleaseTime = m.now()
	st.Message = shorten(message)
	st.Release = &v1.ReleaseStatus{Pass: 1, PassTime: *m.now(), Reason: reason}
	if st.Plan == nil {
		st.Plan = &v1.RunPlan{At: metav1.NewTime(NamedAt(m.Run))}
	}
	m.abandonPreHooks(reason, message)
	m.closeSnapshots(reason, message)
	if st.QuiescedTime != nil && m.nothingStarted() && reason != v1.ReasonUnknownJournal {
		st.QuiescedTime = nil // the first pre hook was about to start, and none has
		m.condition(v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonNothingQuiesced, "")
	}
	if st.QuiescedTime != nil {
		m.condition(v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonReleasing, "")
	}
	st.Release.BestEffort = st.QuiescedTime == nil && m.mode() != v1.RunRelease && reason != v1.ReasonUnknownJournal
	m.postHooks()
}

// nothingStarted: no command of a pre hook was ever started. A record of an older version, which does not count them, says so of none.
func (m *machine) nothingStarted() bool {
	for i := range m.st.Hooks {
		h := &m.st.Hooks[i]
		if h.Stage != v1.StagePre {
			continue
		}
		for j := range h.Targets {
			if t := &h.Targets[j]; t.Claim != nil || t.NotStarted != t.Attempts {
				return false
			}
		}
	}
	return true
}

// abandonPreHooks records the end of running pre hooks as unknown, and of others as skipped. Held ones are released later.
func (m *machine) abandonPreHooks(reason, message string) {
	for _, s := range m.preSteps() {
		if hookEnded(s.status) {
			continue
		}
		started := false
		for i := range s.status.Targets {
			t := &s.status.Targets[i]
			started = started || t.Attempts > 0
			t.NextAttemptTime = nil
			switch {
			case t.Claim != nil && t.HeldTime == nil:
				m.record(s, t, Outcome{Reason: v1.ReasonInterrupted, EndUnknown: true, Message: "not waited for: " + message})
			case t.Attempts == 0:
				t.Reason, t.Message = v1.ReasonHookSkipped, "not run: "+message
			}
		}
		if started {
			m.conclude(s)
		} else {
			m.hookCondition(s.status, metav1.ConditionFalse, v1.ReasonHookSkipped, "not run: "+message)
		}
	}
	if !slices.ContainsFunc(m.st.Conditions, func(c metav1.Condition) bool { return c.Type == v1.ConditionPreHooksSucceeded }) && m.mode() != v1.RunRelease {
		m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, reason, message)
	}
}

// closeSnapshots notes which snapshots were seen to be cut before anything was released.
func (m *machine) closeSnapshots(reason, message string) {
	if m.mode() != v1.RunSnapshot {
		return
	}
	all := len(m.st.Snapshots) > 0
	for i := range m.st.Snapshots {
		s := &m.st.Snapshots[i]
		s.CutBeforeRelease = (s.State == v1.SnapshotCut || s.State == v1.SnapshotReady) && m.cutInTime(s)
		all = all && s.CutBeforeRelease
	}
	if all {
		m.st.CutTime = m.now()
		m.condition(v1.ConditionSnapshotsCut, metav1.ConditionTrue, v1.ReasonAllCut, "")
		return
	}
	m.condition(v1.ConditionSnapshotsCut, metav1.ConditionFalse, orDefault(reason, v1.ReasonNotAllCut), orDefault(message, "not every snapshot was cut"))
}

// cutInTime: the cut was seen within maxQuiesceSeconds. What is seen later may have been cut later, when the application had given up waiting.
func (m *machine) cutInTime(s *v1.SnapshotStatus) bool {
	limit := m.st.Plan.MaxQuiesceSeconds
	if limit == 0 || m.st.QuiescedTime == nil || s.CutSeenTime == nil {
		return true
	}
	return !s.CutSeenTime.After(m.st.QuiescedTime.Add(time.Duration(limit) * time.Second))
}

// postHooks releases held commands in reverse order and then runs the post hooks in list order.
func (m *machine) postHooks() {
	if request := m.releaseRequest(); request != "" && m.phase == v1.PhasePostHooks {
		m.restartRelease(request)
		return
	}
	m.enroll()
	m.cancelAbandoned()
	if !m.releaseHeld() {
		return
	}
	m.runPostHooks()
}

// enroll gives every planned post hook its entry in the current pass. Another version may have written the record.
func (m *machine) enroll() {
	for i := len(m.postSteps()); i < len(m.st.Plan.PostHooks); i++ {
		m.changed = true
		m.st.Hooks = append(m.st.Hooks, v1.HookStatus{Stage: v1.StagePost, Name: m.st.Plan.PostHooks[i].Name, Pass: m.st.Release.Pass})
	}
}

// cancelAbandoned ends the wait for commands whose end was recorded as unknown, so that a held one sees its input closed.
func (m *machine) cancelAbandoned() {
	for i := range m.st.Hooks {
		h := &m.st.Hooks[i]
		if h.Stage == v1.StagePost && h.Pass == m.st.Release.Pass {
			continue
		}
		for j := range h.Targets {
			t := &h.Targets[j]
			if t.Claim != nil || t.Reason != v1.ReasonInterrupted {
				continue
			}
			key := step{status: h, index: m.indexOf(i)}.key(t, t.Attempts)
			switch m.World.Exec[key].State {
			case ExecRunning, ExecHeld, ExecReleasing, ExecQueued, ExecReserved:
				m.act(CancelExec{Key: key})
			case ExecUnknown, ExecDone:
			}
		}
	}
}

// indexOf is the place of hook entry i in the list of its stage and pass.
func (m *machine) indexOf(i int) int32 {
	n := int32(0)
	for j := range i {
		if m.st.Hooks[j].Stage == m.st.Hooks[i].Stage && m.st.Hooks[j].Pass == m.st.Hooks[i].Pass {
			n++
		}
	}
	return n
}

// releaseHeld closes the input of held commands, those of the last hook first, and reports whether all have ended.
func (m *machine) releaseHeld() bool {
	for _, s := range slices.Backward(m.preSteps()) {
		held, ended := false, true
		for i := range s.status.Targets {
			if t := &s.status.Targets[i]; t.Claim != nil {
				held = true
				ended = m.releaseTarget(s, t) && ended
			}
		}
		if !ended {
			return false
		}
		if held {
			m.conclude(s)
		}
	}
	return true
}

// releaseTarget closes a held command's input and reports whether it has ended.
func (m *machine) releaseTarget(s step, t *v1.TargetStatus) bool {
	key := s.key(t, t.Attempts)
	switch state := m.World.Exec[key].State; {
	case t.Claim.Process != m.Process || state == ExecDone:
		m.advanceClaimed(s, t)
		return true
	case state == ExecHeld:
		m.act(ReleaseHeld{Key: key})
	case state == ExecReleasing:
		m.wakeAt(m.Now.Add(time.Duration(s.plan.ReleaseTimeoutSeconds)*time.Second + reportSlack))
	default:
		m.record(s, t, Outcome{Reason: v1.ReasonHoldLost, EndUnknown: true, Message: "the operator lost sight of the held command"})
		return true
	}
	return false
}

// releaseRequest is the value of the release annotation if it was not acted on yet.
func (m *machine) releaseRequest() string {
	v := m.Run.Annotations[v1.AnnotationRelease]
	if len(v) > maxRequest {
		v = fmt.Sprintf("%x", sha256.Sum256([]byte(v)))
	}
	if m.st.Release != nil && m.st.Release.Requested == v {
		return ""
	}
	return v
}

// restartRelease begins a pass with the schedule's current post hooks: the emergency exit while a post hook fails.
func (m *machine) restartRelease(request string) {
	if rel := m.st.Release; rel.Pass == 1 && !rel.Looked {
		// The second look at what was quiesced belongs to the first pass.
		if m.World.Look != nil {
			m.compareTargets(m.World.Look)
		} else {
			m.crash("a new release was asked for before the pods were looked at again")
		}
	}
	var before [][]v1.TargetStatus
	for _, s := range m.postSteps() {
		before = append(before, m.passedOn(s))
		for i := range s.status.Targets {
			t := &s.status.Targets[i]
			if t.Claim != nil {
				m.record(s, t, Outcome{Reason: v1.ReasonInterrupted, EndUnknown: true, Message: "replaced by a new release"})
			}
			t.NextAttemptTime = nil
		}
		if !hookEnded(s.status) {
			m.hookCondition(s.status, metav1.ConditionFalse, v1.ReasonReleaseRequested, "replaced by a new release")
		}
	}
	m.replacePostHooks()
	var entries []v1.HookStatus
	for i := range m.st.Plan.PostHooks {
		e := v1.HookStatus{Stage: v1.StagePost, Name: m.st.Plan.PostHooks[i].Name, Pass: m.st.Release.Pass + 1}
		if i < len(before) {
			e.Targets = before[i]
		}
		entries = append(entries, e)
	}
	m.nextPass(entries)
	m.st.Release.Requested = request
	m.st.Release.BestEffort = false
}

// passedOn are the targets that a hook hands to the one that takes its place. Which pods that one runs in, its own selector says; but a pod
// that may have been quiesced and has gone is still waited for. So all count as gone until the look finds them.
func (m *machine) passedOn(s step) []v1.TargetStatus {
	if m.st.QuiescedTime == nil {
		return nil
	}
	out := m.missing(s)
	for i := range s.status.Targets {
		if t := &s.status.Targets[i]; !t.Gone {
			out = append(out, away(t))
		}
	}
	return out
}

// replacePostHooks takes the schedule's current post hooks into the plan, if there are any that can be planned.
func (m *machine) replacePostHooks() {
	if m.Schedule == nil {
		return
	}
	_, post, err := PlanHooks(m.Schedule, m.Config.Hooks)
	if err != nil || len(post) == 0 {
		return
	}
	var before [][]v1.TargetStatus
	if m.st.Release == nil {
		for _, s := range m.steps(v1.StagePost, 1, m.st.Plan.PostHooks) {
			before = append(before, m.passedOn(s))
		}
	}
	m.st.Plan.PostHooks = post
	m.st.Plan.ServiceAccountName = m.Config.Hooks.Account(m.Schedule.Spec.ServiceAccountName)
	if m.st.Release != nil {
		return
	}
	// The release has not begun: its first pass runs the new hooks; their pods are found by the look.
	m.st.Hooks = slices.DeleteFunc(m.st.Hooks, func(h v1.HookStatus) bool { return h.Stage == v1.StagePost })
	for i := range post {
		h := v1.HookStatus{Stage: v1.StagePost, Name: post[i].Name, Pass: 1}
		if i < len(before) {
			h.Targets = before[i]
		}
		m.st.Hooks = append(m.st.Hooks, h)
	}
}
