// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/calendar"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// Field indexes of the cache.
const (
	// indexSchedule of SnapshotRuns by schedule name, and of VolumeSnapshots and SnapshotSchedules by the value of LabelSchedule.
	indexSchedule = "schedule"
)

// ScheduleOptions are what the operator's flags say about schedules.
type ScheduleOptions struct {
	ReadyTimeout time.Duration // as in RunOptions: younger unfinished snapshots are not touched by retention
	Hooks        run.HookRules
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

	// unanswered writes of schedules' status by name: answered with an error, and perhaps done all the same.
	unanswered sync.Map // types.NamespacedName to unansweredStatus
	// written: the resource version that our last write of a schedule's status made. Over an older one nothing is done.
	written sync.Map // types.NamespacedName to string
	// deleted by this process.
	deleted deletedObjects
}

// unansweredStatus is what was to be written over which version, and what was to be told then.
type unansweredStatus struct {
	over   string
	wanted v1.SnapshotScheduleStatus
	tell   []func()
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
	news := builder.WithPredicates(predicate.Not(predicate.NewPredicateFuncs(begins)))
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1.SnapshotSchedule{}).
		Watches(&v1.SnapshotRun{}, deferring{handler.EnqueueRequestsFromMapFunc(scheduleOfRun), always}, news).
		Watches(&snapshotv1.VolumeSnapshot{}, deferring{handler.EnqueueRequestsFromMapFunc(r.scheduleOfSnapshot), always}, news).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Options.Workers, RateLimiter: rateLimiter()}).
		Named("snapshotschedule").
		Complete(r)
}

// begins: the run of a slot, without hooks, that has no record yet, or a snapshot that nobody has worked on. It is no news to its schedule.
func begins(o client.Object) bool {
	if o.GetDeletionTimestamp() != nil {
		return false
	}
	switch o := o.(type) {
	case *v1.SnapshotRun:
		return o.Spec.Slot != nil && len(o.Finalizers) == 0 && o.Status.Phase == ""
	case *snapshotv1.VolumeSnapshot:
		return o.Status == nil
	}
	return false
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
			return ctrl.Result{}, r.leave(ctx, req.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	if r.trails(req.NamespacedName, s.ResourceVersion) { // a slot that it noted as missed would be taken all the same
		return ctrl.Result{RequeueAfter: repeatDelay}, nil
	}
	if s.DeletionTimestamp != nil {
		return ctrl.Result{}, r.leave(ctx, req.NamespacedName) // its runs are deleted with it and go to their release
	}
	r.tellUnanswered(&s)
	p := &pass{ScheduleReconciler: r, s: &s, st: s.Status.DeepCopy(), now: r.Clock.Now()}
	var runs v1.SnapshotRunList
	if err := r.List(ctx, &runs, client.InNamespace(s.Namespace), client.MatchingFields{indexSchedule: s.Name}); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the runs of schedule %s: %w", req.NamespacedName, err)
	}
	p.runs = runs.Items
	for i := range p.runs {
		if st := &p.runs[i].Status; st.Phase == v1.PhaseCompleted && st.CompletionTime == nil { // somebody else completed it
			st.CompletionTime = ptr.To(metav1.NewMicroTime(p.runs[i].CreationTimestamp.Time))
		}
	}

	if !r.Lease.Held() {
		return ctrl.Result{RequeueAfter: repeatDelay}, nil // as in RunReconciler
	}
	slotErr := p.calendar(ctx)
	if wait := p.bookDelay(); slotErr == nil && wait > 0 {
		// After every other schedule that is due has begun. A process that dies before finds the run by its name.
		return ctrl.Result{RequeueAfter: wait, Priority: ptr.To(later)}, nil
	}
	p.summarise(ctx)
	retentionErr := errors.Join(p.retain(ctx), p.checkGroups())
	p.conclude(slotErr, retentionErr)
	if err := p.persist(ctx); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: repeatDelay}, nil
		}
		return ctrl.Result{}, errors.Join(err, slotErr, retentionErr)
	}
	metrics.SetState(metricsName(&s, s.Name), p.state(retentionErr != nil), p.now)
	// Only now: what the old runs said is in the status.
	if err := errors.Join(slotErr, retentionErr, p.pruneRuns(ctx)); err != nil {
		return ctrl.Result{}, err
	}
	if p.wake.IsZero() {
		return ctrl.Result{}, nil
	}
	// What comes at a time is a slot, as far as anybody can tell: it does not wait because the pass before could.
	return ctrl.Result{RequeueAfter: max(time.Millisecond, p.wake.Sub(r.Clock.Now())), Priority: ptr.To(0)}, nil
}

