// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the types of the API group snapscheduler.backube/v1: SnapshotSchedule, which users write, and
// SnapshotRun, one per run, which the operator writes and a person may create by hand. They relate to each other
// as CronJob and Job do.
//
// The package holds types and constants only. Defaults that depend on a hook's place in its list are applied
// by the run's plan, not here and not by the CRD.
//
// +kubebuilder:object:generate=true
// +groupName=snapscheduler.backube
package v1
