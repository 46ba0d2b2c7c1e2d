// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// PhaseMeans says what a run does in a phase.
func PhaseMeans(r *v1.SnapshotRun) string {
	mode := run.ModeOf(r)
	switch r.Status.Phase {
	case "", v1.PhasePending:
		if r.Status.Message != "" {
			return r.Status.Message
		}
		return "looks for claims and pods"
	case v1.PhasePlanned:
		return fmt.Sprintf("%s and %s planned; pods, containers and rights are as needed", Plural(len(r.Status.Snapshots), "snapshot"), Plural(len(r.Status.Hooks), "hook"))
	case v1.PhasePreHooks:
		return "quiesces the application"
	case v1.PhaseSnapshotting:
		return "creates the snapshots and waits for their cut"
	case v1.PhasePostHooks:
		if r.Status.Release != nil && r.Status.Release.Reason != "" && mode != v1.RunRelease {
			return strings.TrimSuffix(fmt.Sprintf("releases the application early (%s): %s", r.Status.Release.Reason, r.Status.Message), ": ")
		}
		return "releases the application"
	case v1.PhaseAwaitingReady:
		if r.Status.QuiescedFor != "" {
			return "released after " + r.Status.QuiescedFor + "; waits until the snapshots can be restored from"
		}
		return "waits until the snapshots can be restored from"
	case v1.PhaseCompleted:
		return Ended(r)
	}
	return string(r.Status.Phase)
}

// Ended is how a completed run ended.
func Ended(r *v1.SnapshotRun) string {
	return strings.TrimSuffix(fmt.Sprintf("%s: %s", r.Status.Result, r.Status.Message), ": ")
}

// Plural of a word that takes an s.
func Plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// Counts of a run's snapshots.
func Counts(r *v1.SnapshotRun) (planned, cut, ready, failed int) {
	for i := range r.Status.Snapshots {
		switch r.Status.Snapshots[i].State {
		case v1.SnapshotReady:
			ready++
			cut++
		case v1.SnapshotCut:
			cut++
		case v1.SnapshotFailed:
			failed++
		case v1.SnapshotPending:
		}
	}
	return len(r.Status.Snapshots), cut, ready, failed
}

// QuiescedFor is how long a run has had its application quiesced, or had; "" if it never did.
func QuiescedFor(r *v1.SnapshotRun, now time.Time) string {
	st := &r.Status
	switch {
	case st.QuiescedTime == nil:
		return ""
	case st.ReleasedTime != nil:
		return Took(st.ReleasedTime.Sub(st.QuiescedTime.Time))
	}
	return Took(now.Sub(st.QuiescedTime.Time))
}

// HookEnd is how a hook ended; "" while it has not.
func HookEnd(h *v1.HookStatus) string {
	c := meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded)
	if c == nil {
		return ""
	}
	if c.Status == metav1.ConditionTrue && c.Reason == v1.ReasonHookSkipped {
		return strings.TrimSuffix("skipped: "+c.Message, ": ")
	}
	return c.Reason
}

// HookFailed reports whether a hook has ended without success.
func HookFailed(h *v1.HookStatus) bool {
	return meta.IsStatusConditionFalse(h.Conditions, v1.ConditionSucceeded)
}

// TargetEnd is how a hook went in one container.
func TargetEnd(t *v1.TargetStatus) string {
	var parts []string
	switch {
	case t.Reason != "":
		parts = append(parts, t.Reason)
	case t.HeldTime != nil:
		parts = append(parts, v1.ReasonHeld)
	case t.Claim != nil:
		parts = append(parts, "running")
	case t.Gone:
		parts = append(parts, "the pod is gone")
	default:
		parts = append(parts, "waiting")
	}
	if t.ExitCode != nil && *t.ExitCode != 0 {
		parts = append(parts, fmt.Sprintf("exit code %d", *t.ExitCode))
	}
	if t.StartTime != nil && t.EndTime != nil {
		parts = append(parts, "after "+Took(t.EndTime.Sub(t.StartTime.Time)))
	}
	if t.Attempts > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", t.Attempts))
	}
	if t.Joined {
		parts = append(parts, "a pod that came later")
	}
	text := strings.Join(parts, ", ")
	if t.Message != "" && t.Reason != v1.ReasonHookCompleted {
		text += ": " + Short(t.Message, 300)
	}
	return text
}

// Where a hook ran.
func Where(t *v1.TargetStatus, namespace string) string {
	where := t.Pod + "/" + t.Container
	if t.Namespace != namespace {
		where = t.Namespace + "/" + where
	}
	return where
}

// Progress is one line about what a run waits for.
func Progress(r *v1.SnapshotRun, now time.Time) string {
	planned, cut, ready, failed := Counts(r)
	text := ""
	switch r.Status.Phase {
	case v1.PhaseSnapshotting:
		text = fmt.Sprintf("%d of %d cut", cut, planned)
	case v1.PhaseAwaitingReady:
		text = fmt.Sprintf("%d of %d ready", ready, planned)
	case v1.PhasePreHooks, v1.PhasePostHooks:
		text = hookAtWork(r)
	default:
		text = PhaseMeans(r)
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	if q := QuiescedFor(r, now); q != "" && r.Status.ReleasedTime == nil {
		text += ", quiesced for " + q
	}
	phase := r.Status.Phase
	if phase == "" {
		phase = v1.PhasePending
	}
	return strings.TrimSpace(string(phase) + "  " + text)
}

func hookAtWork(r *v1.SnapshotRun) string {
	want := v1.StagePre
	if r.Status.Phase == v1.PhasePostHooks {
		want = v1.StagePost
	}
	for i := range r.Status.Hooks {
		h := &r.Status.Hooks[i]
		if h.Stage != want || HookEnd(h) != "" {
			continue
		}
		done, attempts := 0, int32(0)
		for j := range h.Targets {
			if t := &h.Targets[j]; t.Claim == nil && t.Reason != "" && t.NextAttemptTime == nil {
				done++
			}
			attempts = max(attempts, h.Targets[j].Attempts)
		}
		text := fmt.Sprintf("hook %s, %d of %s done", h.Name, done, Plural(len(h.Targets), "container"))
		if attempts > 1 {
			text += fmt.Sprintf(", attempt %d", attempts)
		}
		return text
	}
	return PhaseMeans(r)
}
