// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// claimMemory is how long the counters of a claim that has no snapshot stay after the last time they were raised.
const claimMemory = 24 * time.Hour

// State is how a schedule stands. A zero time or an empty string leaves its series out.
type State struct {
	// Ready and ReadyReason of the condition Ready.
	Ready       bool
	ReadyReason string
	// NextRun is when the next run begins; zero for a schedule that is disabled or not valid.
	NextRun time.Time
	// LastSuccess is when the newest succeeded run completed.
	LastSuccess time.Time
	// SuccessDue is by when a run must have succeeded; zero: none is asked for.
	SuccessDue time.Time
	// LastResult of the newest completed run.
	LastResult string
	// LastMissed is when slots were last found to be missed, and why.
	LastMissed       time.Time
	LastMissedReason string
	// Quiesced: a run has quiesced the application and not yet released it. MayBeQuiesced: that, or a release was given up.
	Quiesced, MayBeQuiesced bool
	// QuiesceDeadline is when the application should be free at the latest; zero while it is.
	QuiesceDeadline time.Time
	// FailedPreHooks and FailedPostHooks of the newest run: hooks that have failed, or whose newest attempt has.
	FailedPreHooks, FailedPostHooks int
	// ClaimsLeftOut of the newest run.
	ClaimsLeftOut int
	// RetentionFailing: the last look could not delete what should go.
	RetentionFailing bool
	// Snapshots by state.
	Snapshots map[SnapshotState]Snapshots
	// Claims by name: those that have snapshots.
	Claims map[string]Claim
}

// SnapshotState is how far a VolumeSnapshot has come.
type SnapshotState string

// States of a VolumeSnapshot.
const (
	Pending  SnapshotState = "Pending"  // not cut yet
	Cut      SnapshotState = "Cut"      // content fixed, not restorable yet
	Ready    SnapshotState = "Ready"    // restorable
	Failed   SnapshotState = "Failed"   // never will be
	Deleting SnapshotState = "Deleting" // deletion was asked for
)

var snapshotStates = []SnapshotState{Pending, Cut, Ready, Failed, Deleting}

// Snapshots of one state.
type Snapshots struct {
	Count int
	// Since is the oldest one's creation; of state Deleting, when its deletion began.
	Since time.Time
}

// Claim counts the snapshots of one claim.
type Claim struct{ All, Ready int }

// raised are the counters of one claim.
type raised struct {
	created, ready, failed float64
	at                     time.Time
}

// standing is what is known of one schedule.
type standing struct {
	known  bool // its state was set
	gone   bool // it is deleted: only what tells of its application is left
	state  State
	claims map[string]*raised
}

// collector holds the gauges of all schedules and the counters of their claims.
type collector struct {
	mu  sync.Mutex
	all map[Schedule]*standing
}

var schedules = &collector{all: map[Schedule]*standing{}}

// SetState replaces what the gauges say of a schedule.
func SetState(s Schedule, state State, now time.Time) {
	c := schedules
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.of(s)
	if !st.known || st.gone {
		begin(s)
	}
	st.known, st.gone, st.state = true, false, state
	maps.DeleteFunc(st.claims, func(name string, r *raised) bool {
		_, has := state.Claims[name]
		return !has && now.Sub(r.at) > claimMemory
	})
}

// SetUnreleased is Forget for a schedule with a run that has not released its application: what tells of that stays.
func SetUnreleased(s Schedule, deadline time.Time) {
	c := schedules
	c.mu.Lock()
	c.all[s] = &standing{known: true, gone: true, state: State{Quiesced: true, MayBeQuiesced: true, QuiesceDeadline: deadline}, claims: map[string]*raised{}}
	c.mu.Unlock()
	forgetCounted(s)
}

// SnapshotCreated counts a VolumeSnapshot that was created.
func SnapshotCreated(s Schedule, claim string, now time.Time) {
	schedules.raise(s, claim, now, func(r *raised) { r.created++ })
}

// SnapshotCreateFailed counts an attempt to create one that failed.
func SnapshotCreateFailed(s Schedule, claim string, now time.Time) {
	schedules.raise(s, claim, now, func(r *raised) { r.failed++ })
}

// SnapshotReady counts one that a run's record says is ready.
func SnapshotReady(s Schedule, claim string, now time.Time) {
	schedules.raise(s, claim, now, func(r *raised) { r.ready++ })
}

func (c *collector) raise(s Schedule, claim string, now time.Time, what func(*raised)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.of(s)
	r := st.claims[claim]
	if r == nil {
		r = &raised{}
		st.claims[claim] = r
	}
	r.at = now
	what(r)
}

// of returns what is known of a schedule. The caller holds the lock.
func (c *collector) of(s Schedule) *standing {
	st := c.all[s]
	if st == nil {
		st = &standing{claims: map[string]*raised{}}
		c.all[s] = st
	}
	return st
}

func (c *collector) forget(s Schedule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, s)
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, scheduleLabels(labels...), nil)
}

