// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

const (
	mb = 1e6
	// resident is how long a process is left alone before its memory is read: Go collects garbage at the latest after two minutes, and then gives back.
	resident = 150 * time.Second
	// readings of the memory, a second apart; the smallest counts, for in between stands what is about to be collected.
	readings = 10
)

// memoryOfOthers: how much the operator grows when the cluster fills with what is none of its business.
func memoryOfOthers(name string, schedules, snapshots, foreign int) scenario {
	return scenario{name: name, run: func(ctx context.Context, w *world) (results []*result, err error) {
		f := &fleet{world: w, prefix: name, schedules: w.options.scaled(schedules), claims: 1}
		others := w.options.scaled(foreign)
		own := &result{Scenario: name, What: fmt.Sprintf("memory (RSS) with %d schedules of %d snapshots", f.schedules, snapshots), Unit: "MB"}
		growth := &result{Scenario: name, What: fmt.Sprintf("growth by %d foreign snapshots, claims and pods each", others), Unit: "MB", Target: target{Value: 2}}
		defer func() { err = errors.Join(err, w.clear(ctx), f.demolish(ctx)) }()
		if err := errors.Join(f.build(ctx), f.plant(ctx, snapshots, 0)); err != nil {
			return nil, err
		}
		for k := range w.options.rounds {
			o, err := w.launch(ctx, w.user)
			if err != nil {
				return nil, err
			}
			before, err := o.settled(ctx)
			if err == nil {
				err = f.strangers(ctx, k, others)
			}
			var after float64
			if err == nil {
				after, err = o.settled(ctx)
			}
			if err := errors.Join(err, o.stop(), f.dismiss(ctx, k)); err != nil {
				return nil, err
			}
			own.add(0, before)
			growth.add(0, after-before)
		}
		return []*result{own, growth}, nil
	}}
}

// settled is the memory that a process needs when it does nothing, in MB.
func (o *operator) settled(ctx context.Context) (float64, error) {
	if err := wait(ctx, resident); err != nil {
		return 0, err
	}
	least := int64(0)
	for range readings {
		now, err := o.memory()
		if err != nil {
			return 0, errors.Join(err, o.alive())
		}
		if least == 0 || now < least {
			least = now
		}
		if err := wait(ctx, time.Second); err != nil {
			return 0, err
		}
	}
	return float64(least) / mb, nil
}

// wait is for what is measured by leaving it alone.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// plant the schedules of a fleet with their history: snapshots that were taken an hour apart, and completed runs.
func (f *fleet) plant(ctx context.Context, snapshots, runs int) error {
	f.storage.rest(true) // these are ready already
	defer f.storage.rest(false)
	now := time.Now().Truncate(time.Hour)
	return each(f.schedules, func(i int) error {
		s := f.schedule(i, never())
		if err := f.admin.Create(ctx, s); err != nil {
			return err
		}
		for k := range snapshots {
			if err := f.past(ctx, i, now.Add(-time.Duration(k+1)*time.Hour)); err != nil {
				return err
			}
		}
		for k := range runs {
			if err := f.pastRun(ctx, s, now.Add(-time.Duration(k+1)*time.Hour)); err != nil {
				return err
			}
		}
		return nil
	})
}

// past snapshot of a schedule.
func (f *fleet) past(ctx context.Context, i int, at time.Time) error {
	claim := claimName(i, 0)
	o := snapshot(f.namespace(i), naming.Snapshot(claim, app(i), at), claim)
	o.Labels = map[string]string{v1.LabelSchedule: naming.ScheduleLabel(app(i)), v1.LabelWhen: naming.When(at)}
	return f.ready(ctx, o, at)
}

// ready creates a snapshot that was cut at that time.
func (w *world) ready(ctx context.Context, o *snapshotv1.VolumeSnapshot, cut time.Time) error {
	if err := w.admin.Create(ctx, o); err != nil {
		return err
	}
	return w.admin.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, readyPatch(o.Name, cut)))
}

// pastRun of a schedule, as it is recorded when it is over.
func (f *fleet) pastRun(ctx context.Context, s *v1.SnapshotSchedule, at time.Time) error {
	r := &v1.SnapshotRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: naming.Run(s.Name, at), Labels: map[string]string{v1.LabelSchedule: naming.ScheduleLabel(s.Name)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: "SnapshotSchedule", Name: s.Name, UID: s.UID, Controller: ptr.To(true)}}},
		Spec: v1.SnapshotRunSpec{ScheduleName: s.Name, Slot: ptr.To(metav1.NewTime(at))},
	}
	if err := f.admin.Create(ctx, r); err != nil {
		return err
	}
	t := ptr.To(metav1.NewMicroTime(at))
	claim := s.Name + "-data"
	r.Status = v1.SnapshotRunStatus{Phase: v1.PhaseCompleted, Result: v1.ResultSucceeded, Message: "1 snapshot was taken", StartTime: t, SnapshottingTime: t, CutTime: t, CompletionTime: t,
		Snapshots: []v1.SnapshotStatus{{Name: naming.Snapshot(claim, s.Name, at), Claim: claim, ClaimUID: types.UID(claim), State: v1.SnapshotReady}}}
	return f.admin.Status().Update(ctx, r)
}

