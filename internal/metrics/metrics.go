// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the operator's Prometheus metrics. The first five carry snapscheduler's names and labels.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	claimLabels    = []string{"schedule_name", "schedule_namespace", "pvc_name"}
	scheduleLabels = []string{"schedule_name", "schedule_namespace"}

	current = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "snapscheduler_snapshot_current_count",
		Help: "VolumeSnapshots of a schedule and claim that exist."}, claimLabels)
	currentReady = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "snapscheduler_snapshot_current_ready_count",
		Help: "VolumeSnapshots of a schedule and claim that exist and are ready."}, claimLabels)
	created = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "snapscheduler_snapshot_create_total",
		Help: "VolumeSnapshots created."}, claimLabels)
	ready = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "snapscheduler_snapshot_ready_total",
		Help: "VolumeSnapshots that became ready in a completed run."}, claimLabels)
	createErrors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "snapscheduler_snapshot_create_error_total",
		Help: "Attempts to create a VolumeSnapshot that failed."}, claimLabels)

	runs = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "stillpoint_runs_total",
		Help: "Completed runs by result: Succeeded, PartiallyFailed, Failed, Skipped."}, append(scheduleLabels[:2:2], "result"))
	missed = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "stillpoint_missed_slots_total",
		Help: "Slots that were not run, by reason: TooLate, Overlap, Downtime."}, append(scheduleLabels[:2:2], "reason"))
	mayBeQuiesced = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "stillpoint_may_be_quiesced",
		Help: "1 while the schedule's application may be quiesced: during a run, and after a release that was given up."}, scheduleLabels)
	lastSuccess = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "stillpoint_last_success_timestamp_seconds",
		Help: "When the schedule's newest succeeded run completed, in seconds since 1970."}, scheduleLabels)
	quiesced = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "stillpoint_quiesce_seconds",
		Help:    "Time from the first pre hook of a run until its post hooks had ended.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}}, scheduleLabels)
)

func init() {
	ctrlmetrics.Registry.MustRegister(current, currentReady, created, ready, createErrors, runs, missed, mayBeQuiesced, lastSuccess, quiesced)
}

// SnapshotCreated counts a created VolumeSnapshot.
func SnapshotCreated(schedule, namespace, claim string) {
	created.WithLabelValues(schedule, namespace, claim).Inc()
}

// SnapshotCreateFailed counts a failed attempt to create one.
func SnapshotCreateFailed(schedule, namespace, claim string) {
	createErrors.WithLabelValues(schedule, namespace, claim).Inc()
}

// SnapshotReady counts a snapshot that became ready.
func SnapshotReady(schedule, namespace, claim string) {
	ready.WithLabelValues(schedule, namespace, claim).Inc()
}

// RunCompleted counts a run. quiescedSeconds is 0 if nothing was quiesced.
func RunCompleted(schedule, namespace, result string, quiescedSeconds float64) {
	runs.WithLabelValues(schedule, namespace, result).Inc()
	if quiescedSeconds > 0 {
		quiesced.WithLabelValues(schedule, namespace).Observe(quiescedSeconds)
	}
}

// SlotsMissed counts slots that were not run.
func SlotsMissed(schedule, namespace, reason string, n int) {
	missed.WithLabelValues(schedule, namespace, reason).Add(float64(n))
}

// SetMayBeQuiesced of a schedule.
func SetMayBeQuiesced(schedule, namespace string, may bool) {
	v := 0.0
	if may {
		v = 1
	}
	mayBeQuiesced.WithLabelValues(schedule, namespace).Set(v)
}

// SetLastSuccess of a schedule, in seconds since 1970.
func SetLastSuccess(schedule, namespace string, seconds float64) {
	lastSuccess.WithLabelValues(schedule, namespace).Set(seconds)
}

// SetCurrent counts the snapshots of a schedule by claim: how many exist, how many of them are ready.
func SetCurrent(schedule, namespace string, all, readyOnes map[string]int) {
	match := prometheus.Labels{"schedule_name": schedule, "schedule_namespace": namespace}
	current.DeletePartialMatch(match)
	currentReady.DeletePartialMatch(match)
	for claim, n := range all {
		current.WithLabelValues(schedule, namespace, claim).Set(float64(n))
		currentReady.WithLabelValues(schedule, namespace, claim).Set(float64(readyOnes[claim]))
	}
}

// Forget every series of a schedule that no longer exists.
func Forget(schedule, namespace string) {
	match := prometheus.Labels{"schedule_name": schedule, "schedule_namespace": namespace}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{current, currentReady, created, ready, createErrors, runs, missed, mayBeQuiesced, lastSuccess, quiesced} {
		v.DeletePartialMatch(match)
	}
}
