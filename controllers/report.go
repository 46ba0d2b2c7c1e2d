// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"unicode/utf8"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
	// maxNote is how many bytes the API server lets an event's note have.
	maxNote = 1024
)

// Events whose kind, reason, action and objects are the same become one with a count, and all notes but the first are lost. So the related
// object or the action must tell apart what has something of its own to say.

func note(format string, args ...any) string {
	s := fmt.Sprintf(format, args...)
	if len(s) <= maxNote {
		return s
	}
	cut := maxNote - 3
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// event on a run.
func (r *RunReconciler) event(o *v1.SnapshotRun, typ, reason, action, format string, args ...any) {
	r.Recorder.Eventf(o, nil, typ, reason, action, "%s", note(format, args...))
}

// eventAbout a snapshot, on its run.
func (r *RunReconciler) eventAbout(s *snapshotv1.VolumeSnapshot, o *v1.SnapshotRun, reason, action, format string, args ...any) {
	r.Recorder.Eventf(o, s, warning, reason, action, "%s", note(format, args...))
}

// news of a run: what its schedule's events tell. A schedule that is gone gets none.
type news struct {
	r        *RunReconciler
	schedule *v1.SnapshotSchedule
	run      *v1.SnapshotRun
}

func (n news) event(typ, reason, action, format string, args ...any) {
	if n.schedule != nil {
		n.r.Recorder.Eventf(n.schedule, n.run, typ, reason, action, "%s", note("run %s: %s", n.run.Name, fmt.Sprintf(format, args...)))
	}
}

// report tells the world what a persisted step changed: log, events, metrics. It is only called after the write, so what it says is so, and
// is said once.
func (r *RunReconciler) report(ctx context.Context, before, after *v1.SnapshotRun, mem *runMemory) {
	l := log.FromContext(ctx).WithValues("schedule", after.Spec.ScheduleName)
	schedule := r.knownSchedule(ctx, after)
	n := news{r, schedule, after}
	if before.Status.Phase != after.Status.Phase {
		l.Info("Run entered a phase", "phase", after.Status.Phase, "result", after.Status.Result, "message", after.Status.Message)
	}
	if !waitsFor(before) && waitsFor(after) {
		r.event(after, normal, v1.EventWaiting, "Lock", "%s", after.Status.Message)
	}
	if before.Status.StartTime == nil && after.Status.StartTime != nil {
		r.reportStart(n)
	}
	r.reportHooks(before, n)
	if quiesced(before) != quiesced(after) {
		c := meta.FindStatusCondition(after.Status.Conditions, v1.ConditionMayBeQuiesced)
		if c != nil && c.Reason == v1.ReasonReleased {
			l.Info("Application was released", "quiescedFor", after.Status.QuiescedFor)
		}
	}
	if givenUp(after) && !givenUp(before) {
		c := meta.FindStatusCondition(after.Status.Conditions, v1.ConditionMayBeQuiesced)
		r.event(after, warning, v1.EventReleaseGivenUp, "Release", "%s", c.Message)
		n.event(warning, v1.EventReleaseGivenUp, "Release", "%s", c.Message)
		l.Error(nil, "The release was given up; the application may still be quiesced", "reason", c.Message)
	}
	if before.Status.Phase != v1.PhaseCompleted && after.Status.Phase == v1.PhaseCompleted {
		r.reportCompletion(n)
	}
	if schedule != nil {
		measure(before, after, schedule, mem.began, r.Clock.Now())
	}
}

// reportUnanswered reports a write that was answered with an error and was done all the same. Nobody but this process writes a run's status.
func (r *RunReconciler) reportUnanswered(ctx context.Context, mem *runMemory) error {
	var now v1.SnapshotRun
	before := mem.unanswered
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(before), &now); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading SnapshotRun %s/%s after a write that failed: %w", before.Namespace, before.Name, err)
	}
	mem.unanswered = nil
	if now.UID != before.UID {
		return nil
	}
	mem.latest = &now
	if !equality.Semantic.DeepEqual(now.Status, before.Status) {
		r.report(ctx, before, &now, mem)
	}
	return nil
}

