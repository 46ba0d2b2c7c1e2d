// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	// maxTimeout is the longest timeout that a schedule can ask for, in seconds.
	maxTimeout = 14400
	// maxBackoffLimit is how often a schedule can ask for a hook to be repeated.
	maxBackoffLimit = 100
	// maxReleaseDeadline bounds a release pass, whatever the operator's flag says, in seconds: 30 days.
	maxReleaseDeadline = 30 * 24 * 3600
	// maxAhead is how far ahead of the clock a time in a record may be: more than the longest time that a record waits for.
	maxAhead = 24 * time.Hour
	// maxRecordBytes is the most that the words of a record may have. The API server stores about 1.5 MiB.
	maxRecordBytes = 1 << 20
)

// unsound says why the record of a run is none that this package writes; empty: it may be one. Only where others than the operator may
// write status are there such records. They are not carried on: Decide counts on what is checked here. A record of another version is only
// released, by what is there.
func unsound(r *v1.SnapshotRun) string {
	st := &r.Status
	phase := phaseOf(r)
	switch {
	case phase == v1.PhasePending: // whatever is there is replaced
		return ""
	case phase == v1.PhaseCompleted:
		if st.QuiescedTime != nil && st.ReleasedTime == nil {
			return "it is completed, and what it quiesced was not released"
		}
		return ""
	case st.Plan == nil:
		return "it has no plan"
	case phase == v1.PhaseSnapshotting && st.SnapshottingTime == nil:
		return "it has no snapshottingTime"
	case phase == v1.PhasePostHooks && st.Release == nil:
		return "it has no release"
	case st.Plan.Version != JournalVersion:
		return ""
	case !slices.Contains(phases, phase):
		return "there is no such phase"
	case phase == v1.PhaseAwaitingReady && hasPlannedHooks(st) && (st.Release == nil || st.ReleasedTime == nil):
		return "it awaits snapshots, and its release is not over"
	case st.Release != nil && st.Release.Pass < 1:
		return "it has no pass"
	}
	if why := unsoundPlan(st.Plan); why != "" {
		return why
	}
	if why := unsoundEntries(r); why != "" {
		return why
	}
	if g := st.GroupSnapshot; g != nil && (len(validation.IsDNS1123Subdomain(g.Name)) > 0 || g.ClassName == "") {
		return "its group snapshot has no valid name or class"
	}
	for i := range st.Snapshots {
		if name := st.Snapshots[i].Name; (name != "" || st.GroupSnapshot == nil) && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Sprintf("a snapshot cannot be named %q", clean(name, 64))
		}
	}
	return ""
}

// phases that this version knows.
var phases = []v1.RunPhase{v1.PhasePending, v1.PhasePlanned, v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks, v1.PhaseAwaitingReady, v1.PhaseCompleted}

func hasPlannedHooks(st *v1.SnapshotRunStatus) bool {
	return len(st.Plan.PreHooks)+len(st.Plan.PostHooks) > 0
}

func unsoundPlan(p *v1.RunPlan) string {
	if p.SnapshotTimeoutSeconds < 1 || p.SnapshotTimeoutSeconds > maxTimeout || p.MaxQuiesceSeconds < 0 ||
		p.ReleaseDeadlineSeconds < 0 || p.ReleaseDeadlineSeconds > maxReleaseDeadline {
		return "a timeout of its plan is out of range"
	}
	for _, list := range [][]v1.PlannedHook{p.PreHooks, p.PostHooks} {
		for i := range list {
			h := &list[i]
			_, err := metav1.LabelSelectorAsSelector(&h.PodSelector)
			held := h.Mode == v1.ModeHold
			switch {
			case len(validation.IsDNS1123Label(h.Namespace)) > 0, err != nil:
				return fmt.Sprintf("hook %s has no valid namespace or podSelector", clean(h.Name, 64))
			case len(h.Command) == 0 || h.Command[0] == "":
				return fmt.Sprintf("hook %s has no command", clean(h.Name, 64))
			case h.TimeoutSeconds < 1 || h.TimeoutSeconds > maxTimeout, held && (h.ReleaseTimeoutSeconds < 1 || h.ReleaseTimeoutSeconds > maxTimeout):
				return fmt.Sprintf("a timeout of hook %s is out of range", clean(h.Name, 64))
			case h.BackoffLimit != nil && (*h.BackoffLimit < 0 || *h.BackoffLimit > maxBackoffLimit):
				return fmt.Sprintf("the backoffLimit of hook %s is out of range", clean(h.Name, 64))
			case held && (h.ExpectOutput == "" || h.ExpectReleaseOutput == ""):
				return fmt.Sprintf("hook %s is held and expects nothing", clean(h.Name, 64))
			}
		}
	}
	return ""
}

