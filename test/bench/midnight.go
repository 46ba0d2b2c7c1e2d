// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// midnight: many schedules are due in the same second. The baseline creates the same VolumeSnapshots, many at a time. Nobody makes them ready before
// the last one is created, neither its nor, where no hook waits for the cut, the operator's.
func midnight(name string, schedules, claims int, hooks bool, created, completed target) scenario {
	return scenario{name: name, run: func(ctx context.Context, w *world) (results []*result, err error) {
		f := &fleet{world: w, prefix: name, schedules: w.options.scaled(schedules), claims: claims, hooks: hooks}
		all := fmt.Sprintf("%d schedules of %d claims", f.schedules, claims)
		last := &result{Scenario: name, What: all + ": last VolumeSnapshot created", Unit: "s", Target: created}
		done := &result{Scenario: name, What: all + ": all runs completed", Unit: "s", Target: completed}
		load := &result{Scenario: name, What: "processor time of the operator, per run", Unit: "ms"}
		if err := f.build(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.demolish(ctx)) }()
		o, err := w.launch(ctx, w.user)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, o.stop(), w.clear(ctx)) }()
		for range w.options.rounds {
			bare, err := f.bareSnapshots(ctx)
			if err != nil {
				return nil, fmt.Errorf("running the baseline: %w", err)
			}
			before, err := o.cpu()
			if err != nil {
				return nil, err
			}
			first, end, requests, err := f.dueAtOnce(ctx, o)
			if err != nil {
				return nil, err
			}
			after, err := o.cpu()
			if err != nil {
				return nil, err
			}
			last.add(bare.Seconds(), first.Seconds())
			last.Note = "at the API server, in the last round:\n" + requests
			if end > 0 {
				done.add(bare.Seconds(), end.Seconds())
			}
			load.add(0, float64((after-before).Milliseconds())/float64(f.schedules))
			if err := w.clear(ctx); err != nil {
				return nil, err
			}
		}
		return []*result{last, done, load}, nil
	}}
}

// bareSnapshots creates what the schedules would, and tells how long that took.
func (f *fleet) bareSnapshots(ctx context.Context) (time.Duration, error) {
	cl, err := f.connect()
	if err != nil {
		return 0, err
	}
	f.storage.rest(true)
	defer f.storage.rest(false)
	begin := time.Now()
	err = each(f.schedules*f.claims, func(n int) error {
		i, j := n/f.claims, n%f.claims
		return cl.Create(ctx, snapshot(f.namespace(i), claimName(i, j), claimName(i, j)))
	})
	took := time.Since(begin)
	return took, errors.Join(err, f.clear(ctx))
}

// dueAtOnce lets every schedule of the fleet come due in the same second, and tells how long after that the last VolumeSnapshot was there and the
// last run completed (0: there are no runs), and what the API server was asked meanwhile.
func (f *fleet) dueAtOnce(ctx context.Context, o *operator) (created, completed time.Duration, requests string, err error) {
	f.storage.reset()
	lead := 15*time.Second + time.Duration(f.schedules)*8*time.Millisecond // to write the schedules and have them noted
	slot := time.Now().Add(lead).Truncate(time.Minute).Add(time.Minute)
	early, cancel := context.WithDeadline(ctx, slot)
	defer cancel()
	if err := f.plan(early, slot.UTC().Format("4 15 2 1 *")); err != nil {
		return 0, 0, "", fmt.Errorf("writing schedules before they are due: %w", err)
	}
	before, err := f.latencies(ctx)
	if err != nil {
		return 0, 0, "", err
	}
	ctx, cancel = context.WithDeadline(ctx, slot.Add(10*time.Minute))
	defer cancel()
	if !f.hooks {
		f.storage.rest(true)
	}
	t, err := f.storage.await(ctx, func(t tally) bool { return t.created == f.schedules*f.claims })
	f.storage.resume()
	if err != nil {
		return 0, 0, "", errors.Join(err, o.alive())
	}
	created = t.lastCreated.Sub(slot)
	err = poll(ctx, time.Second+time.Duration(f.schedules)*time.Millisecond, func() (bool, error) {
		var over bool
		completed, over, err = f.completed(ctx, slot)
		return over, err
	})
	if err != nil {
		return 0, 0, "", err
	}
	after, err := f.latencies(ctx)
	return created, completed, after.since(before), err
}

// completed is how long after the slot the last run was; over is true if all are. A run that did not succeed is an error.
func (f *fleet) completed(ctx context.Context, slot time.Time) (last time.Duration, over bool, err error) {
	var list v1.SnapshotRunList
	if err := f.admin.List(ctx, &list, cached); err != nil {
		return 0, false, err
	}
	for i := range list.Items {
		st := &list.Items[i].Status
		switch {
		case st.CompletionTime == nil:
			return 0, false, nil
		case st.Result != v1.ResultSucceeded:
			return 0, false, fmt.Errorf("run %s ended as %s: %s", list.Items[i].Name, st.Result, st.Message)
		}
		last = max(last, st.CompletionTime.Sub(slot))
	}
	return last, len(list.Items) == 0 || len(list.Items) == f.schedules, nil
}