// strangers of a round: as many snapshots, claims and pods that are nobody's business, in the namespaces of the fleet.
func (f *fleet) strangers(ctx context.Context, k, n int) error {
	f.storage.rest(true)
	defer f.storage.rest(false)
	labels := map[string]string{labelStranger: fmt.Sprint(k)}
	return each(n, func(i int) error {
		name, ns := fmt.Sprintf("stranger-%d-%d", k, i), f.namespace(i%f.schedules)
		s := snapshot(ns, name, name)
		s.Labels = labels
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Spec: claimSpec("pv-" + ns + "-" + name)}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
			Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
		return errors.Join(f.ready(ctx, s, time.Now()), f.admin.Create(ctx, c), f.admin.Create(ctx, p))
	})
}

const labelStranger = "stranger"

// dismiss the strangers of a round.
func (f *fleet) dismiss(ctx context.Context, k int) error {
	var errs []error
	for _, kind := range []client.Object{&snapshotv1.VolumeSnapshot{}, &corev1.PersistentVolumeClaim{}, &corev1.Pod{}} {
		errs = append(errs, f.clearKind(ctx, kind, client.MatchingLabels{labelStranger: fmt.Sprint(k)}))
	}
	return errors.Join(errs...)
}

// startUp: many schedules with a history. From the start of the process to the first snapshot it takes, what it then needs, and how soon another
// one takes over. The baseline lists the same objects once.
func startUp(name string, schedules, snapshots, runs int) scenario {
	return scenario{name: name, run: func(ctx context.Context, w *world) (results []*result, err error) {
		f := &fleet{world: w, prefix: name, schedules: w.options.scaled(schedules), claims: 1}
		all := fmt.Sprintf("%d schedules of %d snapshots and %d runs", f.schedules, snapshots, runs)
		first := &result{Scenario: name, What: all + ": from start to the first snapshot", Unit: "s"}
		rss := &result{Scenario: name, What: all + ": memory (RSS)", Unit: "MB", Target: target{Value: 200}}
		handover := &result{Scenario: name, What: "from SIGTERM until another operator leads", Unit: "s"}
		defer func() { err = errors.Join(err, w.clear(ctx), f.demolish(ctx)) }()
		if err := errors.Join(f.build(ctx), f.plant(ctx, snapshots, runs)); err != nil {
			return nil, err
		}
		for k := range w.options.rounds {
			bare, err := w.listAll(ctx)
			if err != nil {
				return nil, err
			}
			soon, mem, over, err := f.startOnce(ctx, k)
			if err != nil {
				return nil, err
			}
			first.add(bare.Seconds(), soon.Seconds())
			rss.add(0, mem)
			handover.add(0, over.Seconds())
		}
		return []*result{first, rss, handover}, nil
	}}
}

// listAll reads once what an operator has to know.
func (w *world) listAll(ctx context.Context) (time.Duration, error) {
	cl, err := w.connect()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for _, l := range []client.ObjectList{&v1.SnapshotScheduleList{}, &v1.SnapshotRunList{}, &snapshotv1.VolumeSnapshotList{}} {
		if err := cl.List(ctx, l, cached); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

func (f *fleet) startOnce(ctx context.Context, k int) (first time.Duration, mem float64, handover time.Duration, err error) {
	f.storage.reset()
	r := &v1.SnapshotRun{Spec: v1.SnapshotRunSpec{ScheduleName: app(0)}}
	r.Namespace, r.Name = f.namespace(0), fmt.Sprintf("first-%d", k)
	if err := f.admin.Create(ctx, r); err != nil {
		return 0, 0, 0, err
	}
	begin := time.Now()
	o, err := f.launch(ctx, f.user)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, o.stop()) }()
	waiting, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	t, err := f.storage.await(waiting, func(t tally) bool { return t.created > 0 })
	if err != nil {
		return 0, 0, 0, errors.Join(err, o.alive())
	}
	if mem, err = o.settled(ctx); err != nil {
		return 0, 0, 0, err
	}
	next, err := f.spawn(f.user)
	if err != nil {
		return 0, 0, 0, err
	}
	if err := wait(ctx, 20*time.Second); err != nil { // until it has filled its caches and waits for the lease
		return 0, 0, 0, errors.Join(err, next.stop())
	}
	before, err := f.leader(ctx)
	if err != nil {
		return 0, 0, 0, errors.Join(err, next.stop())
	}
	end := time.Now()
	err = o.stop()
	if err == nil {
		err = next.leads(ctx, f.world, before)
	}
	handover = time.Since(end)
	return t.lastCreated.Sub(begin), mem, handover, errors.Join(err, next.stop())
}
