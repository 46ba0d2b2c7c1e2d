// SPDX-License-Identifier: Apache-2.0

// Package calendar answers when a schedule names a slot, and which slot must
// run now. It is pure: time comes in as an argument and nothing is remembered.
//
// # What a schedule may say
//
// Five fields (minute, hour, day of month, month, day of week) as robfig/cron
// v3 reads them: lists, ranges and steps anywhere, names (MON, JAN), "?" for
// "*". Sunday is 0 or 7, also at the end of a range (5-7, FRI-SUN). The macros
// are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and
// "@every <duration>". If day of month and day of week are both restricted,
// either one is enough, as in every cron.
//
// The zone is spec.timeZone, or a CRON_TZ= or TZ= prefix of the schedule, never
// both; without either it is UTC, whatever the zone of the process. Zone data
// is built in and used where the system has none.
//
// "@every d" is anchored at the Unix epoch: its slots are the multiples of d
// since 1970-01-01T00:00:00Z. So they depend neither on when the operator
// started nor on when the schedule was created. Fractions of a second are
// dropped; d is one minute or more, because names tell slots apart by minute.
//
// # Days that are shorter or longer than 24 hours
//
// What happens around a change of the clock depends on the hour field only:
//
//	hour field                     wall time that is skipped     wall time that comes twice
//	fixed (2, 1-5, 1,2,3)          fires once, right after       fires the first time only
//	step (*/2, 0-23/3, 1/2)        fires once, right after       fires both times
//	every hour (*, 0-23, @hourly)  nothing is made up for        fires both times
//	@every                         does not know wall time       does not know wall time
//
// "Right after" is the instant of the change: in Vienna, where 02:00 becomes
// 03:00, "30 2 * * *" fires at 03:00 that day. Several skipped slots and one
// that is due at that instant anyway are one slot. A fixed time therefore has
// one slot a day, on every day. A step never leaves a longer pause than it
// names. A schedule for every hour goes on evenly in elapsed time: "*/30 * * *
// *" fires every 30 minutes through both changes, and making up for skipped
// slots would only add uneven ones. (Where the clock moves by half an hour, as
// on Lord Howe Island, a schedule for every hour keeps its minute on the wall,
// so that one pause is longer or shorter by that half hour.)
//
// The minute field does not matter: "*/30 2 * * *" is a fixed time.
//
// # Which slot is due
//
// The state of a schedule is one persisted time, the next slot. Due compares
// it with now:
//
//	   next          slots of the schedule             now
//	────●──────────●───────────●───────────●────────────┼────────●────
//	    └─ oldest missed ─ ... ─┘           └─ Slot      │        └─ Next
//
// At most one slot runs: the newest. The older ones are missed, and so is the
// newest if it is later than the starting deadline allows. Persisting Due.Next
// before or together with acting on Due.Slot means that no slot is returned
// twice, however the clock moves.
package calendar
