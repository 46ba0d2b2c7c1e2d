// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/controllers/internal/calendar"
	"github.com/stillpoint-operator/stillpoint/controllers/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/controllers/internal/naming"
	"github.com/stillpoint-operator/stillpoint/controllers/internal/run"
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
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
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

	slotErr := p.calendar(ctx)
	p.summarise()
	historyErr := p.pruneRuns(ctx)
	retentionErr := p.retain(ctx)
	p.conclude(slotErr, retentionErr)
	if err := errors.Join(p.persist(ctx), slotErr, historyErr, retentionErr); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: repeatDelay}, nil
		}
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

// calendar starts the run of the slot that is due, and sets the next one.
func (p *pass) calendar(ctx context.Context) error {
	cal, err := calendar.Parse(p.s.Spec.Schedule, p.s.Spec.TimeZone)
	if err != nil {
		var mistake *calendar.Error
		p.invalidReason = v1.ReasonInvalidSchedule
		if errors.As(err, &mistake) {
			switch mistake.Reason {
			case calendar.ReasonNeverFires:
				p.invalidReason = v1.ReasonNeverFires
			case calendar.ReasonUnknownTimeZone, calendar.ReasonTwoTimeZones:
				p.invalidReason = v1.ReasonInvalidTimeZone
			case calendar.ReasonEmpty, calendar.ReasonParseError, calendar.ReasonTooFrequent:
			}
		}
		p.invalidMessage = err.Error()
		p.st.NextSnapshotTime = nil
		return nil
	}
	p.cal, p.calOK = cal, true
	next := p.persistedNext()
	limits := calendar.Limits{
		StartingDeadline: time.Duration(ptr.Deref(p.s.Spec.StartingDeadlineSeconds, 0)) * time.Second,
		Spread:           calendar.Spread(fmt.Sprintf("%s/%s/%s", p.s.Namespace, p.s.Name, p.s.UID), ptr.Deref(p.s.Spec.SpreadSeconds, 0)),
	}
	due := cal.Due(next, p.now, limits)
	p.wakeAt(due.Wake)
	if p.s.Spec.Disabled || p.Draining() {
		if p.s.Spec.Disabled {
			p.setNext(due.Next)
		}
		return nil
	}
	if due.Missed > 0 {
		reason := v1.MissedDowntime
		if due.TooLate {
			reason = v1.MissedTooLate
		}
		p.missed(due.NewestMissed, reason, due.Missed)
	}
	if !due.Slot.IsZero() {
		started, err := p.start(ctx, due.Slot)
		if err != nil {
			return err // the next slot is not set: this one is tried again
		}
		if !started {
			p.missed(due.Slot, v1.MissedOverlap, 1)
		}
	}
	p.setNext(due.Next)
	return nil
}

// persistedNext is the slot that was to come next when the schedule was last looked at; snapscheduler's is honoured.
func (p *pass) persistedNext() time.Time {
	next := p.st.NextSnapshotTime
	edited := p.st.ObservedGeneration != 0 && p.st.ObservedGeneration != p.s.Generation
	if next == nil || (edited && next.After(p.now)) {
		return p.cal.Next(p.now) // what was to come next may be no slot of an edited schedule
	}
	return next.Time
}

func (p *pass) setNext(t time.Time) {
	if t.IsZero() {
		p.st.NextSnapshotTime = nil
		return
	}
	p.st.NextSnapshotTime = ptr.To(metav1.NewTime(t.UTC()))
}

func (p *pass) missed(slot time.Time, reason string, n int) {
	count := int64(n)
	if p.st.LastMissed != nil {
		count += p.st.LastMissed.Count
	}
	p.st.LastMissed = &v1.MissedSlot{Slot: metav1.NewTime(slot.UTC()), Reason: reason, Count: count}
	why := map[string]string{
		v1.MissedTooLate:  "it could not be started within startingDeadlineSeconds",
		v1.MissedOverlap:  "the run before it has not released its application yet",
		v1.MissedDowntime: "the operator was not running; only the newest missed slot is caught up",
	}[reason]
	p.event(warning, "SlotMissed", "Schedule", "%d slots up to %s were not run: %s", n, slot.UTC().Format(time.RFC3339), why)
	p.after(func() { metrics.SlotsMissed(p.s.Name, p.s.Namespace, reason, n) })
}

// start the run of a slot, unless the run before it may still hold the application. The run's name is the lock: whoever comes second finds it.
func (p *pass) start(ctx context.Context, slot time.Time) (bool, error) {
	name := naming.Run(p.s.Name, slot)
	for i := range p.runs {
		if o := &p.runs[i]; o.Name != name && run.ModeOf(o) == v1.RunSnapshot && run.BeforeAwaitingReady(o) {
			return false, nil
		}
	}
	if active := p.st.ActiveRun; active != "" && active != name && !p.knows(active) {
		// The cache may not have our newest run yet.
		var o v1.SnapshotRun
		err := p.Live.Get(ctx, types.NamespacedName{Namespace: p.s.Namespace, Name: active}, &o)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading SnapshotRun %s/%s: %w", p.s.Namespace, active, err)
		}
		if err == nil && run.BeforeAwaitingReady(&o) {
			return false, nil
		}
	}
	o := &v1.SnapshotRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.s.Namespace, Name: name,
			Labels:          map[string]string{v1.LabelSchedule: naming.ScheduleLabel(p.s.Name), v1.LabelVeleroExclude: "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.s, v1.GroupVersion.WithKind("SnapshotSchedule"))},
		},
		Spec: v1.SnapshotRunSpec{ScheduleName: p.s.Name, Slot: ptr.To(metav1.NewTime(slot.UTC()))},
	}
	if len(p.s.Spec.PreHooks)+len(p.s.Spec.PostHooks) > 0 {
		o.Finalizers = []string{v1.FinalizerRelease}
	}
	err := p.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		var existing v1.SnapshotRun
		if err := p.Live.Get(ctx, client.ObjectKeyFromObject(o), &existing); err != nil {
			return false, fmt.Errorf("reading SnapshotRun %s/%s that already exists: %w", o.Namespace, o.Name, err)
		}
		if !metav1.IsControlledBy(&existing, p.s) {
			return false, fmt.Errorf("SnapshotRun %s/%s exists and is not this schedule's (a copy, or left from a deleted schedule of the same name); delete it to let the slot run", o.Namespace, o.Name)
		}
		o = &existing
	} else if err != nil {
		return false, fmt.Errorf("creating SnapshotRun %s/%s: %w", o.Namespace, o.Name, err)
	}
	p.st.ActiveRun = name
	if !p.knows(name) {
		p.runs = append(p.runs, *o)
	}
	log.FromContext(ctx).Info("Run of a slot was created", "run", name, "slot", slot.UTC().Format(time.RFC3339))
	return true, nil
}

func (p *pass) knows(name string) bool {
	for i := range p.runs {
		if p.runs[i].Name == name {
			return true
		}
	}
	return false
}

// persist the status, if it changed, and then tell the world.
func (p *pass) persist(ctx context.Context) error {
	if !reflect.DeepEqual(&p.s.Status, p.st) {
		before := p.s.DeepCopy()
		p.s.Status = *p.st
		if err := p.Status().Patch(ctx, p.s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("writing the status of SnapshotSchedule %s/%s: %w", p.s.Namespace, p.s.Name, err)
		}
	}
	for _, send := range p.events {
		send()
	}
	return nil
}
