// SPDX-License-Identifier: Apache-2.0

// Package run is the state machine of a SnapshotRun: pure functions of what was recorded and what is seen.
//
//	Pending ─▶ Planned ─▶ PreHooks ─▶ Snapshotting ─▶ PostHooks ─▶ AwaitingReady ─▶ Completed
//	              └────────┴─ any failure, deletion ───▶ PostHooks ─▶ ...
//
// Decide answers with a new state (Persist) or with effects (Act), never with both, or with nothing to do until a
// time or an event (Wait). Effects are derived from a state that is already persisted, so a crash between the two
// derives the same effects again; each effect can be repeated without harm:
//
//   - A VolumeSnapshot's name is its lock: creating it twice creates it once.
//   - Starting a command cannot be repeated. So the journal first takes a claim {process, time} for the attempt, written only
//     when a slot of the exec pool is owned. Only the process that wrote the claim starts the attempt, once and
//     within ClaimWindow. Another process that finds the claim records the attempt's end as unknown.
//
// Every planned run passes through PostHooks, whatever happened before. A run without hooks goes from Pending to its snapshots
// without a persisted plan, because its creates are locked by their names; if everything is ready within DirectGrace,
// it is completed in one write.
//
// A run that takes a group snapshot always has a persisted plan and the release finalizer, with hooks or without: the group's members are made by
// somebody else, and without the run nobody would know whose they are (group.go).
//
// A hook's targets move through: unclaimed → claimed → (held →) ended, and back to unclaimed for another attempt.
//
// The record may have been written by somebody else, where others than the operator may write status. sound.go says which records can be carried on;
// in the place of another one begins a release with the schedule's own post hooks. What no record can do is to make a hook run where a schedule
// of its namespace could have none (hookstep.go, barred).
//
// The package knows no client, context or clock.
package run
