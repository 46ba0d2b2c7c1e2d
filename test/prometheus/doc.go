// SPDX-License-Identifier: Apache-2.0

// Package prometheus tests what Prometheus and Grafana are given: metrics, alerts and dashboards, with promtool where it knows better. make unit
// installs promtool; test/e2e/prometheus_test.go runs a whole Prometheus.
package prometheus