// knownSchedule of a run as the cache has it; nil: it is gone, or so new that nobody knows it yet.
func (r *RunReconciler) knownSchedule(ctx context.Context, o *v1.SnapshotRun) *v1.SnapshotSchedule {
	var s v1.SnapshotSchedule
	if err := r.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ScheduleName}, &s); err != nil {
		if !apierrors.IsNotFound(err) {
			log.FromContext(ctx).Error(err, "Reading the schedule of a run failed; its events and metrics are left out", "schedule", o.Spec.ScheduleName)
		}
		return nil
	}
	return &s
}

func quiesced(o *v1.SnapshotRun) bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, v1.ConditionMayBeQuiesced)
}

func givenUp(o *v1.SnapshotRun) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced)
	return c != nil && c.Reason == v1.ReasonGivenUp
}

// hooked: the run has planned hooks.
func hooked(o *v1.SnapshotRun) bool { return len(o.Status.Hooks) > 0 }

func (r *RunReconciler) reportStart(n news) {
	words := fmt.Sprintf("planned %d snapshots and %d hooks", len(n.run.Status.Snapshots), len(n.run.Status.Hooks))
	if hooked(n.run) {
		r.event(n.run, normal, v1.EventStarted, "Run", "%s", words)
	}
	if n.run.Status.Phase != v1.PhaseCompleted { // a run that is over at once is told of once
		n.event(normal, v1.EventRunStarted, "Run", "%s%s", words, inMode(n.run))
	}
}

// inMode says so if a run is none that takes snapshots.
func inMode(o *v1.SnapshotRun) string {
	if mode := run.ModeOf(o); mode != v1.RunSnapshot {
		return fmt.Sprintf(" (mode %s)", mode)
	}
	return ""
}

// reportHooks sends one event for every hook that has failed: with its reason; what its command said is in the run alone.
func (r *RunReconciler) reportHooks(before *v1.SnapshotRun, n news) {
	failed := map[string]bool{}
	key := func(h *v1.HookStatus) string { return fmt.Sprint(h.Stage, h.Pass, h.Name) }
	for i := range before.Status.Hooks {
		h := &before.Status.Hooks[i]
		failed[key(h)] = meta.IsStatusConditionFalse(h.Conditions, v1.ConditionSucceeded)
	}
	for i := range n.run.Status.Hooks {
		h := &n.run.Status.Hooks[i]
		c := meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded)
		if c == nil || c.Status != "False" || failed[key(h)] || c.Reason == v1.ReasonHookSkipped {
			continue
		}
		reason, stage := v1.EventPreHookFailed, "pre"
		if h.Stage == v1.StagePost {
			reason, stage = v1.EventPostHookFailed, "post"
		}
		// The action holds the name: two hooks of one run are two events.
		action := fmt.Sprintf("%sHook:%s", h.Stage, h.Name)
		r.event(n.run, warning, reason, action, "hook %s failed: %s", h.Name, c.Message)
		n.event(warning, v1.EventHookFailed, action, "%s hook %s failed: %s", stage, h.Name, c.Message)
	}
}

func (r *RunReconciler) reportCompletion(n news) {
	type telling struct{ typ, onRun, onSchedule string }
	t := map[v1.RunResult]telling{
		v1.ResultSucceeded:       {normal, v1.EventSucceeded, v1.EventRunSucceeded},
		v1.ResultSkipped:         {normal, v1.EventSkipped, v1.EventRunSkipped},
		v1.ResultPartiallyFailed: {warning, v1.EventPartiallyFailed, v1.EventRunPartiallyFailed},
		v1.ResultFailed:          {warning, v1.EventFailed, v1.EventRunFailed},
	}[n.run.Status.Result]
	if n.run.Status.Result != v1.ResultSucceeded || hooked(n.run) { // a slot without hooks that went well costs one event
		r.event(n.run, t.typ, t.onRun, "Run", "%s", n.run.Status.Message)
	}
	n.event(t.typ, t.onSchedule, "Run", "%s%s", n.run.Status.Message, inMode(n.run))
}
