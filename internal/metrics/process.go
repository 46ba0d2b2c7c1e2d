// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Pool is how busy the pool is that hooks run in.
type Pool struct {
	Quiesce, Release Lane
	// Held commands are ready and keep running, or are being released.
	Held int
}

// Lane of the pool: pre hooks run in one, post hooks in another.
type Lane struct{ InFlight, Queued int }

// working is this process while it leads.
type working struct {
	leads atomic.Bool
	pool  atomic.Pointer[func() Pool]
}

var process = &working{}

// Leads says whether this process is the operator that works. pool tells how busy its hooks are.
func Leads(leads bool, pool func() Pool) {
	process.pool.Store(&pool)
	process.leads.Store(leads)
}

var (
	leader = prometheus.NewDesc("stillpoint_leader",
		"1 if this process is the operator that works; others wait for its lease.", nil, nil)
	inFlight = prometheus.NewDesc("stillpoint_hooks_in_flight",
		"Hook commands that own a slot of the pool, by lane: quiesce (pre hooks), release (post hooks).", []string{labelLane}, nil)
	queued = prometheus.NewDesc("stillpoint_hooks_queued",
		"Hook commands that wait for a slot of the pool, by lane: quiesce (pre hooks), release (post hooks).", []string{labelLane}, nil)
	held = prometheus.NewDesc("stillpoint_hooks_held",
		"Held commands that are ready, or are being released; they own no slot.", nil, nil)
)

// Describe implements prometheus.Collector.
func (w *working) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leader, inFlight, queued, held} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (w *working) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(leader, bit(w.leads.Load()))
	var p Pool
	if look := w.pool.Load(); look != nil {
		p = (*look)()
	}
	for lane, l := range map[string]Lane{"quiesce": p.Quiesce, "release": p.Release} {
		gauge(inFlight, float64(l.InFlight), lane)
		gauge(queued, float64(l.Queued), lane)
	}
	gauge(held, float64(p.Held))
}