// unsoundEntries: every planned hook has one entry, in its place, so that none can be taken for done that never ran.
func unsoundEntries(r *v1.SnapshotRun) string {
	st := &r.Status
	pass := int32(1)
	if st.Release != nil {
		pass = st.Release.Pass
	}
	var pre, post []string
	size := 0
	for i := range st.Hooks {
		h := &st.Hooks[i]
		switch {
		case h.Stage == v1.StagePre:
			pre = append(pre, h.Name)
		case h.Pass == pass:
			post = append(post, h.Name)
		}
		for j := range h.Targets {
			t := &h.Targets[j]
			size += len(t.Output) + len(t.Message) + len(t.ContainerID)
			if why := unsoundTarget(t); why != "" {
				return fmt.Sprintf("hook %s: %s", clean(h.Name, 64), why)
			}
		}
	}
	if size > maxRecordBytes {
		return "it is too long"
	}
	if !inPlace(pre, st.Plan.PreHooks) || !inPlace(post, st.Plan.PostHooks) {
		return "its hooks are not those of its plan"
	}
	return ""
}

func unsoundTarget(t *v1.TargetStatus) string {
	switch {
	case len(validation.IsDNS1123Label(t.Namespace)) > 0, len(validation.IsDNS1123Subdomain(t.Pod)) > 0, len(validation.IsDNS1123Label(t.Container)) > 0:
		return "a target is no container of a pod"
	case t.Attempts < 0, t.Claim != nil && t.Attempts < 1:
		return "a target has no such attempt"
	}
	return ""
}

func inPlace(entries []string, plan []v1.PlannedHook) bool {
	if len(entries) != len(plan) {
		return false
	}
	for i := range plan {
		if entries[i] != plan[i].Name {
			return false
		}
	}
	return true
}

// untimely says so if the record waits for a time that no run waits for.
func (m *machine) untimely() string {
	if !Active(m.Run) || m.st.Plan == nil || m.st.Plan.Version != JournalVersion {
		return ""
	}
	st, limit := m.st, m.Now.Add(maxAhead)
	late := func(t *metav1.MicroTime) bool { return t != nil && t.After(limit) }
	bad := late(st.QuiescedTime) || late(st.SnapshottingTime) || (st.Release != nil && (late(&st.Release.PassTime) || late(st.Release.NextPassTime) || late(st.Release.UnknownUntil)))
	for i := range st.Hooks {
		for j := range st.Hooks[i].Targets {
			t := &st.Hooks[i].Targets[j]
			bad = bad || late(t.NextAttemptTime) || late(t.UnknownUntil) || (t.Claim != nil && late(&t.Claim.Time))
		}
	}
	if bad {
		return "it waits for a time that is far ahead"
	}
	return ""
}

// distrust replaces a record that cannot be carried on. What it says was quiesced may be, and what it says was released may not be. So the
// post hooks that the schedule has now are run: they are what can be believed.
func (m *machine) distrust(why string) {
	m.changed, m.anew = true, true
	m.World.Look, m.World.Exec = nil, nil // they are of what the record said
	message := "the run's record was not written by the operator (" + why + "); nothing of it is carried on"
	m.st = &v1.SnapshotRunStatus{StartTime: m.now(), QuiescedTime: m.now()}
	var post []v1.PlannedHook
	var err error
	if m.Schedule != nil {
		_, post, err = PlanHooks(m.Schedule, m.Config.Hooks)
	}
	if m.Schedule == nil || err != nil {
		m.st.Plan = &v1.RunPlan{Version: JournalVersion, At: metav1.NewTime(NamedAt(m.Run)), SnapshotTimeoutSeconds: defaultSnapshotTimeout}
		m.st.ReleasedTime = m.now()
		m.condition(v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp,
			message+"; there is no schedule whose post hooks could be run, so look whether the application is quiesced")
		m.complete(v1.ResultFailed, v1.ReasonUnknownJournal, message)
		return
	}
	m.st.Plan = m.newPlan()
	m.st.Plan.PostHooks = post
	for i := range post {
		m.st.Hooks = append(m.st.Hooks, v1.HookStatus{Stage: v1.StagePost, Name: post[i].Name, Pass: 1})
	}
	m.release(v1.ReasonUnknownJournal, message)
}
