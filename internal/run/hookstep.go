// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Backoff of failed attempts.
const (
	firstBackoff   = time.Second
	maxPreBackoff  = 10 * time.Second // others may be quiesced meanwhile
	maxPostBackoff = 30 * time.Second
	// freeRepeats of a pre hook's attempt that never started because the node was not reached or its kubelet, just started, does not know
	// the pod yet. They do not count towards backoffLimit.
	freeRepeats = 3
)

// step is one hook of the run with its place in the plan.
type step struct {
	status *v1.HookStatus
	plan   *v1.PlannedHook
	index  int32
}

func (s step) key(t *v1.TargetStatus, attempt int32) ExecKey {
	return ExecKey{Stage: s.status.Stage, Pass: s.status.Pass, Hook: s.index, Attempt: attempt, Target: targetID(t)}
}

// ExecKeys are the keys of all attempts that the next decision may ask about: the newest and the next one of every target.
func ExecKeys(r *v1.SnapshotRun) []ExecKey {
	m := &machine{Input: Input{Run: r}, st: &r.Status}
	var keys []ExecKey
	for i := range r.Status.Hooks {
		s := step{status: &r.Status.Hooks[i], index: m.indexOf(i)}
		for j := range s.status.Targets {
			t := &s.status.Targets[j]
			if t.Attempts > 0 {
				keys = append(keys, s.key(t, t.Attempts))
			}
			if t.Claim == nil && !targetEnded(t) {
				keys = append(keys, s.key(t, t.Attempts+1))
			}
		}
	}
	return keys
}

// Unstarted reports whether an attempt is claimed whose slot is reserved: it is to be started at once.
func Unstarted(r *v1.SnapshotRun, exec map[ExecKey]Exec) bool {
	m := &machine{Input: Input{Run: r}, st: &r.Status}
	for i := range r.Status.Hooks {
		s := step{status: &r.Status.Hooks[i], index: m.indexOf(i)}
		for j := range s.status.Targets {
			if t := &s.status.Targets[j]; t.Claim != nil && exec[s.key(t, t.Attempts)].State == ExecReserved {
				return true
			}
		}
	}
	return false
}

func targetID(t *v1.TargetStatus) string {
	return strings.Join([]string{t.Namespace, t.Pod, string(t.PodUID), t.Container}, "/")
}

// preSteps are the pre hooks in list order.
func (m *machine) preSteps() []step { return m.steps(v1.StagePre, 0, m.st.Plan.PreHooks) }

// postSteps are the post hooks of the current pass in list order.
func (m *machine) postSteps() []step {
	return m.steps(v1.StagePost, m.st.Release.Pass, m.st.Plan.PostHooks)
}

func (m *machine) steps(stage v1.HookStage, pass int32, plan []v1.PlannedHook) []step {
	var out []step
	for i := range m.st.Hooks {
		if h := &m.st.Hooks[i]; h.Stage == stage && h.Pass == pass && len(out) < len(plan) {
			out = append(out, step{status: h, plan: &plan[len(out)], index: m.indexOf(i)})
		}
	}
	return out
}

// advance moves every target of a hook on and reports whether all have ended or are held.
func (m *machine) advance(s step) bool {
	done := true
	for i := range s.status.Targets {
		if !m.advanceTarget(s, &s.status.Targets[i]) {
			done = false
		}
	}
	return done
}

func (m *machine) advanceTarget(s step, t *v1.TargetStatus) bool {
	switch {
	case t.Claim != nil:
		return m.advanceClaimed(s, t)
	case targetEnded(t):
		return true
	case t.NextAttemptTime != nil && !m.due(t.NextAttemptTime.Time):
		return false
	}
	if why := m.barred(s, t); why != "" {
		t.Attempts++
		t.Claim = &v1.AttemptClaim{Process: m.Process, Time: *m.now()}
		m.record(s, t, Outcome{Reason: v1.ReasonForbidden, Message: why, NeverStarted: true})
		return targetEnded(t)
	}
	key := s.key(t, t.Attempts+1)
	switch m.World.Exec[key].State {
	case ExecUnknown:
		m.act(ReserveExec{Key: key})
	case ExecReserved:
		m.claim(s, t)
	case ExecQueued: // the pool wakes the run
	case ExecRunning, ExecHeld, ExecReleasing, ExecDone:
		// Only a recorded claim is started, so somebody has taken it out of the record.
		m.claim(s, t)
	}
	return false
}

