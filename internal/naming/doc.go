// SPDX-License-Identifier: Apache-2.0

// Package naming names runs and snapshots. A name is a lock: it depends on
// nothing but its arguments, so that whoever asks again gets the same one, and
// creating the object twice fails. The package is pure.
//
// # Forms
//
//	snapshot             <claim>-<schedule>-<when>              at most 253 bytes
//	snapshot, too long   <cut claim-schedule>-<hash>-<when>
//	snapshot, taken      <cut claim-schedule>-<hash with run>-<when>
//	group snapshot       <schedule>-<when>                      at most 253 bytes; its members are named by the snapshot controller
//	group, taken         <cut schedule>-<hash with run>-<when>
//	run                  <schedule>-<when>                      at most 63 bytes
//	run, repeated        <schedule>-<when>-r<retry>
//	run, too long        <cut schedule>-<hash>-<when>[-r<retry>]
//	schedule label       <schedule>                             at most 63 bytes
//	schedule label, long <cut schedule>-<hash>
//
// <when> is the minute of the slot in UTC, YYYYMMDDHHMM. <hash> is 50 bits of a
// SHA-256 over all arguments, in 10 letters and digits. Every name is a valid
// DNS-1123 subdomain; a run's name is a valid label value as well.
//
// # Who sees to it that no two objects share a name
//
// The plain form of a snapshot is what snapscheduler writes and what tools
// parse, and it is ambiguous: claim a-b of schedule c and claim a of schedule
// b-c have the same name in the same minute. No function of one (claim,
// schedule, slot) can see the other, and always adding a hash would break every
// tool. So the work is divided:
//
//   - Within one run, names are told apart here: PlanSnapshots.
//   - Between schedules, and against objects of other origin, the API server
//     tells them apart. Who creates a snapshot and gets AlreadyExists reads it;
//     if it is not its own, it falls back once to SnapshotHashed, whose hash
//     covers claim, schedule, run and minute without ambiguity.
//
// The same holds for the label value and the runs of a schedule whose name is
// too long: another schedule would have to be named with exactly that hash.
package naming
