// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/calendar"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// Field indexes of the cache.
const (
	// indexSchedule of SnapshotRuns by schedule name, and of VolumeSnapshots and SnapshotSchedules by the value of LabelSchedule.
	indexSchedule = "schedule"
)

// ScheduleOptions are what the operator's flags say about schedules.
type ScheduleOptions struct {
	ReadyTimeout time.Duration // as in RunOptions: younger unfinished snapshots are not touched by retention
	Workers      int
}

// ScheduleReconciler starts the runs of SnapshotSchedules and deletes their old snapshots and runs.
type ScheduleReconciler struct {
	client.Client
	// Live reads from the API server, not from the cache.
	Live     client.Reader
	Recorder recorder.EventRecorder
	Clock    clock.Clock
	// Skew between the operator's clock and the API server's; false: not known yet. Retention deletes nothing while it is large.
	Skew    func() (time.Duration, bool)
	Options ScheduleOptions
	// Draining: no further run is started.
	Draining func() bool
	// Lease of this process, without which nothing is done; nil: there is no leader election.
	Lease *Lease

	written sync.Map // types.NamespacedName of a schedule: version, as our last write left it
}

// version of an object.
type version struct {
	uid             types.UID
	resourceVersion string
}

// trails reports whether the cache does not have our last write of a schedule yet. A slot that it noted as missed would be taken all the same.
func (r *ScheduleReconciler) trails(s *v1.SnapshotSchedule) bool {
	w, ok := r.written.Load(client.ObjectKeyFromObject(s))
	if !ok || w.(version).uid != s.UID {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(s.ResourceVersion, w.(version).resourceVersion)
	return err == nil && c < 0
}

// AddIndexes registers the field indexes of both controllers.
func AddIndexes(ctx context.Context, mgr ctrl.Manager) error {
	label := func(o client.Object) []string { return []string{o.GetLabels()[v1.LabelSchedule]} }
	return errors.Join(
		mgr.GetFieldIndexer().IndexField(ctx, &v1.SnapshotRun{}, indexSchedule, func(o client.Object) []string {
			if r, ok := o.(*v1.SnapshotRun); ok {
				return []string{r.Spec.ScheduleName}
			}
			return nil
		}),
		mgr.GetFieldIndexer().IndexField(ctx, &snapshotv1.VolumeSnapshot{}, indexSchedule, label),
		mgr.GetFieldIndexer().IndexField(ctx, &v1.SnapshotSchedule{}, indexSchedule, func(o client.Object) []string {
			return []string{naming.ScheduleLabel(o.GetName())}
		}),
	)
}

// SetupWithManager registers the controller and its sources.
func (r *ScheduleReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1.SnapshotSchedule{}).
		Watches(&v1.SnapshotRun{}, handler.EnqueueRequestsFromMapFunc(scheduleOfRun)).
		Watches(&snapshotv1.VolumeSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.scheduleOfSnapshot)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Options.Workers, RateLimiter: rateLimiter()}).
		Named("snapshotschedule").
		Complete(r)
}

func scheduleOfRun(_ context.Context, o client.Object) []ctrl.Request {
	if r, ok := o.(*v1.SnapshotRun); ok {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.ScheduleName}}}
	}
	return nil
}

func (r *ScheduleReconciler) scheduleOfSnapshot(ctx context.Context, o client.Object) []ctrl.Request {
	var list v1.SnapshotScheduleList
	err := r.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexSchedule: o.GetLabels()[v1.LabelSchedule]})
	if err != nil {
		log.FromContext(ctx).Error(err, "Finding the schedule of a VolumeSnapshot failed", "volumeSnapshot", client.ObjectKeyFromObject(o))
		return nil
	}
	var out []ctrl.Request
	for i := range list.Items {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// Reconcile one schedule: start the run that is due, sum up its runs, delete what has had its time. A failure of one does not keep
// the others from happening.
func (r *ScheduleReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var s v1.SnapshotSchedule
	if err := r.Get(ctx, req.NamespacedName, &s); err != nil {
		if apierrors.IsNotFound(err) {
			metrics.Forget(req.Name, req.Namespace)
			r.written.Delete(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.trails(&s) {
		return ctrl.Result{RequeueAfter: repeatDelay}, nil
	}
	if s.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // its runs are deleted with it and go to their release
	}
	p := &pass{ScheduleReconciler: r, s: &s, st: s.Status.DeepCopy(), now: r.Clock.Now()}
	var runs v1.SnapshotRunList
	if err := r.List(ctx, &runs, client.InNamespace(s.Namespace), client.MatchingFields{indexSchedule: s.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the runs of schedule %s: %w", req.NamespacedName, err)
	}
	p.runs = runs.Items

	if !r.Lease.Held() {
		return ctrl.Result{RequeueAfter: repeatDelay}, nil // as in RunReconciler
	}
	slotErr := p.calendar(ctx)
	p.summarise(ctx)
	retentionErr := p.retain(ctx)
	p.conclude(slotErr, retentionErr)
	if err := p.persist(ctx); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: repeatDelay}, nil
		}
		return ctrl.Result{}, errors.Join(err, slotErr, retentionErr)
	}
	// Only now: what the old runs said is in the status.
	if err := errors.Join(slotErr, retentionErr, p.pruneRuns(ctx)); err != nil {
		return ctrl.Result{}, err
	}
	if p.wake.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(time.Millisecond, p.wake.Sub(r.Clock.Now()))}, nil
}

// pass is one reconcile of one schedule.
type pass struct {
	*ScheduleReconciler
	s      *v1.SnapshotSchedule
	st     *v1.SnapshotScheduleStatus
	now    time.Time
	runs   []v1.SnapshotRun
	wake   time.Time
	events []func() // sent once the status is written
	// announced is the repetition of a run that this pass writes into the status and the next one creates.
	announced string
	// invalid: the reason and message of what the user has to mend.
	invalidReason, invalidMessage string
	// parsed calendar; false: it is not valid.
	cal   calendar.Schedule
	calOK bool
}

func (p *pass) wakeAt(t time.Time) {
	if !t.IsZero() && (p.wake.IsZero() || t.Before(p.wake)) {
		p.wake = t
	}
}

func (p *pass) after(f func()) { p.events = append(p.events, f) }

func (p *pass) event(typ, reason, action, format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	if len(note) > maxNote {
		note = note[:maxNote-3] + "..."
	}
	p.after(func() { p.Recorder.Eventf(p.s, nil, typ, reason, action, "%s", note) })
}

// persist the status, if it changed, and then tell the world.
func (p *pass) persist(ctx context.Context) error {
	if !reflect.DeepEqual(&p.s.Status, p.st) {
		before := p.s.DeepCopy()
		p.s.Status = *p.st
		if err := p.Status().Patch(ctx, p.s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("writing the status of SnapshotSchedule %s/%s: %w", p.s.Namespace, p.s.Name, err)
		}
		p.written.Store(client.ObjectKeyFromObject(p.s), version{p.s.UID, p.s.ResourceVersion})
	}
	for _, send := range p.events {
		send()
	}
	return nil
}
