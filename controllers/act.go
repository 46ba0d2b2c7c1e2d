// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// parallelCreates bounds how many VolumeSnapshots of one run are created at a time.
const parallelCreates = 16

// act carries out effects and returns the run as it is then; nil: it is gone. Every effect can be repeated.
func (r *RunReconciler) act(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, effects []run.Effect) (*v1.SnapshotRun, error) {
	var creates []run.CreateSnapshot
	for _, e := range effects {
		switch e := e.(type) {
		case run.AddFinalizer, run.RemoveFinalizer:
			return r.patchFinalizer(ctx, o, mem, e)
		case run.DropLock:
			r.locks.drop(o.UID)
		case run.CreateSnapshot:
			creates = append(creates, e)
		case run.CreateGroup:
			r.createGroup(ctx, o, mem, e)
		case run.LabelMember:
			if err := r.labelMember(ctx, o, e); err != nil {
				return nil, err
			}
		case run.DeleteGroup:
			if err := r.deleteGroup(ctx, o, e); err != nil {
				return nil, err
			}
		case run.DeleteLeftover:
			if err := r.deleteLeftover(ctx, o, mem, e); err != nil {
				return nil, err
			}
		case run.LabelConsistency:
			if err := r.label(ctx, o, mem, e); err != nil {
				return nil, err
			}
		case run.ReserveExec:
			lane := hooks.LaneQuiesce
			if e.Key.Stage == v1.StagePost {
				lane = hooks.LaneRelease
			}
			r.Hooks.Pool.Reserve(poolKey(o, e.Key), hooks.Owner(client.ObjectKeyFromObject(o)), lane)
		case run.StartExec:
			//nolint:contextcheck // a command outlives the reconcile that starts it: its context is the pool's
			if err := r.Hooks.Pool.Start(poolKey(o, e.Key), request(o, e)); err != nil {
				// Nothing was started: the claim is taken back when its window is over.
				log.FromContext(ctx).Error(err, "Starting a hook failed; it is tried again", "hook", e.Hook.Name, "pod", e.Target.Pod)
			}
		case run.ReleaseHeld:
			r.Hooks.Pool.Release(poolKey(o, e.Key))
		case run.CancelExec:
			r.Hooks.Pool.Cancel(poolKey(o, e.Key))
		}
	}
	r.create(ctx, o, mem, creates)
	return o, nil
}

func request(o *v1.SnapshotRun, e run.StartExec) hooks.Request {
	req := hooks.Request{
		Target: hooks.Target{Namespace: e.Target.Namespace, Pod: e.Target.Pod, UID: e.Target.PodUID, Container: e.Target.Container,
			ContainerID: e.Target.ContainerID, RestartCount: e.Target.RestartCount},
		Account:      account(o.Namespace, e.ServiceAccountName),
		Command:      e.Hook.Command,
		Timeout:      time.Duration(e.Hook.TimeoutSeconds) * time.Second,
		ExpectOutput: e.Hook.ExpectOutput,
	}
	if e.Hook.Mode == v1.ModeHold {
		req.Hold = &hooks.Hold{ExpectReleaseOutput: e.Hook.ExpectReleaseOutput, ReleaseTimeout: time.Duration(e.Hook.ReleaseTimeoutSeconds) * time.Second}
	}
	return req
}

func (r *RunReconciler) patchFinalizer(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, e run.Effect) (*v1.SnapshotRun, error) {
	next := o.DeepCopy()
	if _, add := e.(run.AddFinalizer); add {
		controllerutil.AddFinalizer(next, v1.FinalizerRelease)
	} else {
		controllerutil.RemoveFinalizer(next, v1.FinalizerRelease)
	}
	err := r.Patch(ctx, next, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // the run is gone: nothing is left to do
	}
	if err != nil {
		return nil, fmt.Errorf("changing the finalizer of SnapshotRun %s/%s: %w", o.Namespace, o.Name, err)
	}
	if next.DeletionTimestamp != nil && len(next.Finalizers) == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	mem.latest = next
	return next, nil
}

