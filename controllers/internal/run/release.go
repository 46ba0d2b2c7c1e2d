// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// release begins: from here on the run only moves towards its end. reason is empty if every snapshot was cut.
func (m *machine) release(reason, message string) {
	m.changed = true
	st := m.st
	st.Phase = v1.PhasePostHooks
	st.ReleaseTime = m.now()
	st.Message = shorten(message)
	st.Release = &v1.ReleaseStatus{Pass: 1, PassTime: *m.now(), Reason: reason,
		BestEffort: st.QuiescedTime == nil && m.mode() != v1.RunRelease && reason != v1.ReasonUnknownJournal}
	if st.Plan == nil {
		st.Plan = &v1.RunPlan{At: metav1.NewTime(NamedAt(m.Run))}
	}
	m.abandonPreHooks(reason, message)
	m.closeSnapshots(reason, message)
	if st.QuiescedTime != nil {
		m.condition(v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonReleasing, "")
	}
	m.postHooks()
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
		s.CutBeforeRelease = s.State == v1.SnapshotCut || s.State == v1.SnapshotReady
		all = all && s.CutBeforeRelease
	}
	if all {
		m.st.CutTime = m.now()
		m.condition(v1.ConditionSnapshotsCut, metav1.ConditionTrue, v1.ReasonAllCut, "")
		return
	}
	m.condition(v1.ConditionSnapshotsCut, metav1.ConditionFalse, orDefault(reason, v1.ReasonNotAllCut), orDefault(message, "not every snapshot was cut"))
}

