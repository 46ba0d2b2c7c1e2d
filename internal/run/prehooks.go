// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// preHooks runs them in list order, each in all its targets at once. The application may be quiesced from the first claim on.
func (m *machine) preHooks() {
	if m.interrupted() {
		return
	}
	var continued []string
	for _, s := range m.preSteps() {
		if !hookEnded(s.status) {
			if !m.advance(s) {
				return
			}
			m.conclude(s)
		}
		m.watchHeld(s)
		if m.hookFailed(s) {
			msg := meta.FindStatusCondition(s.status.Conditions, v1.ConditionSucceeded).Message
			if s.plan.OnError != v1.OnErrorContinue {
				m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, v1.ReasonHookFailed, fmt.Sprintf("hook %s: %s", s.plan.Name, msg))
				m.release(v1.ReasonHookFailed, fmt.Sprintf("pre hook %s failed: %s", s.plan.Name, msg))
				return
			}
			continued = append(continued, fmt.Sprintf("hook %s: %s", s.plan.Name, msg))
		}
	}
	switch {
	case len(m.st.Plan.PreHooks) == 0:
		m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionTrue, v1.ReasonNoHooks, "")
	case len(continued) > 0:
		m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, v1.ReasonHooksContinued, join(continued))
	default:
		m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionTrue, v1.ReasonHooksSucceeded, "")
	}
	if m.mode() == v1.RunTestHooks {
		m.release("", "")
		return
	}
	m.changed = true
	m.st.Phase = v1.PhaseSnapshotting
	m.st.SnapshottingTime = m.now()
}

func (m *machine) hookFailed(s step) bool {
	return meta.IsStatusConditionFalse(s.status.Conditions, v1.ConditionSucceeded)
}

// watchHeld records held commands that ended before they were released.
func (m *machine) watchHeld(s step) {
	if hookReason(s.status) != v1.ReasonHeld {
		return
	}
	before := m.changed
	m.changed = false
	m.advance(s)
	lost := false
	for i := range s.status.Targets {
		lost = lost || s.status.Targets[i].Claim == nil
	}
	if m.changed && lost {
		m.conclude(s)
	}
	m.changed = m.changed || before
}

// interrupted sends the run to its release when it was deleted, told to, may not be continued, or has been quiesced for too long.
func (m *machine) interrupted() bool {
	request := m.releaseRequest()
	switch {
	case m.st.Plan == nil || m.st.Plan.Version != JournalVersion:
		m.release(v1.ReasonUnknownJournal, "the run's record was written by another version of the operator; it is released and not continued")
	case m.deleted():
		m.release(v1.ReasonCancelled, "the run was deleted")
	case request != "":
		m.replacePostHooks()
		m.release(v1.ReasonReleaseRequested, "the annotation "+v1.AnnotationRelease+" asked for the release")
		m.st.Release.Requested = request
	case m.quiescedTooLong():
		m.release(v1.ReasonMaxQuiesceReached, fmt.Sprintf("the application was quiesced for maxQuiesceSeconds (%d s)", m.st.Plan.MaxQuiesceSeconds))
	default:
		return false
	}
	return true
}

func (m *machine) quiescedTooLong() bool {
	if m.st.QuiescedTime == nil || m.st.Plan.MaxQuiesceSeconds == 0 {
		return false
	}
	return m.due(m.st.QuiescedTime.Add(time.Duration(m.st.Plan.MaxQuiesceSeconds) * time.Second))
}
