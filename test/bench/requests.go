// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	// countedRuns is over how many runs requests are averaged: those that depend on who comes first differ from run to run.
	countedRuns = 50
	// quiet is how long nothing is asked once the operator has nothing to do.
	quiet = 3 * time.Second
)

// requestsPerRun counts what the operator asks of the API server for one run of one claim, and what that makes etcd write.
func requestsPerRun(name string, hooks bool, most target) scenario {
	return scenario{name: name, run: func(ctx context.Context, w *world) (results []*result, err error) {
		asked := &result{Scenario: name, What: "API requests per run", Unit: "requests", Target: most}
		wrote := &result{Scenario: name, What: "bytes written to etcd per run, the harness's part included", Unit: "bytes"}
		err = w.countRuns(ctx, name, countedRuns, hooks, w.options.rounds, func(round countedRound) {
			asked.add(0, float64(sum(round.requests))/countedRuns)
			wrote.add(0, round.written/countedRuns)
			asked.Note = list(round.requests, countedRuns)
		})
		if err != nil {
			return nil, err
		}
		return []*result{asked, wrote}, nil
	}}
}

// countedRound is what some runs cost.
type countedRound struct {
	requests map[string]int
	written  float64
}

// countRuns starts a run of every schedule of a fleet, several times, and tells what each time costs.
func (w *world) countRuns(ctx context.Context, name string, schedules int, hooks bool, rounds int, tell func(countedRound)) (err error) {
	f := &fleet{world: w, prefix: name, schedules: schedules, claims: 1, hooks: hooks}
	if err := f.build(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.demolish(ctx)) }()
	c, config, err := count(w.user)
	if err != nil {
		return err
	}
	defer c.stop()
	o, err := w.launch(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.stop(), w.clear(ctx)) }()
	if err := f.plan(ctx, never()); err != nil {
		return err
	}
	for k := range rounds {
		// Two runs of one minute want the same names for their snapshots; settling that costs requests, too.
		if err := errors.Join(f.clearKind(ctx, &snapshotv1.VolumeSnapshot{}), c.settle(ctx)); err != nil {
			return err
		}
		before, err := f.etcdWritten(ctx)
		if err != nil {
			return err
		}
		if err := f.runAll(ctx, c, k); err != nil {
			return errors.Join(err, o.alive())
		}
		if err := c.await(ctx); err != nil {
			return err
		}
		after, err := f.etcdWritten(ctx)
		if err != nil {
			return err
		}
		tell(countedRound{c.take(), after - before})
	}
	return nil
}

// idleRequests counts what is asked while no schedule is due.
func idleRequests(name string, schedules int, lasting time.Duration) scenario {
	return scenario{name: name, run: func(ctx context.Context, w *world) (results []*result, err error) {
		f := &fleet{world: w, prefix: name, schedules: w.options.scaled(schedules), claims: 1}
		lasting := time.Duration(float64(lasting) * w.options.scale)
		asked := &result{Scenario: name, What: fmt.Sprintf("API requests of %d schedules in %s, but for the lease and watches", f.schedules, lasting), Unit: "requests", Target: target{None: true}}
		if err := f.build(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.demolish(ctx)) }()
		c, config, err := count(w.user)
		if err != nil {
			return nil, err
		}
		defer c.stop()
		o, err := w.launch(ctx, config)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, o.stop(), w.clear(ctx)) }()
		if err := errors.Join(f.plan(ctx, never()), c.settle(ctx)); err != nil {
			return nil, err
		}
		if err := wait(ctx, lasting); err != nil {
			return nil, err
		}
		counts := c.take()
		asked.add(0, float64(sum(counts)))
		asked.Note = list(counts, 1)
		return []*result{asked}, o.alive()
	}}
}

// never is a calendar whose slot is half a year away.
func never() string { return fmt.Sprintf("0 0 1 %d *", time.Now().AddDate(0, 6, 0).Month()) }

// runAll starts one run of each schedule by hand and waits until they are over. The storage answers when all have created
// their snapshots: what a run records meanwhile then does not depend on how fast the storage is.
func (f *fleet) runAll(ctx context.Context, c *counter, k int) error {
	f.storage.reset()
	f.storage.rest(true)
	defer f.storage.resume()
	err := each(f.schedules, func(i int) error {
		r := &v1.SnapshotRun{Spec: v1.SnapshotRunSpec{ScheduleName: app(i)}}
		r.Namespace, r.Name = f.namespace(i), fmt.Sprintf("%s-%d", app(i), k)
		return f.admin.Create(ctx, r)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if _, err := f.storage.await(ctx, func(t tally) bool { return t.created == f.schedules }); err != nil {
		return err
	}
	if f.hooks { // an application waits; without one, a run records nothing if the storage answers soon
		if err := c.await(ctx); err != nil {
			return err
		}
	}
	f.storage.resume()
	return poll(ctx, 200*time.Millisecond, func() (bool, error) {
		var list v1.SnapshotRunList
		if err := f.admin.List(ctx, &list, cached); err != nil {
			return false, err
		}
		over := 0
		for i := range list.Items {
			r := &list.Items[i]
			if !strings.HasSuffix(r.Name, "-"+strconv.Itoa(k)) || r.Status.CompletionTime == nil {
				continue
			}
			if r.Status.Result != v1.ResultSucceeded {
				return false, fmt.Errorf("run %s ended as %s: %s", r.Name, r.Status.Result, r.Status.Message)
			}
			over++
		}
		return over == f.schedules, nil
	})
}

// await until nothing was asked for a while.
func (c *counter) await(ctx context.Context) error {
	total := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for kind, k := range c.counts {
			if !constant(kind) {
				n += k
			}
		}
		return n
	}
	last, since := total(), time.Now()
	return poll(ctx, 100*time.Millisecond, func() (bool, error) {
		if now := total(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= quiet, nil
	})
}

// settle until nothing is asked, and begin to count.
func (c *counter) settle(ctx context.Context) error {
	err := c.await(ctx)
	c.take()
	return err
}

// etcdWritten is how many bytes etcd has written to its log.
func (w *world) etcdWritten(ctx context.Context) (float64, error) {
	address := *w.env.ControlPlane.Etcd.URL
	address.Path = "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("reading etcd's metrics: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("reading etcd's metrics: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "etcd_disk_wal_write_bytes_total "); ok {
			return strconv.ParseFloat(strings.TrimSpace(v), 64)
		}
	}
	return 0, errors.New("etcd does not tell how much it has written")
}