// postHooks releases held commands in reverse order and then runs the post hooks in list order.
func (m *machine) postHooks() {
	if request := m.releaseRequest(); request != "" && m.phase == v1.PhasePostHooks {
		m.restartRelease(request)
		return
	}
	m.cancelAbandoned()
	if !m.releaseHeld() {
		return
	}
	m.runPostHooks()
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

// runPostHooks moves the current pass on. A hook begins when every earlier one has been tried in all its targets; failed attempts
// are repeated beside the later hooks.
func (m *machine) runPostHooks() {
	rel := m.st.Release
	if rel.NextPassTime != nil {
		if m.due(rel.NextPassTime.Time) {
			m.beginPass()
		}
		return
	}
	m.merge()
	deadline := rel.PassTime.Add(time.Duration(m.st.Plan.ReleaseDeadlineSeconds) * time.Second)
	ended := true
	for _, s := range m.postSteps() {
		if hookEnded(s.status) {
			continue
		}
		if s.index > 0 && !rel.Looked {
			ended = false
			break
		}
		tried := m.runPostHook(s, deadline)
		ended = ended && hookEnded(s.status)
		if !tried {
			ended = false
			break
		}
	}
	if ended && rel.Looked {
		m.endPass()
		return
	}
	if !rel.Looked && !m.changed && m.World.Look == nil {
		m.wakeAt(m.Now.Add(LookInterval)) // the look failed: again
	}
}

// runPostHook moves one post hook on and reports whether the next one may begin.
func (m *machine) runPostHook(s step, deadline time.Time) bool {
	rel := m.st.Release
	if why := m.leftOut(s.plan.ExecutionPolicy); why != "" {
		m.hookCondition(s.status, metav1.ConditionTrue, v1.ReasonHookSkipped, why)
		return true
	}
	if m.due(deadline) {
		m.giveUp(s)
		return true
	}
	done := m.advance(s)
	live, tried := 0, true
	for i := range s.status.Targets {
		if t := &s.status.Targets[i]; !t.Gone {
			live++
			tried = tried && (t.Attempts > 1 || (t.Attempts == 1 && t.Claim == nil))
		}
	}
	switch {
	case live == 0 && !rel.Looked:
		return false
	case live == 0:
		return m.noTarget(s)
	case done && rel.Looked && m.shortage(s) > 0:
		m.awaitReplacement(s)
		return true
	case done && rel.Looked:
		m.conclude(s)
		return true
	}
	return tried
}

// shortage is how many pods went away while they may have been quiesced and have none in their place. Their file systems may be frozen still.
func (m *machine) shortage(s step) int { return shortage(m.st, s.status, s.plan) }

func shortage(st *v1.SnapshotRunStatus, h *v1.HookStatus, p *v1.PlannedHook) int {
	if st.QuiescedTime == nil || p.SkipIfNoSelectorFound || p.TargetPolicy == v1.TargetOne {
		return 0
	}
	n := 0
	for i := range h.Targets {
		if h.Targets[i].Gone {
			n++
		}
		if h.Targets[i].Joined && !h.Targets[i].Gone {
			n--
		}
	}
	return max(0, n)
}

// awaitReplacement of a pod for a while. If none comes, the hook has failed: what the pod used may be frozen when it comes back.
func (m *machine) awaitReplacement(s step) {
	if !m.due(m.st.Release.PassTime.Add(ReplacementWait)) {
		m.wakeAt(m.Now.Add(LookInterval))
		return
	}
	var gone []string
	for i := range s.status.Targets {
		if t := &s.status.Targets[i]; t.Gone {
			gone = append(gone, t.Namespace+"/"+t.Pod)
		}
	}
	m.hookCondition(s.status, metav1.ConditionFalse, v1.ReasonPodNotFound,
		fmt.Sprintf("pods went away while they may have been quiesced, and none came in their place within %s: %s", ReplacementWait, join(gone)))
}

// noTarget: no pod is there to release. A freeze outlives its pod, so the hook waits for one, beside the later hooks.
func (m *machine) noTarget(s step) bool {
	none := fmt.Sprintf("no running pod in namespace %s matches %s", s.plan.Namespace, metav1.FormatLabelSelector(&s.plan.PodSelector))
	switch {
	case s.plan.SkipIfNoSelectorFound:
		m.hookCondition(s.status, metav1.ConditionTrue, v1.ReasonHookSkipped, none)
	case m.st.Release.BestEffort:
		m.hookCondition(s.status, metav1.ConditionFalse, v1.ReasonPodNotFound, none)
	default:
		m.wakeAt(m.Now.Add(LookInterval))
		if look := m.World.Look; look != nil && int(s.index) < len(look.Post) && len(look.Post[s.index].Problems) > 0 {
			none = look.Post[s.index].Problems[0].Message
		}
		if msg := fmt.Sprintf("waiting to run post hook %s: %s", s.plan.Name, none); m.World.Look != nil && m.st.Message != msg {
			m.changed = true
			m.st.Message = msg
		}
	}
	return true
}

// leftOut says why the hook's policy leaves it out; empty: it runs.
func (m *machine) leftOut(p v1.ExecutionPolicy) string {
	good := m.st.Release.Reason == "" || m.mode() == v1.RunRelease
	for i := range m.st.Hooks {
		if h := &m.st.Hooks[i]; h.Stage == v1.StagePre && !hookSucceeded(h) {
			good = false
		}
	}
	for i := range m.st.Snapshots {
		good = good && m.st.Snapshots[i].CutBeforeRelease
	}
	switch {
	case p == v1.ExecuteOnSuccess && !good:
		return "executionPolicy OnSuccess: a hook failed or a snapshot was not cut"
	case p == v1.ExecuteOnFailure && good:
		return "executionPolicy OnFailure: nothing failed"
	}
	return ""
}

func (m *machine) giveUp(s step) {
	last := "it was not tried: no pod was found"
	for i := range s.status.Targets {
		t := &s.status.Targets[i]
		t.NextAttemptTime = nil
		if t.Claim != nil {
			m.record(s, t, Outcome{Reason: v1.ReasonInterrupted, EndUnknown: true, Message: "not waited for: the release deadline is over"})
			t.NextAttemptTime = nil
		}
		if !targetSucceeded(t) && t.Reason != "" {
			last = fmt.Sprintf("the last attempt in %s/%s ended with %s: %s", t.Namespace, t.Pod, t.Reason, t.Message)
		}
	}
	m.hookCondition(s.status, metav1.ConditionFalse, v1.ReasonGivenUp,
		fmt.Sprintf("given up after %d s; %s", m.st.Plan.ReleaseDeadlineSeconds, last))
}

// endPass: every post hook of this pass has ended. Another pass follows once a pre hook whose end is unknown can no longer be running.
func (m *machine) endPass() {
	m.changed = true
	if m.st.ReleasedTime == nil {
		m.st.ReleasedTime = m.now()
		if m.st.QuiescedTime != nil {
			m.st.QuiescedFor = m.st.ReleasedTime.Sub(m.st.QuiescedTime.Time).Round(time.Millisecond).String()
		}
	}
	if until := m.unknownUntil(); until.After(m.st.Release.PassTime.Time) && len(m.st.Plan.PostHooks) > 0 {
		next := metav1.NewMicroTime(until)
		m.st.Release.NextPassTime = &next
		m.st.Message = "the end of a pre hook is unknown: the post hooks run once more at " + until.UTC().Format(time.RFC3339)
		return
	}
	m.endRelease()
}

// unknownUntil is when no command whose end is unknown can still be running, and a grace is over; zero if there is none.
func (m *machine) unknownUntil() time.Time {
	var until time.Time
	for i := range m.st.Hooks {
		for j := range m.st.Hooks[i].Targets {
			if u := m.st.Hooks[i].Targets[j].UnknownUntil; u != nil && u.Add(ReleaseGrace).After(until) {
				until = u.Add(ReleaseGrace)
			}
		}
	}
	return until
}

// beginPass runs the post hooks once more, in the targets of the pass before that still exist.
func (m *machine) beginPass() {
	var entries []v1.HookStatus
	for _, s := range m.postSteps() {
		e := v1.HookStatus{Stage: v1.StagePost, Name: s.plan.Name, Pass: m.st.Release.Pass + 1}
		for _, t := range s.status.Targets {
			if !t.Gone {
				e.Targets = append(e.Targets, v1.TargetStatus{Namespace: t.Namespace, Pod: t.Pod, PodUID: t.PodUID, Container: t.Container,
					ContainerID: t.ContainerID, RestartCount: t.RestartCount})
			}
		}
		entries = append(entries, e)
	}
	m.nextPass(entries)
}

func (m *machine) nextPass(entries []v1.HookStatus) {
	m.changed = true
	m.st.Release.Pass++
	m.st.Release.PassTime = *m.now()
	m.st.Release.Looked = false
	m.st.Release.NextPassTime = nil
	// The record stays bounded however often a release is repeated: the first pass and the last two are kept.
	m.st.Hooks = slices.DeleteFunc(m.st.Hooks, func(h v1.HookStatus) bool {
		return h.Stage == v1.StagePost && h.Pass > 1 && h.Pass < m.st.Release.Pass-1
	})
	m.st.Hooks = append(m.st.Hooks, entries...)
}

// releaseRequest is the value of the release annotation if it was not acted on yet.
func (m *machine) releaseRequest() string {
	v := m.Run.Annotations[v1.AnnotationRelease]
	if m.st.Release != nil && m.st.Release.Requested == v {
		return ""
	}
	return v
}

// restartRelease begins a pass with the schedule's current post hooks: the emergency exit while a post hook fails.
func (m *machine) restartRelease(request string) {
	for _, s := range m.postSteps() {
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
		entries = append(entries, v1.HookStatus{Stage: v1.StagePost, Name: m.st.Plan.PostHooks[i].Name, Pass: m.st.Release.Pass + 1})
	}
	m.nextPass(entries)
	m.st.Release.Requested = request
	m.st.Release.BestEffort = false
}

// replacePostHooks takes the schedule's current post hooks into the plan, if there are any that can be planned.
func (m *machine) replacePostHooks() {
	if m.Schedule == nil {
		return
	}
	_, post, err := PlanHooks(m.Schedule)
	if err != nil {
		return
	}
	m.st.Plan.PostHooks = post
	m.st.Plan.ServiceAccountName = m.Schedule.Spec.ServiceAccountName
	if m.st.Release != nil {
		return
	}
	// The release has not begun: its first pass runs the new hooks; their pods are found by the look.
	m.st.Hooks = slices.DeleteFunc(m.st.Hooks, func(h v1.HookStatus) bool { return h.Stage == v1.StagePost })
	for i := range post {
		m.st.Hooks = append(m.st.Hooks, v1.HookStatus{Stage: v1.StagePost, Name: post[i].Name, Pass: 1})
	}
}

// reserveRelease owns pool slots for the first post hook ahead of the cut.
func (m *machine) reserveRelease() {
	if len(m.effects) > 0 {
		return
	}
	for i := range m.st.Hooks {
		h := &m.st.Hooks[i]
		if h.Stage != v1.StagePost {
			continue
		}
		s := step{status: h, plan: &m.st.Plan.PostHooks[0]}
		for j := range h.Targets {
			if key := s.key(&h.Targets[j], 1); m.World.Exec[key].State == ExecUnknown {
				m.act(ReserveExec{Key: key})
			}
		}
		return
	}
}

// merge what matches now into the targets of this pass.
func (m *machine) merge() {
	look, rel := m.World.Look, m.st.Release
	if look == nil || m.phase != v1.PhasePostHooks {
		return
	}
	first := !rel.Looked
	for _, s := range m.postSteps() {
		if hookEnded(s.status) || int(s.index) >= len(look.Post) {
			continue
		}
		live := 0
		for i := range s.status.Targets {
			t := &s.status.Targets[i]
			if first && t.Claim == nil && !look.Existing[t.PodUID] && !t.Gone && !targetSucceeded(t) {
				t.Gone, t.Reason, t.Message, t.NextAttemptTime = true, v1.ReasonPodNotFound, "the pod no longer exists", nil
				m.changed = true
			}
			if !t.Gone {
				live++
			}
		}
		if !first && live > 0 && m.shortage(s) == 0 {
			continue
		}
		for _, n := range look.Post[s.index].Targets {
			if n.Terminating || has(s.status.Targets, n.UID, n.Container) || (s.plan.TargetPolicy == v1.TargetOne && live > 0) {
				continue
			}
			joined := newTarget(n)
			joined.Joined = true
			s.status.Targets = append(s.status.Targets, joined)
			live++
			m.changed = true
		}
	}
	if first {
		rel.Looked = true
		m.changed = true
		if rel.Pass == 1 {
			m.compareTargets(look)
		}
	}
}

func has(list []v1.TargetStatus, uid types.UID, container string) bool {
	return slices.ContainsFunc(list, func(t v1.TargetStatus) bool { return t.PodUID == uid && t.Container == container })
}

func lookDue(r *v1.SnapshotRun) bool {
	rel := r.Status.Release
	if rel == nil || r.Status.Plan == nil {
		return false
	}
	if rel.NextPassTime != nil {
		return false
	}
	if !rel.Looked {
		return true
	}
	place := 0
	for i := range r.Status.Hooks {
		h := &r.Status.Hooks[i]
		if h.Stage != v1.StagePost || h.Pass != rel.Pass {
			continue
		}
		p := &r.Status.Plan.PostHooks[place]
		place++
		if hookEnded(h) {
			continue
		}
		if shortage(&r.Status, h, p) > 0 || !slices.ContainsFunc(h.Targets, func(t v1.TargetStatus) bool { return !t.Gone }) {
			return true
		}
	}
	return false
}