// barred says why a hook must not run in a target; empty: it may. It is asked before each start and not only when the run is planned: whoever
// may write the record of a run must not reach further with it than with a schedule, and the operator's rules may have changed.
func (m *machine) barred(s step, t *v1.TargetStatus) string {
	switch {
	case t.Namespace != s.plan.Namespace:
		return fmt.Sprintf("the pod is in namespace %s and the hook is for namespace %s", t.Namespace, s.plan.Namespace)
	case !m.Config.Hooks.Reach(m.Run.Namespace, t.Namespace, m.st.Plan.ServiceAccountName):
		return fmt.Sprintf("a hook in namespace %s needs spec.serviceAccountName in the schedule, whose rights then decide", t.Namespace)
	}
	return ""
}

// claim takes the right to start the next attempt.
func (m *machine) claim(s step, t *v1.TargetStatus) {
	m.changed = true
	t.Attempts++
	t.Claim = &v1.AttemptClaim{Process: m.Process, Time: *m.now()}
	t.NextAttemptTime, t.HeldTime, t.ExitCode, t.StartTime, t.EndTime = nil, nil, nil, nil, nil
	t.Reason, t.Message, t.Output = "", "", ""
	if s.status.Stage == v1.StagePre {
		m.st.Phase = v1.PhasePreHooks
		if m.st.QuiescedTime == nil {
			m.st.QuiescedTime = m.now()
			m.condition(v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonQuiescing, "")
		}
	}
}

func (m *machine) advanceClaimed(s step, t *v1.TargetStatus) bool {
	if t.Claim.Process != m.Process {
		lost := Outcome{Reason: v1.ReasonInterrupted, EndUnknown: true,
			Message: "the operator process that was to run the command is gone; whether and how it ended is unknown"}
		if t.HeldTime != nil {
			lost.Reason = v1.ReasonHoldLost
			lost.Message = "the operator process that held the command is gone; the command releases the application when its input ends"
		}
		m.record(s, t, lost)
		return targetEnded(t)
	}
	key := s.key(t, t.Attempts)
	exec := m.World.Exec[key]
	switch exec.State {
	case ExecDone:
		m.record(s, t, exec.Outcome)
		return targetEnded(t)
	case ExecHeld:
		if t.HeldTime == nil {
			m.changed = true
			held := metav1.NewMicroTime(exec.HeldAt.Truncate(time.Microsecond))
			t.HeldTime = &held
		}
		return true
	case ExecRunning:
		m.wakeAt(t.Claim.Time.Add(time.Duration(s.plan.TimeoutSeconds)*time.Second + reportSlack))
	case ExecReleasing:
		m.wakeAt(m.Now.Add(time.Duration(s.plan.ReleaseTimeoutSeconds)*time.Second + reportSlack))
	case ExecUnknown, ExecQueued, ExecReserved:
		if why := m.barred(s, t); why != "" {
			m.record(s, t, Outcome{Reason: v1.ReasonForbidden, Message: why, NeverStarted: true})
			return targetEnded(t)
		}
		if m.Now.Before(t.Claim.Time.Add(ClaimWindow)) {
			// The default account holds also for what an operator without one has planned.
			m.act(StartExec{Key: key, Target: *t, Hook: *s.plan, ServiceAccountName: m.Config.Hooks.Account(m.st.Plan.ServiceAccountName)})
			break
		}
		// This process wrote the claim and has not started the attempt, so nobody ever will: the claim is taken back.
		m.changed = true
		t.Claim = nil
		t.Attempts--
	}
	return false
}

// record the outcome of the claimed attempt, and whether and when it is repeated.
func (m *machine) record(s step, t *v1.TargetStatus, o Outcome) {
	m.changed = true
	claimed := t.Claim.Time
	t.Claim = nil
	if o.NeverStarted {
		t.NotStarted++
	}
	t.Reason, t.Message, t.ExitCode = o.Reason, shorten(o.Message), o.ExitCode
	t.Output = tail(o.Output, outputLimit(m.countTargets()))
	t.StartTime, t.EndTime = &claimed, m.now()
	if !o.Started.IsZero() {
		started := metav1.NewMicroTime(o.Started.Truncate(time.Microsecond))
		t.StartTime = &started
	}
	if !o.Ended.IsZero() {
		ended := metav1.NewMicroTime(o.Ended.Truncate(time.Microsecond))
		t.EndTime = &ended
	}
	if o.EndUnknown {
		m.noteUnknown(s, t)
	}
	if s.status.Stage == v1.StagePost && o.Reason == v1.ReasonPodNotFound {
		// A kubelet that has just started says so of pods that exist. The look tells, and finds what took the pod's place.
		m.st.Release.Looked = false
	}
	if m.repeats(s, t, o) {
		next := metav1.NewMicroTime(m.Now.Add(m.backoff(s, t)).Truncate(time.Microsecond))
		t.NextAttemptTime = &next
	}
}

