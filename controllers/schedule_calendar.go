// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/calendar"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

const (
	// firstRetryDelay before a failed run is repeated (runRetryLimit); doubled each time up to maxRetryDelay.
	firstRetryDelay = 10 * time.Second
	maxRetryDelay   = 10 * time.Minute
	// lateSlot is how late a slot is that no operator saw coming.
	lateSlot = time.Minute
	// clockStep is how far a clock may go back without the calendar being set anew.
	clockStep = time.Hour
)

// notBegun is errNotBegun for a run that was not looked at yet.
func (p *pass) notBegun(o *v1.SnapshotRun) error {
	if o.Status.Phase == "" {
		return errNotBegun
	}
	return nil
}

// errNotBegun: the run before was not looked at yet, as after a downtime. Whether the slot overlaps with it is known in a moment.
var errNotBegun = errors.New("the run before has not begun")

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
		p.st.NextSnapshotTime, p.st.ScheduledSince = nil, nil
		return nil
	}
	p.cal, p.calOK = cal, true
	limits := calendar.Limits{
		StartingDeadline: time.Duration(ptr.Deref(p.s.Spec.StartingDeadlineSeconds, 0)) * time.Second,
		Spread:           spreadOf(p.s),
	}
	next := p.persistedNext()
	p.countFrom(next)
	next = p.afterBegun(next, limits)
	due := cal.Due(next, p.now, limits)
	if due.ClockBehind && due.Next.After(cal.Next(cal.Next(p.now)).Add(clockStep)) {
		// The clock was far ahead for a while. Whatever slots were taken then keep their names, so none is taken twice.
		due = cal.Due(cal.Next(p.now), p.now, limits)
	}
	p.wakeAt(due.Wake)
	if p.s.Spec.Disabled || p.Draining() {
		if p.s.Spec.Disabled {
			p.setNext(due.Next)
		}
		return nil
	}
	slot := due.Slot
	if slot.IsZero() && p.s.Spec.RunOnCreate && p.st.NextSnapshotTime == nil && p.st.LastSnapshotTime == nil {
		slot = p.s.CreationTimestamp.UTC().Truncate(time.Minute)
	}
	switch {
	case !slot.IsZero():
		started, err := p.start(ctx, slot, 0)
		if errors.Is(err, errNotBegun) {
			p.wakeAt(p.now.Add(repeatDelay))
			return nil
		}
		if err != nil {
			return err // nothing is recorded: the slot is tried again
		}
		if !started && p.now.Sub(slot.Add(limits.Spread)) > lateSlot {
			// It did not come while the run before it ran, but while no operator did: it waits for that run's release.
			return nil
		}
		if !started {
			p.missed(slot, v1.MissedOverlap, 1)
		}
	default:
		if err := p.retry(ctx, due.Next); err != nil {
			return err
		}
	}
	if due.Missed > 0 {
		reason := v1.MissedDowntime
		if due.TooLate {
			reason = v1.MissedTooLate
		}
		p.missed(due.NewestMissed, reason, due.Missed)
	}
	p.setNext(due.Next)
	return nil
}

// afterBegun is the first slot from next on that has no run yet: the status may not say of the others that they have. Slots between them are missed.
func (p *pass) afterBegun(next time.Time, limits calendar.Limits) time.Time {
	for {
		slot, ok := p.oldestBegun(next)
		then := slot.Add(limits.Spread)
		due := p.cal.Due(next, then, limits)
		if !ok || then.After(p.now) || !due.Slot.Equal(slot) {
			return next
		}
		if due.Missed > 0 {
			p.missed(due.NewestMissed, v1.MissedDowntime, due.Missed)
		}
		next = due.Next
	}
}

// oldestBegun is the first slot from next on that has a run.
func (p *pass) oldestBegun(next time.Time) (slot time.Time, ok bool) {
	for i := range p.runs {
		o := &p.runs[i]
		if _, ours := run.Repetition(o, p.s); !ours || notTaken(o) || next.IsZero() || o.Spec.Slot.Time.Before(next) {
			continue
		}
		if !ok || o.Spec.Slot.Time.Before(slot) {
			slot, ok = o.Spec.Slot.Time, true
		}
	}
	return slot, ok
}

// countFrom records since when the schedule's slots count: since it runs, with the calendar that it has. An edit that leaves the next slot as it
// was is none of the calendar.
func (p *pass) countFrom(next time.Time) {
	was := p.st.NextSnapshotTime
	switch {
	case p.s.Spec.Disabled:
		p.st.ScheduledSince = nil
	case p.st.ScheduledSince == nil || (was != nil && !was.Time.Equal(next)):
		p.st.ScheduledSince = ptr.To(metav1.NewTime(p.now.Truncate(time.Second)))
	}
}

// spreadOf a schedule: how much later than its slots its runs start.
func spreadOf(s *v1.SnapshotSchedule) time.Duration {
	return calendar.Spread(fmt.Sprintf("%s/%s/%s", s.Namespace, s.Name, s.UID), ptr.Deref(s.Spec.SpreadSeconds, 0))
}

// retry repeats the newest slot's run if it failed, with backoff, as often as runRetryLimit says and not beyond the next slot.
func (p *pass) retry(ctx context.Context, next time.Time) error {
	last := p.newestSlotRun()
	if last == nil || !p.mayRepeat(last) {
		return nil
	}
	n, _ := run.Repetition(last, p.s)
	n++
	due := last.Status.CompletionTime.Add(min(maxRetryDelay, firstRetryDelay<<(n-1)))
	if !due.Before(next) {
		return nil
	}
	if p.now.Before(due) {
		p.wakeAt(due)
		return nil
	}
	name := naming.RetryRun(p.s.Name, last.Spec.Slot.Time, n)
	if p.s.Status.ActiveRun != name {
		// A run of an old slot only counts as ours once the status says so: say it first, create it in the next pass.
		p.st.ActiveRun, p.announced = name, name
		p.wakeAt(p.now)
		return nil
	}
	if _, err := p.start(ctx, last.Spec.Slot.Time, n); err != nil && !errors.Is(err, errNotBegun) {
		return err
	}
	return nil
}

