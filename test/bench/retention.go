// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// parallelDeletes is how many deletes the baseline has in flight, as the operator has of one schedule.
const parallelDeletes = 8

// retention: all schedules are to keep fewer of their snapshots from one moment on. The baseline deletes as many.
func retention(name string, schedules, snapshots, keep int) scenario {
	return scenario{name: name, run: func(ctx context.Context, w *world) (results []*result, err error) {
		many := snapshots
		if schedules == 1 {
			many = w.options.scaled(snapshots)
		} else {
			schedules = w.options.scaled(schedules)
		}
		f := &fleet{world: w, prefix: name, schedules: schedules, claims: 1}
		gone := &result{Scenario: name, What: fmt.Sprintf("%d schedules of %d snapshots: all but %d each are deleted", schedules, many, keep), Unit: "s"}
		load := &result{Scenario: name, What: "processor time of the operator, per snapshot deleted", Unit: "ms"}
		if err := f.build(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.clear(ctx), f.demolish(ctx)) }()
		for range w.options.rounds {
			if err := f.plant(ctx, many, 0); err != nil {
				return nil, err
			}
			bare, err := f.bareDeletes(ctx, many-keep)
			if err != nil {
				return nil, fmt.Errorf("running the baseline: %w", err)
			}
			if err := errors.Join(w.clear(ctx), f.plant(ctx, many, 0)); err != nil {
				return nil, err
			}
			took, cpu, err := f.expire(ctx, many, keep)
			if err := errors.Join(err, w.clear(ctx)); err != nil {
				return nil, err
			}
			gone.add(bare.Seconds(), took.Seconds())
			load.add(0, float64(cpu.Microseconds())/1000/float64(schedules*(many-keep)))
		}
		return []*result{gone, load}, nil
	}}
}

// bareDeletes deletes that many snapshots of each schedule.
func (f *fleet) bareDeletes(ctx context.Context, each int) (time.Duration, error) {
	cl, err := f.connect()
	if err != nil {
		return 0, err
	}
	var list snapshotv1.VolumeSnapshotList
	if err := f.admin.List(ctx, &list); err != nil {
		return 0, err
	}
	begin := time.Now()
	err = eachOf(parallelDeletes, f.schedules*each, func(i int) error { return cl.Delete(ctx, &list.Items[i]) })
	return time.Since(begin), err
}

// expire lets the operator delete all snapshots but some, once it is up, and tells how long that took.
func (f *fleet) expire(ctx context.Context, snapshots, keep int) (took, cpu time.Duration, err error) {
	o, err := f.launch(ctx, f.user)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, o.stop()) }()
	if err := f.noted(ctx); err != nil {
		return 0, 0, err
	}
	f.storage.reset()
	before, err := o.cpu()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"retention":{"maxCount":%d}}}`, keep))
	err = each(f.schedules, func(i int) error {
		s := &v1.SnapshotSchedule{}
		s.Namespace, s.Name = f.namespace(i), app(i)
		return f.admin.Patch(ctx, s, patch)
	})
	if err != nil {
		return 0, 0, err
	}
	waiting, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	t, err := f.storage.await(waiting, func(t tally) bool { return t.deleted == f.schedules*(snapshots-keep) })
	if err != nil {
		return 0, 0, errors.Join(err, o.alive())
	}
	after, err := o.cpu()
	return t.lastDeleted.Sub(begin), after - before, err
}
