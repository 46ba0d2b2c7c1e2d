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
	// A look that fails holds the later hooks up for a while, and the end until the deadline.
	looked, over := rel.Looked || !m.Now.Before(rel.PassTime.Add(LookPatience)), rel.Looked || !m.Now.Before(deadline)
	ended, blocked := true, false
	for _, s := range m.postSteps() {
		if hookEnded(s.status) {
			continue
		}
		if blocked = blocked || (s.index > 0 && !looked && !over); blocked {
			m.goOn(s)
		} else {
			blocked = !m.runPostHook(s, deadline)
		}
		ended = ended && hookEnded(s.status)
	}
	// A look that fails until the deadline must not keep the run for ever.
	if ended && over {
		m.endPass()
		return
	}
	m.sayWaits()
	if !rel.Looked && !m.changed && m.World.Look == nil {
		m.wakeAt(m.Now.Add(LookInterval)) // the look failed: again
	}
}

// goOn with what a later hook has begun, although an earlier one has to be tried, or pods to be looked up, first. No look is taken as long as
// an attempt is claimed and not started.
func (m *machine) goOn(s step) {
	for i := range s.status.Targets {
		if t := &s.status.Targets[i]; t.Claim != nil {
			m.advanceClaimed(s, t)
		}
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
		if len(s.status.Targets) > 0 && !slices.ContainsFunc(s.status.Targets, func(t v1.TargetStatus) bool { return !targetSucceeded(&t) }) {
			m.conclude(s) // only the look is missing
		} else {
			m.giveUp(s)
		}
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
func (m *machine) shortage(s step) int {
	if m.st.QuiescedTime == nil || s.plan.SkipIfNoSelectorFound || s.plan.TargetPolicy == v1.TargetOne {
		return 0
	}
	n := 0
	for i := range s.status.Targets {
		switch t := &s.status.Targets[i]; {
		case t.Gone:
			n++
		case t.Joined:
			n--
		}
	}
	return max(0, n)
}

// awaitReplacement of a pod for a while. If none comes, the hook has failed: what the pod used may be frozen when it comes back.
func (m *machine) awaitReplacement(s step) {
	var gone []string
	for i := range s.status.Targets {
		if t := &s.status.Targets[i]; t.Gone {
			gone = append(gone, t.Namespace+"/"+t.Pod)
		}
	}
	if !m.due(m.st.Release.PassTime.Add(ReplacementWait)) {
		m.wakeAt(m.Now.Add(LookInterval))
		m.waits = append(m.waits, fmt.Sprintf("post hook %s waits for a pod in the place of %s, which went away while it may have been quiesced", s.plan.Name, join(gone)))
		return
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
		m.waits = append(m.waits, fmt.Sprintf("waiting to run post hook %s: %s", s.plan.Name, none))
	}
	return true
}

// sayWaits records what the post hooks wait for, all of them at once: one after another would change the record for ever. Without a look
// the words may be others, and the record stays.
func (m *machine) sayWaits() {
	if len(m.waits) == 0 || m.World.Look == nil {
		return
	}
	if message := shorten(join(m.waits)); m.st.Message != message {
		m.changed = true
		m.st.Message = message
	}
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
	if !m.st.Release.Looked {
		last = "the pods could not be looked up"
	}
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

// reserveRelease owns pool slots for the first post hook ahead of the cut.
func (m *machine) reserveRelease() {
	if len(m.effects) > 0 {
		return
	}
	steps := m.steps(v1.StagePost, 1, m.st.Plan.PostHooks)
	if len(steps) == 0 {
		return
	}
	first := steps[0]
	for i := range first.status.Targets {
		if key := first.key(&first.status.Targets[i], 1); m.World.Exec[key].State == ExecUnknown {
			m.act(ReserveExec{Key: key})
		}
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
		var back []v1.TargetStatus
		if first {
			back = m.takeBack(s, look)
		}
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
			joined.Joined = !has(back, n.UID, n.Container)
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

// takeBack removes targets that counted as gone from the beginning of the pass and whose pods exist, and returns them: those that match now come
// back as what they were.
func (m *machine) takeBack(s step, look *Look) []v1.TargetStatus {
	var back, rest []v1.TargetStatus
	for _, t := range s.status.Targets {
		if t.Gone && t.Attempts == 0 && look.Existing[t.PodUID] {
			back = append(back, t)
			m.changed = true
			continue
		}
		rest = append(rest, t)
	}
	s.status.Targets = rest
	return back
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
	m := &machine{Input: Input{Run: r}, st: &r.Status}
	for _, s := range m.postSteps() {
		if hookEnded(s.status) {
			continue
		}
		if m.shortage(s) > 0 || !slices.ContainsFunc(s.status.Targets, func(t v1.TargetStatus) bool { return !t.Gone }) {
			return true
		}
	}
	return false
}