// create VolumeSnapshots side by side. What becomes of each is noted in mem; the next decision sees it.
func (r *RunReconciler) create(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, effects []run.CreateSnapshot) {
	var mu sync.Mutex
	for _, e := range effects {
		mem.making[e.Name] = &making{claim: e.Claim, at: r.Clock.Now()}
	}
	parallel(parallelCreates, len(effects), func(i int) {
		e := effects[i]
		s, existed, err := r.createOne(ctx, o, e)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			mem.snapshots[e.Name] = seenSnapshot{object: s, at: r.Clock.Now()}
			if existed && mem.tries[e.Name] == 0 {
				delete(mem.making, e.Name) // somebody else's, or that of a process before this one
			}
			delete(mem.creates, e.Name)
			return
		}
		r.noteFailure(ctx, o, mem, e, err)
	})
}

// createOne creates a VolumeSnapshot, or returns the one that has its name and existed, whosever it is.
func (r *RunReconciler) createOne(ctx context.Context, o *v1.SnapshotRun, e run.CreateSnapshot) (s *snapshotv1.VolumeSnapshot, existed bool, err error) {
	s = &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: e.Name, Labels: e.Labels, Annotations: e.Annotations},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(e.Claim)}},
	}
	if e.ClassName != "" {
		s.Spec.VolumeSnapshotClassName = ptr.To(e.ClassName)
	}
	if e.Owned {
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: "SnapshotSchedule", Name: e.ScheduleName, UID: e.ScheduleUID}}
	}
	err = r.Create(ctx, s)
	if apierrors.IsAlreadyExists(err) {
		var existing snapshotv1.VolumeSnapshot
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), &existing); err != nil {
			return nil, false, fmt.Errorf("reading VolumeSnapshot %s/%s that already exists: %w", o.Namespace, e.Name, err)
		}
		return &existing, true, nil
	}
	return s, false, err
}

func (r *RunReconciler) noteFailure(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, e run.CreateSnapshot, err error) {
	_, known := mem.creates[e.Name]
	mem.creates[e.Name] = mem.failure(e.Name, err, refused(err), r.Clock.Now())
	metrics.SnapshotCreateFailed(metricsName(o, o.Spec.ScheduleName), e.Claim, r.Clock.Now())
	if !known {
		log.FromContext(ctx).Error(err, "Creating a VolumeSnapshot failed", "volumeSnapshot", e.Name, "claim", e.Claim)
		s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: e.Name}}
		r.eventAbout(s, o, v1.EventSnapshotNotCreated, "Create", "VolumeSnapshot %s of claim %s was not created: %v", e.Name, e.Claim, err)
	}
}

// failure of one more attempt to create an object.
func (r *runMemory) failure(name string, err error, refused bool, now time.Time) run.CreateFailure {
	r.tries[name]++
	delay := min(maxBackoff, 500*time.Millisecond<<min(r.tries[name]-1, 6))
	return run.CreateFailure{Message: err.Error(), Refused: refused, RetryTime: now.Add(delay)}
}

// refused: the API server has understood and will not do it. Load and lost connections pass.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && !apierrors.IsTooManyRequests(err) && !apierrors.IsTimeout(err) && !apierrors.IsUnauthorized(err)
}

func (r *RunReconciler) deleteLeftover(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, e run.DeleteLeftover) error {
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: e.Name}}
	err := r.Delete(ctx, s, client.Preconditions{UID: ptr.To(e.UID)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting VolumeSnapshot %s/%s that an earlier run left uncut: %w", o.Namespace, e.Name, err)
	}
	mem.leftovers[e.UID] = true
	r.eventAbout(s, o, v1.EventUncutSnapshotDeleted, "Delete", "VolumeSnapshot %s, which an earlier run left without a cut, was deleted", e.Name)
	return nil
}

// label raises a snapshot's consistency label.
func (r *RunReconciler) label(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, e run.LabelConsistency) error {
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: e.Name}}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q}}}`, e.UID, v1.LabelConsistency, e.Value)
	err := r.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(patch)))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		delete(mem.snapshots, e.Name) // gone, or replaced: the next look finds out
		return nil
	}
	if err != nil {
		return fmt.Errorf("labelling VolumeSnapshot %s/%s as %s consistent: %w", o.Namespace, e.Name, e.Value, err)
	}
	mem.snapshots[e.Name] = seenSnapshot{object: s, at: r.Clock.Now()}
	return nil
}

// waitsFor reports whether the run is queued for a lock.
func waitsFor(o *v1.SnapshotRun) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1.ConditionComplete && c.Reason == v1.ReasonWaiting
	})
}
