// SPDX-License-Identifier: Apache-2.0

// Package crd holds the CustomResourceDefinitions as they are generated from api/v1, for programs that judge objects without an API server.
package crd

import _ "embed"

// Schedules is the definition of SnapshotSchedule, in YAML.
//
//go:embed snapscheduler.backube_snapshotschedules.yaml
var Schedules []byte

// Runs is the definition of SnapshotRun, in YAML.
//
//go:embed snapscheduler.backube_snapshotruns.yaml
var Runs []byte