// bookDelay is how long the books of a slot are not kept yet: where no application waits, until its run has its record, which comes within
// run.DirectGrace and often completes it.
func (p *pass) bookDelay() time.Duration {
	if run.HasHooks(p.s) {
		return 0
	}
	if p.begun {
		return run.DirectGrace
	}
	for i := range p.runs {
		age := p.now.Sub(p.runs[i].CreationTimestamp.Time)
		if begins(&p.runs[i]) && age.Abs() < run.DirectGrace { // clocks differ
			return run.DirectGrace - age
		}
	}
	return 0
}

// pass is one reconcile of one schedule.
type pass struct {
	*ScheduleReconciler
	s      *v1.SnapshotSchedule
	st     *v1.SnapshotScheduleStatus
	now    time.Time
	runs   []v1.SnapshotRun
	wake   time.Time
	begun  bool     // a run was created
	events []func() // sent once the status is written
	// announced is the repetition of a run that this pass writes into the status and the next one creates.
	announced string
	// for the metrics: the snapshots by state and claim; the newest run; until when the application may be quiesced by it, or since when a release
	// is given up; nothing was deleted that should be, for the clocks differ.
	snapshots       map[metrics.SnapshotState]metrics.Snapshots
	claims          map[string]metrics.Claim
	newest          *v1.SnapshotRun
	active          *v1.SnapshotRun
	quiesceDeadline time.Time
	retentionPaused bool
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
	p.after(func() { p.Recorder.Eventf(p.s, nil, typ, reason, action, "%s", note(format, args...)) })
}

// persist the status, if it changed, and then tell the world.
func (p *pass) persist(ctx context.Context) error {
	key := client.ObjectKeyFromObject(p.s)
	if !equality.Semantic.DeepEqual(&p.s.Status, p.st) { // which knows that a time is the same in any zone
		before := p.s.DeepCopy()
		p.s.Status = *p.st
		if err := p.Status().Patch(ctx, p.s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			p.unanswered.LoadOrStore(key, unansweredStatus{before.ResourceVersion, *p.st, p.events})
			return fmt.Errorf("writing the status of SnapshotSchedule %s/%s: %w", p.s.Namespace, p.s.Name, err)
		}
	}
	p.unanswered.Delete(key)
	p.written.Store(key, p.s.ResourceVersion)
	for _, send := range p.events {
		send()
	}
	return nil
}

// trails: the version is older than our own last write.
func (r *ScheduleReconciler) trails(key types.NamespacedName, version string) bool {
	v, _ := r.written.Load(key)
	own, ok := v.(string)
	if !ok {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(version, own)
	return err == nil && c < 0
}

// tellUnanswered tells what depended on a write that was answered with an error, if the schedule shows that it was done. If it does not, the
// pass that follows comes to the same again.
func (r *ScheduleReconciler) tellUnanswered(s *v1.SnapshotSchedule) {
	key := client.ObjectKeyFromObject(s)
	v, ok := r.unanswered.Load(key)
	u, is := v.(unansweredStatus)
	if !ok || !is || s.ResourceVersion == u.over { // the cache does not show yet what became of it
		return
	}
	r.unanswered.Delete(key)
	if equality.Semantic.DeepEqual(s.Status, u.wanted) {
		for _, send := range u.tell {
			send()
		}
	}
}
