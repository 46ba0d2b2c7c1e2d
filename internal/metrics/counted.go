// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

const (
	labelName      = "schedule_name"
	labelNamespace = "schedule_namespace"
	labelClaim     = "pvc_name"
	labelResult    = "result"
	labelReason    = "reason"
	labelStage     = "stage"
	labelState     = "state"
	labelRule      = "rule"
	labelLane      = "lane"
)

// Schedule names a schedule.
type Schedule struct{ Namespace, Name string }

func (s Schedule) labels() prometheus.Labels {
	return prometheus.Labels{labelName: s.Name, labelNamespace: s.Namespace}
}

func (s Schedule) with(more ...string) []string {
	return append([]string{s.Name, s.Namespace}, more...)
}

func scheduleLabels(more ...string) []string {
	return append([]string{labelName, labelNamespace}, more...)
}

// forgettable is a vector of metrics with a schedule's labels.
type forgettable interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

var bySchedule []forgettable

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, scheduleLabels(labels...))
	bySchedule = append(bySchedule, v)
	return v
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, scheduleLabels(labels...))
	bySchedule = append(bySchedule, v)
	return v
}

var (
	runs = counter("stillpoint_runs_total",
		"Completed runs by result: Succeeded, PartiallyFailed, Failed, Skipped.", labelResult)
	missed = counter("stillpoint_missed_slots_total",
		"Slots that were not run, by reason: TooLate, Overlap, Downtime.", labelReason)
	deletions = counter("stillpoint_retention_deletions_total",
		"VolumeSnapshots that retention deleted, by the rule that did not keep them.", labelRule)
	hookRuns = counter("stillpoint_hook_runs_total",
		"Attempts of hooks that have ended, one for each target, by stage (Pre, Post) and by the reason of their end; Completed is success.", labelStage, labelReason)

	startDelay = histogram("stillpoint_start_delay_seconds",
		"Time from when a slot's run was due until it began; a run with hooks begins when it holds its locks.",
		[]float64{1, 5, 30, 60, 300, 1800, 7200})
	quiesce = histogram("stillpoint_quiesce_seconds",
		"Time from the first pre hook of a run until its post hooks had ended.",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900})
	hookSeconds = histogram("stillpoint_hook_seconds",
		"Time that attempts of hooks took, by stage and by the reason of their end; of a held command until it was released.",
		[]float64{.1, .5, 1, 5, 10, 30, 60, 300}, labelStage, labelReason)
	cutSeconds = histogram("stillpoint_snapshot_cut_seconds",
		"Time from the creation of a VolumeSnapshot until its content was fixed.",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300})
	readySeconds = histogram("stillpoint_snapshot_ready_seconds",
		"Time from the creation of a VolumeSnapshot until it could be restored from.",
		[]float64{1, 5, 30, 60, 300, 900, 3600, 14400, 43200})
)

func init() {
	for _, v := range bySchedule {
		ctrlmetrics.Registry.MustRegister(v)
	}
	ctrlmetrics.Registry.MustRegister(schedules, process)
}

// RunCompleted counts a run.
func RunCompleted(s Schedule, result string) { runs.WithLabelValues(s.with(result)...).Inc() }

// SlotsMissed counts slots that were not run.
func SlotsMissed(s Schedule, reason string, n int) {
	missed.WithLabelValues(s.with(reason)...).Add(float64(n))
}

// SnapshotExpired counts a snapshot that retention deleted.
func SnapshotExpired(s Schedule, rule string) { deletions.WithLabelValues(s.with(rule)...).Inc() }

// HookEnded counts an attempt of a hook in one target.
func HookEnded(s Schedule, stage, reason string, took time.Duration) {
	hookRuns.WithLabelValues(s.with(stage, reason)...).Inc()
	hookSeconds.WithLabelValues(s.with(stage, reason)...).Observe(seconds(took))
}

// RunStarted notes how late a slot's run began.
func RunStarted(s Schedule, delay time.Duration) {
	startDelay.WithLabelValues(s.with()...).Observe(seconds(delay))
}

// Released notes how long a run kept its application quiesced.
func Released(s Schedule, after time.Duration) {
	quiesce.WithLabelValues(s.with()...).Observe(seconds(after))
}

// SnapshotCut notes how long the storage took to fix a snapshot's content.
func SnapshotCut(s Schedule, after time.Duration) {
	cutSeconds.WithLabelValues(s.with()...).Observe(seconds(after))
}

// SnapshotRestorable notes how long a snapshot took to become ready.
func SnapshotRestorable(s Schedule, after time.Duration) {
	readySeconds.WithLabelValues(s.with()...).Observe(seconds(after))
}

// begin the counters that alerts and rates look at from 0: an increase from nothing is none to Prometheus.
func begin(s Schedule) {
	for _, result := range []string{"Succeeded", "PartiallyFailed", "Failed", "Skipped"} {
		runs.WithLabelValues(s.with(result)...)
	}
	for _, reason := range []string{"TooLate", "Overlap", "Downtime"} {
		missed.WithLabelValues(s.with(reason)...)
	}
}

// Forget every series of a schedule that no longer exists.
func Forget(s Schedule) {
	schedules.forget(s)
	forgetCounted(s)
}

func forgetCounted(s Schedule) {
	for _, v := range bySchedule {
		v.DeletePartialMatch(s.labels())
	}
}

// seconds of a duration; clocks that were set back make none that is negative.
func seconds(d time.Duration) float64 { return max(0, d.Seconds()) }
