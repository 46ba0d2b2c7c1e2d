// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/retention"
	"github.com/stillpoint-operator/stillpoint/internal/run"
	"github.com/stillpoint-operator/stillpoint/internal/snapshots"
)

// state of the schedule for the metrics: from its written status, its runs and its snapshots, so that it is the same after a restart.
func (p *pass) state(retentionFailed bool) metrics.State {
	out := metrics.State{
		LastSuccess:     timeOf(p.st.LastSuccessTime),
		Quiesced:        p.active != nil,
		MayBeQuiesced:   p.active != nil || meta.IsStatusConditionTrue(p.st.Conditions, v1.ConditionMayBeQuiesced),
		QuiesceDeadline: p.quiesceDeadline,
		ClaimsLeftOut:   len(p.st.ClaimsLeftOut),
		// A pause deletes nothing either.
		RetentionFailing: retentionFailed || p.retentionPaused,
		Snapshots:        p.snapshots,
		Claims:           p.claims,
	}
	if c := meta.FindStatusCondition(p.st.Conditions, v1.ConditionReady); c != nil {
		out.Ready, out.ReadyReason = c.Status == metav1.ConditionTrue, c.Reason
	}
	if c := meta.FindStatusCondition(p.st.Conditions, v1.ConditionLastRunSucceeded); c != nil {
		out.LastResult = c.Reason
	}
	if m := p.st.LastMissed; m != nil {
		out.LastMissed, out.LastMissedReason = timeOf(m.NoticedTime), m.Reason
	}
	if p.invalidReason == "" && !p.s.Spec.Disabled && p.st.NextSnapshotTime != nil {
		out.NextRun = p.st.NextSnapshotTime.Add(spreadOf(p.s))
		out.SuccessDue = p.successDue()
	}
	out.FailedPreHooks, out.FailedPostHooks = p.failedHooks()
	return out
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }

// successDue is by when a run must have succeeded: two slots after the last success, or after the schedule began.
func (p *pass) successDue() time.Time {
	since := timeOf(p.st.ScheduledSince)
	// One in the future is of a clock that was wrong.
	if last := p.st.LastSuccessTime; last != nil && last.After(since) && !last.After(p.now) {
		since = last.Time
	}
	if since.IsZero() || !p.calOK {
		return time.Time{}
	}
	due := p.cal.SuccessDue(since)
	if due.IsZero() {
		return due
	}
	return due.Add(spreadOf(p.s))
}

// failedHooks of the newest run: those that have failed for good, and those whose newest attempt has failed and is to be repeated. A failure
// to release what was not quiesced does not count.
func (p *pass) failedHooks() (pre, post int) {
	failed := func(list []metav1.Condition) bool {
		c := meta.FindStatusCondition(list, v1.ConditionSucceeded)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1.ReasonHookSkipped
	}
	count := func(stage v1.HookStage) {
		if stage == v1.StagePre {
			pre++
		} else {
			post++
		}
	}
	if p.newest == nil { // it is not kept
		for i := range p.st.Hooks {
			if h := &p.st.Hooks[i]; failed(h.Conditions) {
				count(h.Stage)
			}
		}
		return pre, post
	}
	release := p.newest.Status.Release
	for i := range p.newest.Status.Hooks {
		h := &p.newest.Status.Hooks[i]
		if h.Stage == v1.StagePost && release != nil && (release.BestEffort || h.Pass < release.Pass) {
			continue
		}
		if failed(h.Conditions) || repeating(h) {
			count(h.Stage)
		}
	}
	return pre, post
}

// repeating: an attempt of the hook has failed, and it goes on.
func repeating(h *v1.HookStatus) bool {
	for i := range h.Targets {
		if h.Targets[i].NextAttemptTime != nil {
			return true
		}
	}
	return false
}

// count the snapshots for the metrics.
func (p *pass) count(items []snapshotv1.VolumeSnapshot, judged []retention.Snapshot) {
	p.snapshots, p.claims = map[metrics.SnapshotState]metrics.Snapshots{}, map[string]metrics.Claim{}
	for i := range judged {
		s, since := &judged[i], judged[i].Created
		state := metrics.Pending
		switch s.State {
		case retention.Terminating:
			state, since = metrics.Deleting, items[i].DeletionTimestamp.Time
		case retention.Ready:
			state = metrics.Ready
		case retention.Failed:
			state = metrics.Failed
		case retention.Unfinished:
			if snapshots.Observe("", &items[i]).Cut {
				state = metrics.Cut
			}
		}
		n := p.snapshots[state]
		n.Count++
		if n.Since.IsZero() || since.Before(n.Since) {
			n.Since = since
		}
		p.snapshots[state] = n
		if s.ClaimName == "" { // made from an existing content
			continue
		}
		c := p.claims[s.ClaimName]
		c.All++
		if s.State == retention.Ready {
			c.Ready++
		}
		p.claims[s.ClaimName] = c
	}
}

// leave a schedule that is gone, or about to go: its series go, but for what tells that a run of it has not released its application yet.
func (r *ScheduleReconciler) leave(ctx context.Context, key types.NamespacedName) error {
	var runs v1.SnapshotRunList
	if err := r.List(ctx, &runs, client.InNamespace(key.Namespace), client.MatchingFields{indexSchedule: key.Name}); err != nil {
		return fmt.Errorf("listing the runs of the deleted schedule %s: %w", key, err)
	}
	name := metrics.Schedule{Namespace: key.Namespace, Name: key.Name}
	for i := range runs.Items {
		if o := &runs.Items[i]; run.Active(o) && quiesced(o) {
			metrics.SetUnreleased(name, quiesceDeadline(o))
			return nil
		}
	}
	metrics.Forget(name)
	r.unanswered.Delete(key)
	r.written.Delete(key)
	r.deleted.keep(key, func(types.UID) bool { return false })
	return nil
}
