// SPDX-License-Identifier: Apache-2.0

// Package restore decides what is made from which snapshot. It is pure: the command reads the world before and writes after.
//
//	runs, snapshots ─▶ Points ─▶ Choose one ─▶ Names of the new claims ─▶ Claims ─▶ what to do next
//
// A Point is what one run left: one snapshot of each of its claims. While the run's record (its SnapshotRun) exists, the record says which
// snapshots these are, and nothing that merely carries the run's name counts. When it is no longer kept, or the snapshots are
// snapscheduler's, they are told by their names, which nobody can change; what is missing then is judged by the points before and after.
//
// Only new claims are made; a name that is taken refuses the whole restore before anything is done.
package restore
