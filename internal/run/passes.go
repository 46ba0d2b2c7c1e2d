// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// endPass: every post hook of this pass has ended. Another pass follows once a pre hook whose end is unknown can no longer be running.
func (m *machine) endPass() {
	m.changed = true
	if m.st.ReleasedTime == nil {
		if !m.st.Release.Looked && m.st.Release.Pass == 1 {
			m.crash("the pods could not be looked up after the release")
		}
		m.st.ReleasedTime = m.now()
		if m.st.QuiescedTime != nil {
			m.st.QuiescedFor = m.st.ReleasedTime.Sub(m.st.QuiescedTime.Time).Round(time.Millisecond).String()
		}
	}
	if until := unknownUntil(m.st, v1.StagePre); until.After(m.st.Release.PassTime.Time) && len(m.st.Plan.PostHooks) > 0 {
		next := metav1.NewMicroTime(until)
		m.st.Release.NextPassTime = &next
		m.st.Message = "the end of a pre hook is unknown: the post hooks run once more at " + until.UTC().Format(time.RFC3339)
		return
	}
	m.endRelease()
}

// unknownUntil is when no command of a stage whose end is unknown can still be running, and a grace is over; zero if there is none.
func unknownUntil(st *v1.SnapshotRunStatus, stage v1.HookStage) time.Time {
	var until *metav1.MicroTime
	if stage == v1.StagePost && st.Release != nil {
		until = st.Release.UnknownUntil
	}
	for i := range st.Hooks {
		if st.Hooks[i].Stage != stage {
			continue
		}
		for j := range st.Hooks[i].Targets {
			until = latest(until, st.Hooks[i].Targets[j].UnknownUntil)
		}
	}
	if until == nil {
		return time.Time{}
	}
	return until.Add(ReleaseGrace)
}

// latest of two times; nil is before every other.
func latest(a, b *metav1.MicroTime) *metav1.MicroTime {
	if a == nil || (b != nil && a.Before(b)) {
		return b
	}
	return a
}

// lingers until then: a post hook whose end is unknown may still be running. It does this run no harm, and would release an application that
// another run has quiesced. So the run keeps its lock.
func lingers(r *v1.SnapshotRun, st *v1.SnapshotRunStatus) time.Time {
	if ModeOf(r) == v1.RunRelease { // the emergency exit neither waits nor makes others wait
		return time.Time{}
	}
	return unknownUntil(st, v1.StagePost)
}

// Lingers reports whether a run that has released its application must keep its lock for now.
func Lingers(r *v1.SnapshotRun, now time.Time) bool {
	return phaseOf(r) == v1.PhaseAwaitingReady && now.Before(lingers(r, &r.Status))
}

// beginPass runs the post hooks once more, in the targets of the pass before that still exist. Pods that went away and have none in their
// place are still waited for.
func (m *machine) beginPass() {
	var entries []v1.HookStatus
	for _, s := range m.postSteps() {
		e := v1.HookStatus{Stage: v1.StagePost, Name: s.plan.Name, Pass: m.st.Release.Pass + 1, Targets: m.missing(s)}
		for i := range s.status.Targets {
			if t := &s.status.Targets[i]; !t.Gone {
				e.Targets = append(e.Targets, afresh(t))
			}
		}
		entries = append(entries, e)
	}
	m.nextPass(entries)
}

// missing are the pods that went away and have none in their place, as targets of another pass.
func (m *machine) missing(s step) []v1.TargetStatus {
	var out []v1.TargetStatus
	short := m.shortage(s)
	for i := range s.status.Targets {
		if t := &s.status.Targets[i]; t.Gone && len(out) < short {
			out = append(out, away(t))
		}
	}
	return out
}

// afresh is a target in which nothing was tried yet.
func afresh(t *v1.TargetStatus) v1.TargetStatus {
	return v1.TargetStatus{Namespace: t.Namespace, Pod: t.Pod, PodUID: t.PodUID, Container: t.Container, ContainerID: t.ContainerID, RestartCount: t.RestartCount}
}

// away is a target whose pod counts as gone unless the look finds it.
func away(t *v1.TargetStatus) v1.TargetStatus {
	a := afresh(t)
	a.Gone, a.Reason, a.Message = true, v1.ReasonPodNotFound, "the pod no longer exists"
	return a
}

func (m *machine) nextPass(entries []v1.HookStatus) {
	m.changed = true
	m.st.Release.Pass++
	m.st.Release.PassTime = *m.now()
	m.st.Release.Looked = false
	m.st.Release.NextPassTime = nil
	// The record stays bounded however often a release is repeated: the first pass and the last two are kept.
	forgotten := func(h v1.HookStatus) bool {
		return h.Stage == v1.StagePost && h.Pass > 1 && h.Pass < m.st.Release.Pass-1
	}
	for i := range m.st.Hooks {
		if h := &m.st.Hooks[i]; forgotten(*h) {
			for j := range h.Targets {
				m.st.Release.UnknownUntil = latest(m.st.Release.UnknownUntil, h.Targets[j].UnknownUntil)
			}
		}
	}
	m.st.Hooks = slices.DeleteFunc(m.st.Hooks, forgotten)
	m.st.Hooks = append(m.st.Hooks, entries...)
}
