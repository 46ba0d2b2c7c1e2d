// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
)

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
	// maxNote is how long the API server lets an event's note be.
	maxNote = 1024
)

// event on a run and, as related object, its schedule.
func (r *RunReconciler) event(o *v1.SnapshotRun, typ, reason, action, format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	if len(note) > maxNote {
		note = note[:maxNote-3] + "..."
	}
	r.Recorder.Eventf(o, nil, typ, reason, action, "%s", note)
}

// report tells the world what a persisted step changed: log, events, metrics. It is only called after the write, so what it says is so.
func (r *RunReconciler) report(ctx context.Context, before, after *v1.SnapshotRun) {
	l := log.FromContext(ctx).WithValues("schedule", after.Spec.ScheduleName)
	if before.Status.Phase != after.Status.Phase {
		l.Info("Run entered a phase", "phase", after.Status.Phase, "result", after.Status.Result, "message", after.Status.Message)
	}
	if !waitsFor(before) && waitsFor(after) {
		r.event(after, normal, "Waiting", "Lock", "%s", after.Status.Message)
	}
	if before.Status.Plan == nil && after.Status.Plan != nil && len(after.Status.Hooks) > 0 {
		r.event(after, normal, "Started", "Run", "planned %d snapshots and %d hooks", len(after.Status.Snapshots), len(after.Status.Hooks))
	}
	r.reportHooks(before, after)
	if quiesced(before) != quiesced(after) {
		c := meta.FindStatusCondition(after.Status.Conditions, v1.ConditionMayBeQuiesced)
		if c != nil && c.Reason == v1.ReasonReleased {
			l.Info("Application was released", "quiescedFor", after.Status.QuiescedFor)
		}
	}
	if givenUp(after) && !givenUp(before) {
		c := meta.FindStatusCondition(after.Status.Conditions, v1.ConditionMayBeQuiesced)
		r.event(after, warning, "ReleaseGivenUp", "Release", "%s", c.Message)
		l.Error(nil, "The release was given up; the application may still be quiesced", "reason", c.Message)
	}
	if before.Status.Phase != v1.PhaseCompleted && after.Status.Phase == v1.PhaseCompleted {
		r.reportCompletion(after)
	}
}

func quiesced(o *v1.SnapshotRun) bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, v1.ConditionMayBeQuiesced)
}

func givenUp(o *v1.SnapshotRun) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced)
	return c != nil && c.Reason == v1.ReasonGivenUp
}

// reportHooks sends one event for every hook that has failed: with its reason, and the last words of its command.
func (r *RunReconciler) reportHooks(before, after *v1.SnapshotRun) {
	failed := map[string]bool{}
	key := func(h *v1.HookStatus) string { return fmt.Sprint(h.Stage, h.Pass, h.Name) }
	for i := range before.Status.Hooks {
		h := &before.Status.Hooks[i]
		failed[key(h)] = meta.IsStatusConditionFalse(h.Conditions, v1.ConditionSucceeded)
	}
	for i := range after.Status.Hooks {
		h := &after.Status.Hooks[i]
		c := meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded)
		if c == nil || c.Status != "False" || failed[key(h)] || c.Reason == v1.ReasonHookSkipped {
			continue
		}
		r.event(after, warning, string(h.Stage)+"HookFailed", "Hook", "hook %s failed: %s", h.Name, c.Message)
	}
}

func (r *RunReconciler) reportCompletion(o *v1.SnapshotRun) {
	seconds := 0.0
	if o.Status.QuiescedTime != nil && o.Status.ReleasedTime != nil {
		seconds = o.Status.ReleasedTime.Sub(o.Status.QuiescedTime.Time).Seconds()
	}
	metrics.RunCompleted(o.Spec.ScheduleName, o.Namespace, string(o.Status.Result), seconds)
	for i := range o.Status.Snapshots {
		if s := &o.Status.Snapshots[i]; s.State == v1.SnapshotReady {
			metrics.SnapshotReady(o.Spec.ScheduleName, o.Namespace, s.Claim)
		}
	}
	switch o.Status.Result {
	case v1.ResultSucceeded:
		r.event(o, normal, "Succeeded", "Run", "%s", o.Status.Message)
	case v1.ResultSkipped:
		r.event(o, normal, "Skipped", "Run", "%s", o.Status.Message)
	case v1.ResultPartiallyFailed, v1.ResultFailed:
		r.event(o, warning, string(o.Status.Result), "Run", "%s", o.Status.Message)
	}
}
