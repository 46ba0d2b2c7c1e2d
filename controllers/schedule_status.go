// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

const (
	defaultHistoryLimit = 3
	// quietTime is how long a run may keep its application quiesced before the schedule's status shows it. A run that is faster is shown once,
	// when the application is free, which saves the writes in between.
	quietTime = 5 * time.Second
)

// quiet: the run has quiesced its application a moment ago and is not to be disturbed.
func (p *pass) quiet(o *v1.SnapshotRun) bool {
	if !run.Active(o) || o.Status.QuiescedTime == nil {
		return false
	}
	until := o.Status.QuiescedTime.Add(quietTime)
	if !p.now.Before(until) {
		return false
	}
	p.wakeAt(until)
	return true
}

func (p *pass) condition(typ string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&p.st.Conditions, metav1.Condition{Type: typ, Status: status, Reason: reason, Message: message,
		ObservedGeneration: p.s.Generation, LastTransitionTime: metav1.NewTime(p.now.Truncate(time.Second))})
}

// summarise what the schedule's runs say.
func (p *pass) summarise(ctx context.Context) {
	slices.SortFunc(p.runs, func(a, b v1.SnapshotRun) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	active := ""
	var newest, completed *v1.SnapshotRun
	for i := range p.runs {
		o := &p.runs[i]
		if run.ModeOf(o) != v1.RunSnapshot {
			continue
		}
		newest = o
		if o.Status.Phase == v1.PhaseCompleted {
			if completed == nil || !o.Status.CompletionTime.Before(completed.Status.CompletionTime) {
				completed = o
			}
		} else if o.Spec.Slot != nil {
			active = o.Name
		}
		if t := o.Status.SnapshottingTime; t != nil && !p.quiet(o) && (p.st.LastSnapshotTime == nil || p.st.LastSnapshotTime.Time.Before(t.Truncate(time.Second))) {
			p.st.LastSnapshotTime = ptr.To(metav1.NewTime(t.Truncate(time.Second)))
		}
		if t := o.Status.CompletionTime; o.Status.Phase == v1.PhaseCompleted && o.Status.Result == v1.ResultSucceeded && (p.st.LastSuccessTime == nil || p.st.LastSuccessTime.Time.Before(t.Truncate(time.Second))) {
			p.st.LastSuccessTime = ptr.To(metav1.NewTime(t.Truncate(time.Second)))
		}
	}
	if !p.trailing(ctx) {
		p.st.ActiveRun = active
	}
	if newest != nil && !p.quiet(newest) {
		p.st.Hooks = hooksOf(newest)
		p.leftOut(newest)
	}
	// Runs are pruned by their result: what is left is not always the newest.
	if completed != nil && (p.st.LastCompletionTime == nil || !completed.Status.CompletionTime.Time.Before(p.st.LastCompletionTime.Time)) {
		p.st.LastCompletionTime = ptr.To(metav1.NewTime(completed.Status.CompletionTime.Truncate(time.Second)))
		p.lastRun(completed)
	}
	p.newest = newest
	p.mayBeQuiesced()
}

// trailing: the active run exists, or is about to, and the cache does not show it yet.
func (p *pass) trailing(ctx context.Context) bool {
	name := p.st.ActiveRun
	if name == "" || p.knows(name) {
		return false
	}
	if name == p.announced {
		return true
	}
	o, err := p.liveRun(ctx, name)
	return o != nil || err != nil
}

// leftOut reports claims that match and cannot be taken, once for as long as they are the same.
func (p *pass) leftOut(newest *v1.SnapshotRun) {
	if newest.Status.Phase == "" || slices.Equal(p.st.ClaimsLeftOut, newest.Status.ClaimsLeftOut) {
		return
	}
	p.st.ClaimsLeftOut = newest.Status.ClaimsLeftOut
	if len(p.st.ClaimsLeftOut) > 0 {
		text := note("run %s: %s", newest.Name, strings.Join(p.st.ClaimsLeftOut, "; "))
		p.after(func() { p.Recorder.Eventf(p.s, newest, warning, v1.EventClaimSkipped, "Run", "%s", text) })
	}
}

// hooksOf a run: the last word on each hook.
func hooksOf(o *v1.SnapshotRun) []v1.ScheduleHookStatus {
	var out []v1.ScheduleHookStatus
	for i := range o.Status.Hooks {
		h := &o.Status.Hooks[i]
		e := v1.ScheduleHookStatus{Stage: h.Stage, Name: h.Name, Conditions: h.Conditions}
		if j := slices.IndexFunc(out, func(x v1.ScheduleHookStatus) bool { return x.Stage == h.Stage && x.Name == h.Name }); j >= 0 {
			out[j] = e
			continue
		}
		out = append(out, e)
	}
	return out
}

func (p *pass) lastRun(o *v1.SnapshotRun) {
	status := metav1.ConditionFalse
	switch o.Status.Result {
	case v1.ResultSucceeded:
		status = metav1.ConditionTrue
	case v1.ResultSkipped:
		status = metav1.ConditionUnknown
		if p.st.ScheduledSince != nil && len(o.Status.ClaimsLeftOut) == 0 {
			// There was nothing to take: that no run has succeeded is no fault.
			p.st.ScheduledSince = p.st.LastCompletionTime.DeepCopy()
		}
	case v1.ResultFailed, v1.ResultPartiallyFailed:
	}
	message := "run " + o.Name
	if o.Status.Message != "" {
		message += ": " + o.Status.Message
	}
	p.condition(v1.ConditionLastRunSucceeded, status, string(o.Status.Result), message)
}

// mayBeQuiesced is True while a run may have quiesced the application, and after a release that was given up until a later run's post
// hooks have succeeded.
func (p *pass) mayBeQuiesced() {
	var stuck, released *v1.SnapshotRun // by the end of their release, newest
	for i := range p.runs {
		o := &p.runs[i]
		if p.active == nil && run.Active(o) && quiesced(o) {
			p.active = o
		}
		if o.Status.ReleasedTime == nil {
			continue
		}
		later := func(x *v1.SnapshotRun) bool {
			return x == nil || x.Status.ReleasedTime.Before(o.Status.ReleasedTime)
		}
		switch {
		case givenUp(o) && later(stuck):
			stuck = o
		case provenRelease(o) && later(released):
			released = o
		}
	}
	c := meta.FindStatusCondition(p.st.Conditions, v1.ConditionMayBeQuiesced)
	fresh := stuck != nil && (released == nil || released.Status.ReleasedTime.Before(stuck.Status.ReleasedTime))
	// A run that was given up may no longer be kept; what it left is not mended by that.
	owed := c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1.ReasonGivenUp && (released == nil || released.Status.ReleasedTime.Time.Before(c.LastTransitionTime.Time))
	switch {
	case fresh:
		p.quiesceDeadline = stuck.Status.ReleasedTime.Time
	case owed:
		p.quiesceDeadline = c.LastTransitionTime.Time
	case p.active != nil:
		p.quiesceDeadline = quiesceDeadline(p.active)
	}
	switch {
	case p.active != nil:
		if !p.quiet(p.active) {
			p.condition(v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonQuiescing, "run "+p.active.Name)
		}
	case fresh:
		p.condition(v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp,
			"run "+stuck.Name+": "+meta.FindStatusCondition(stuck.Status.Conditions, v1.ConditionMayBeQuiesced).Message)
	case owed:
	case run.HasHooks(p.s) || c != nil:
		p.condition(v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonReleased, "")
	}
}

// quiesceDeadline of a run that has quiesced its application; zero if it turned out that it has not.
func quiesceDeadline(o *v1.SnapshotRun) time.Time {
	if o.Status.QuiescedTime == nil {
		return time.Time{}
	}
	return o.Status.QuiescedTime.Add(run.QuiesceLimit(o.Status.Plan))
}

// provenRelease: post hooks ran and succeeded, or, where there are none, held commands were released and said so.
func provenRelease(o *v1.SnapshotRun) bool {
	if givenUp(o) || (o.Status.Release != nil && o.Status.Release.BestEffort) {
		return false
	}
	post := meta.FindStatusCondition(o.Status.Conditions, v1.ConditionPostHooksSucceeded)
	if post == nil || post.Status != metav1.ConditionTrue {
		return false
	}
	return post.Reason != v1.ReasonNoHooks ||
		(o.Status.QuiescedTime != nil && meta.IsStatusConditionTrue(o.Status.Conditions, v1.ConditionPreHooksSucceeded))
}

// conclude sets the conditions that speak of the schedule itself.
func (p *pass) conclude(slotErr, retentionErr error) {
	p.st.ObservedGeneration = p.s.Generation
	if p.invalidReason == "" {
		if _, err := metav1.LabelSelectorAsSelector(&p.s.Spec.ClaimSelector); err != nil {
			p.invalidReason, p.invalidMessage = v1.ReasonInvalidSelector, "spec.claimSelector is not valid: "+err.Error()
		}
	}
	if p.invalidReason == "" {
		if _, _, err := run.PlanHooks(p.s, p.Options.Hooks); err != nil {
			p.invalidReason, p.invalidMessage = v1.ReasonInvalidHooks, err.Error()
			if p.Options.Hooks.Off != "" {
				p.invalidReason = v1.ReasonHooksDisabled
			}
		}
	}
	meta.RemoveStatusCondition(&p.st.Conditions, v1.ConditionStalled)
	switch {
	case p.invalidReason != "":
		p.stalled()
		p.condition(v1.ConditionReady, metav1.ConditionFalse, p.invalidReason, p.invalidMessage)
	case p.s.Spec.Disabled:
		p.condition(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonDisabled, "no runs are started while spec.disabled is true")
	default:
		p.condition(v1.ConditionReady, metav1.ConditionTrue, v1.ReasonScheduled, "")
	}
	switch err := errors.Join(slotErr, retentionErr); {
	case p.invalidReason != "":
		p.condition(v1.ConditionReconciled, metav1.ConditionFalse, v1.ReasonReconcileError, p.invalidMessage)
	case err != nil:
		p.condition(v1.ConditionReconciled, metav1.ConditionFalse, v1.ReasonReconcileError, err.Error())
	default:
		p.condition(v1.ConditionReconciled, metav1.ConditionTrue, v1.ReasonReconcileComplete, "")
	}
}

// stalled since the first look that found the mistake.
func (p *pass) stalled() {
	if was := meta.FindStatusCondition(p.s.Status.Conditions, v1.ConditionStalled); was != nil {
		p.st.Conditions = append(p.st.Conditions, *was)
	}
	p.condition(v1.ConditionStalled, metav1.ConditionTrue, p.invalidReason, p.invalidMessage)
}

// pruneRuns deletes the oldest completed runs beyond the history limits.
func (p *pass) pruneRuns(ctx context.Context) error {
	good := int(ptr.Deref(p.s.Spec.SuccessfulRunsHistoryLimit, defaultHistoryLimit))
	bad := int(ptr.Deref(p.s.Spec.FailedRunsHistoryLimit, defaultHistoryLimit))
	newest := ""
	if o := p.newestSlotRun(); o != nil {
		newest = o.Name
	}
	key := client.ObjectKeyFromObject(p.s)
	var errs []error
	for _, o := range slices.Backward(p.runs) {
		if o.Status.Phase != v1.PhaseCompleted || o.DeletionTimestamp != nil || p.deleted.has(key, o.UID) {
			continue
		}
		left := &good
		if o.Status.Result == v1.ResultFailed || o.Status.Result == v1.ResultPartiallyFailed {
			left = &bad
		}
		if *left > 0 {
			*left--
			continue
		}
		if p.st.ActiveRun == o.Name || len(o.Finalizers) > 0 || (o.Name == newest && p.mayRepeat(&o)) {
			continue // its controller is not finished with it, or it is to be repeated
		}
		err := p.Delete(ctx, &o, client.Preconditions{UID: ptr.To(o.UID)})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting old SnapshotRun %s/%s: %w", o.Namespace, o.Name, err))
			continue
		}
		if !apierrors.IsConflict(err) {
			p.deleted.add(key, o.UID)
		}
	}
	return errors.Join(errs...)
}
