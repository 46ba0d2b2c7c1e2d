// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the operator's Prometheus metrics; docs/metrics.md lists them. The first five carry snapscheduler's names and labels.
//
//   - counted.go: counters and histograms of what has happened. Callers count a fact once, after the write that made it one.
//   - state.go: gauges of how each schedule stands. They are replaced as a whole, so that no scrape sees half of them, and follow from what the
//     API server holds, so that they are right again after a restart.
//   - process.go: the process itself.
//
// Labels are bounded: names of schedules and claims that exist, and values of enumerations. No pod, no hook, no text.
package metrics
