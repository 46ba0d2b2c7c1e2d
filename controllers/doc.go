// SPDX-License-Identifier: Apache-2.0

// Package controllers holds the two controllers of Stillpoint.
//
// # ScheduleReconciler
//
// One SnapshotSchedule: its calendar says which slot is due, a SnapshotRun named for schedule and slot is created (the name is the
// lock), its completed runs are summed up in its status, old runs and snapshots are deleted. Retention goes on whether creation works or not.
//
// # RunReconciler
//
// One SnapshotRun, as a loop of
//
//	gather ─▶ decide ─▶ persist the new state, or act, or wait
//
// gather (gather.go, survey.go) does all reads and nothing else. run.Decide is pure; its package draws the phases. persist is one
// status patch with an optimistic lock; events and metrics leave after it (report.go). act (act.go) carries out effects, each of
// which can be repeated. A crash between any two steps, or a read that trails, leads to the same effects again or to a conflict.
//
// What only lives in the leader's memory: the lock table (lock.go, rebuilt from active runs), the exec pool, and memory.go, which
// bridges the time in which the cache trails behind our own writes.
package controllers