// noteUnknown remembers until when a command whose end is unknown may run.
func (m *machine) noteUnknown(s step, t *v1.TargetStatus) {
	until := t.StartTime.Add(time.Duration(s.plan.TimeoutSeconds+s.plan.ReleaseTimeoutSeconds) * time.Second)
	if t.UnknownUntil == nil || t.UnknownUntil.Time.Before(until) {
		u := metav1.NewMicroTime(until)
		t.UnknownUntil = &u
	}
}

// repeats says whether a failed attempt is repeated. A pre hook's attempt whose connection or operator was lost is not: it may have
// done its work, or be doing it.
func (m *machine) repeats(s step, t *v1.TargetStatus, o Outcome) bool {
	if o.Reason == v1.ReasonHookCompleted {
		return false
	}
	if s.status.Stage == v1.StagePost {
		if m.st.Release.BestEffort {
			return false
		}
		return s.plan.BackoffLimit == nil || t.Attempts <= *s.plan.BackoffLimit
	}
	if o.EndUnknown && o.Reason != v1.ReasonTimeout {
		return false
	}
	limit := ptr.Deref(s.plan.BackoffLimit, 0)
	if o.NeverStarted && slices.Contains([]string{v1.ReasonUnreachable, v1.ReasonPodNotFound, v1.ReasonContainerNotRunning}, o.Reason) {
		limit += freeRepeats
	}
	return m.st.Phase != v1.PhasePostHooks && t.Attempts <= limit
}

// backoff before the next attempt: doubled each time, with a jitter of a tenth that depends on run, target and attempt only.
func (m *machine) backoff(s step, t *v1.TargetStatus) time.Duration {
	limit := maxPreBackoff
	if s.status.Stage == v1.StagePost {
		limit = maxPostBackoff
	}
	d := limit
	if n := max(0, t.Attempts-1); n < 6 {
		d = min(limit, firstBackoff<<n)
	}
	f := fnv.New32a()
	_, _ = fmt.Fprint(f, m.Run.UID, s.key(t, t.Attempts))
	return d + d/10*time.Duration(f.Sum32()%1000)/1000
}

func (m *machine) countTargets() int {
	n := 0
	for i := range m.st.Hooks {
		n += len(m.st.Hooks[i].Targets)
	}
	return n
}

// targetEnded reports that nothing more will be tried in a target.
func targetEnded(t *v1.TargetStatus) bool {
	return t.Gone || (t.Claim == nil && t.Reason != "" && t.NextAttemptTime == nil)
}

func targetSucceeded(t *v1.TargetStatus) bool {
	return t.Claim == nil && t.Reason == v1.ReasonHookCompleted
}

// conclude sets the hook's condition from its targets, all of which have ended or are held, and puts failures first.
func (m *machine) conclude(s step) {
	var failed, rest []v1.TargetStatus
	held := false
	for _, t := range s.status.Targets {
		switch {
		case t.Claim != nil:
			held = true
			rest = append(rest, t)
		case targetSucceeded(&t) || t.Gone:
			rest = append(rest, t)
		default:
			failed = append(failed, t)
		}
	}
	s.status.Targets = slices.Concat(failed, rest)
	switch {
	case len(failed) > 0:
		t := failed[0]
		msg := fmt.Sprintf("%s in %s/%s, container %s: %s", t.Reason, t.Namespace, t.Pod, t.Container, t.Message)
		if len(failed) > 1 {
			msg += fmt.Sprintf(" (and %d more targets)", len(failed)-1)
		}
		m.hookCondition(s.status, metav1.ConditionFalse, t.Reason, msg)
	case held:
		m.hookCondition(s.status, metav1.ConditionUnknown, v1.ReasonHeld, "")
	default:
		m.hookCondition(s.status, metav1.ConditionTrue, v1.ReasonHookCompleted, "")
	}
}

// tail is the end of s in at most n bytes, cut between characters.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