var (
	currentCount = desc("snapscheduler_snapshot_current_count", "VolumeSnapshots of a schedule and claim that exist.", labelClaim)
	currentReady = desc("snapscheduler_snapshot_current_ready_count", "VolumeSnapshots of a schedule and claim that exist and are ready.", labelClaim)
	createTotal  = desc("snapscheduler_snapshot_create_total", "VolumeSnapshots created.", labelClaim)
	readyTotal   = desc("snapscheduler_snapshot_ready_total", "VolumeSnapshots that became ready while their run waited for them.", labelClaim)
	createErrors = desc("snapscheduler_snapshot_create_error_total", "Attempts to create a VolumeSnapshot that failed.", labelClaim)

	scheduleReady = desc("stillpoint_schedule_ready",
		"1 if the schedule is valid and scheduled, or disabled; 0 if it cannot run. The reason is that of its condition Ready.", labelReason)
	nextRun = desc("stillpoint_next_run_timestamp_seconds",
		"When the schedule's next run begins, in seconds since 1970; absent while it is disabled or not valid.")
	lastSuccess = desc("stillpoint_last_success_timestamp_seconds",
		"When the schedule's newest succeeded run completed, in seconds since 1970; absent until one has.")
	successDue = desc("stillpoint_success_due_timestamp_seconds",
		"By when a run must have succeeded, in seconds since 1970: two slots after the last success, or after the schedule began; absent while it is disabled or not valid.")
	lastRun = desc("stillpoint_last_run_info",
		"1, with the result of the newest completed run: Succeeded, PartiallyFailed, Failed, Skipped; absent until one has completed.", labelResult)
	lastMissed = desc("stillpoint_last_missed_slot_timestamp_seconds",
		"When a slot was last found to be missed, in seconds since 1970, with the reason: TooLate, Overlap, Downtime; absent if none was.", labelReason)
	quiesced = desc("stillpoint_quiesced",
		"1 while a run of the schedule has quiesced its application and has not released it yet.")
	mayBeQuiesced = desc("stillpoint_may_be_quiesced",
		"1 while the schedule's application may be quiesced: during a run, and after a release that was given up.")
	quiesceDeadline = desc("stillpoint_quiesce_deadline_timestamp_seconds",
		"By when the application should be released, in seconds since 1970: the limits of the run that has quiesced it, or when its release was given up; absent while nothing is quiesced.")
	failedHooks = desc("stillpoint_failed_hooks",
		"Hooks of the schedule's newest run that have failed, or whose newest attempt has, by stage: Pre, Post.", labelStage)
	claimsLeftOut = desc("stillpoint_claims_left_out",
		"Claims that match the schedule and could not be taken by its newest run.")
	retentionFailing = desc("stillpoint_retention_failing",
		"1 if retention could not delete what should go when it last looked.")
	snapshotCount = desc("stillpoint_snapshots",
		"VolumeSnapshots of the schedule that exist, by state: Pending, Cut, Ready, Failed, Deleting.", labelState)
	oldestSnapshot = desc("stillpoint_oldest_snapshot_timestamp_seconds",
		"When the oldest VolumeSnapshot of a state was created, or, in state Deleting, when its deletion began, in seconds since 1970.", labelState)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{currentCount, currentReady, createTotal, readyTotal, createErrors, scheduleReady, nextRun, lastSuccess, successDue,
		lastRun, lastMissed, quiesced, mayBeQuiesced, quiesceDeadline, failedHooks, claimsLeftOut, retentionFailing, snapshotCount, oldestSnapshot} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, st := range c.all {
		for claim, r := range st.claims {
			for d, v := range map[*prometheus.Desc]float64{createTotal: r.created, readyTotal: r.ready, createErrors: r.failed} {
				ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, s.with(claim)...)
			}
		}
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.with(labels...)...)
		}
		if st.known {
			st.state.collectQuiesced(gauge)
		}
		if st.known && !st.gone {
			st.state.collect(gauge)
		}
	}
}

// gaugeFunc takes the value of a gauge, without the labels of the schedule.
type gaugeFunc func(d *prometheus.Desc, v float64, labels ...string)

func (gauge gaugeFunc) at(d *prometheus.Desc, t time.Time, labels ...string) {
	if !t.IsZero() {
		gauge(d, float64(t.UnixMilli())/1000, labels...)
	}
}

func (s *State) collectQuiesced(gauge gaugeFunc) {
	gauge(quiesced, bit(s.Quiesced))
	gauge(mayBeQuiesced, bit(s.MayBeQuiesced))
	gauge.at(quiesceDeadline, s.QuiesceDeadline)
}

func (s *State) collect(gauge gaugeFunc) {
	if s.ReadyReason != "" {
		gauge(scheduleReady, bit(s.Ready), s.ReadyReason)
	}
	gauge.at(nextRun, s.NextRun)
	gauge.at(lastSuccess, s.LastSuccess)
	gauge.at(successDue, s.SuccessDue)
	if s.LastResult != "" {
		gauge(lastRun, 1, s.LastResult)
	}
	gauge.at(lastMissed, s.LastMissed, s.LastMissedReason)
	gauge(failedHooks, float64(s.FailedPreHooks), "Pre")
	gauge(failedHooks, float64(s.FailedPostHooks), "Post")
	gauge(claimsLeftOut, float64(s.ClaimsLeftOut))
	gauge(retentionFailing, bit(s.RetentionFailing))
	for _, state := range snapshotStates {
		gauge(snapshotCount, float64(s.Snapshots[state].Count), string(state))
		gauge.at(oldestSnapshot, s.Snapshots[state].Since, string(state))
	}
	for name, n := range s.Claims {
		gauge(currentCount, float64(n.All), name)
		gauge(currentReady, float64(n.Ready), name)
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
