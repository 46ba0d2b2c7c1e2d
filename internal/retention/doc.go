// SPDX-License-Identifier: Apache-2.0

// Package retention decides which snapshots of a schedule go, and says for
// each one why it goes or stays. It is pure: the same input gives the same
// verdicts in the same order, and nothing is remembered.
//
// # One claim at a time
//
// Snapshots are judged per claim, and a claim is a name and a UID: a claim that
// was deleted and created again under its name is another one, and the old one
// is vanished. A snapshot without a recorded UID (snapscheduler made it) belongs
// to the claim that has its name now if it is newer than that claim, else to a
// vanished one.
//
// # Which go
//
// A snapshot's time is the moment of its cut, else the creation of its object.
// Only ready snapshots are ordered and counted, newest first. One goes if
//
//   - it is older than expires, or
//   - maxCount newer ones exist, or
//   - there are keep rules and neither of the two above is set,
//
// and no keep rule selects it and nothing below protects it. Without any rule
// nothing goes.
//
// # What keep rules select
//
// They are those of restic's forget. keepLast n selects the n newest. keepHourly,
// keepDaily, keepWeekly, keepMonthly and keepYearly n select the newest of each
// of the n newest hours, days, ISO weeks (Monday to Sunday), months and years
// that have a snapshot, on the calendar of the schedule's zone. If there are
// fewer than n of them, the oldest snapshot is selected too. What one rule
// selects stays.
//
// # What is protected
//
//	                                     against expires      against the rest
//	newest ready one, claim exists       unless expireLast    yes
//	newest application one, claim exists unless expireLast    yes
//	newest ready one, claim vanished     no                   yes
//	newest application one, vanished     no                   yes
//	labelled keep                        yes                  yes
//	of a run that is not completed       yes                  yes
//	in the future                        yes                  yes
//
// Snapshots labelled keep are not counted: pinning one does not cost another.
// Nor are those whose time is in the future; they wait until it has come.
//
// Unfinished and terminating snapshots are neither counted nor deleted. One that
// is unfinished for longer than the ready timeout counts as failed. Of the failed
// ones of a claim the newest stays for diagnosis, until it expires; the older
// ones go. They never take the place of a ready one.
//
// A snapshot that was made from an existing content, not from a claim, is not
// the schedule's, whatever its labels say. The members of a group snapshot go
// together, once nothing holds any of them.
package retention