// newestSlotRun is the newest repetition of the newest slot that has a run.
func (p *pass) newestSlotRun() *v1.SnapshotRun {
	var last *v1.SnapshotRun
	tries := 0
	for i := range p.runs {
		o := &p.runs[i]
		n, ours := run.Repetition(o, p.s)
		if !ours || notTaken(o) {
			continue
		}
		if last == nil || last.Spec.Slot.Before(o.Spec.Slot) || (last.Spec.Slot.Equal(o.Spec.Slot) && tries < n) {
			last, tries = o, n
		}
	}
	return last
}

// mayRepeat a run that has failed.
func (p *pass) mayRepeat(o *v1.SnapshotRun) bool {
	n, ours := run.Repetition(o, p.s)
	return ours && o.Status.Phase == v1.PhaseCompleted && o.Status.Result == v1.ResultFailed && o.DeletionTimestamp == nil &&
		n < int(ptr.Deref(p.s.Spec.RunRetryLimit, 0))
}

// notTaken: the run was for a slot that the schedule was not at. It has taken the slot's name and not its place.
func notTaken(o *v1.SnapshotRun) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, v1.ConditionComplete)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1.ReasonNotTaken
}

// persistedNext is the slot that was to come next when the schedule was last looked at; snapscheduler's is honoured.
func (p *pass) persistedNext() time.Time {
	next := p.st.NextSnapshotTime
	edited := p.st.ObservedGeneration != 0 && p.st.ObservedGeneration != p.s.Generation
	ready := meta.FindStatusCondition(p.st.Conditions, v1.ConditionReady)
	resumed := !p.s.Spec.Disabled && ready != nil && ready.Reason == v1.ReasonDisabled
	if next == nil || resumed || (edited && next.After(p.now)) {
		// What was to come next may be no slot of an edited schedule, and no slot is made up for that came while it was disabled.
		return p.cal.Next(p.now)
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
	p.st.LastMissed = &v1.MissedSlot{Slot: metav1.NewTime(slot.UTC()), Reason: reason, Count: count, NoticedTime: ptr.To(metav1.NewTime(p.now.Truncate(time.Second)))}
	why := map[string]string{
		v1.MissedTooLate:  "it could not be started within startingDeadlineSeconds",
		v1.MissedOverlap:  "the run before it has not released its application yet",
		v1.MissedDowntime: "the operator was not running, or could not create runs; only the newest missed slot is caught up",
	}[reason]
	p.event(warning, v1.EventSlotMissed, "Schedule", "slots not run: %d, the newest %s: %s", n, slot.UTC().Format(time.RFC3339), why)
	p.after(func() { metrics.SlotsMissed(metricsName(p.s, p.s.Name), reason, n) })
}

// start the run of a slot, or its nth repetition, unless the run before it may still hold the application. The run's name is the lock:
// whoever comes second finds it.
func (p *pass) start(ctx context.Context, slot time.Time, n int) (bool, error) {
	name := naming.RetryRun(p.s.Name, slot, n)
	for i := range p.runs {
		if o := &p.runs[i]; o.Name != name && run.ModeOf(o) == v1.RunSnapshot && run.BeforeAwaitingReady(o) {
			return false, p.notBegun(o)
		}
	}
	if active := p.st.ActiveRun; active != name && !p.knows(active) {
		// The cache may not have our newest run yet.
		o, err := p.liveRun(ctx, active)
		if err != nil {
			return false, err
		}
		if o != nil && run.BeforeAwaitingReady(o) {
			return false, p.notBegun(o)
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
	if n > 0 {
		o.Annotations = map[string]string{v1.AnnotationRetry: strconv.Itoa(n)}
	}
	if run.HasHooks(p.s) || run.GroupClass(p.s) != "" {
		o.Finalizers = []string{v1.FinalizerRelease}
	}
	err := p.Create(ctx, o)
	p.begun = err == nil
	if apierrors.IsAlreadyExists(err) {
		var existing v1.SnapshotRun
		if err := p.Live.Get(ctx, client.ObjectKeyFromObject(o), &existing); err != nil {
			return false, fmt.Errorf("reading SnapshotRun %s/%s that already exists: %w", o.Namespace, o.Name, err)
		}
		if _, ours := run.Repetition(&existing, p.s); !ours || run.ModeOf(&existing) != v1.RunSnapshot || notTaken(&existing) {
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

// liveRun of the schedule by name; nil: there is none. Whoever wrote the name may have meant anything.
func (p *pass) liveRun(ctx context.Context, name string) (*v1.SnapshotRun, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, nil //nolint:nilnil // nil says that it does not exist
	}
	var o v1.SnapshotRun
	err := p.Live.Get(ctx, types.NamespacedName{Namespace: p.s.Namespace, Name: name}, &o)
	if apierrors.IsNotFound(err) || (err == nil && o.Spec.ScheduleName != p.s.Name) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, fmt.Errorf("reading SnapshotRun %s/%s: %w", p.s.Namespace, name, err)
	}
	return &o, nil
}

func (p *pass) knows(name string) bool {
	for i := range p.runs {
		if p.runs[i].Name == name {
			return true
		}
	}
	return false
}
