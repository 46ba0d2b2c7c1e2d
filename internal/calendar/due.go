// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// MaxMissed is how far missed slots are counted: a week of a schedule that
// fires every minute. Counting is the only work that grows with a downtime.
const MaxMissed = 10_000

// Limits shape when a slot may start.
type Limits struct {
	// StartingDeadline is how late a slot may start; one that is later is
	// missed. Zero or less: however late.
	StartingDeadline time.Duration
	// Spread is how much later than its slot a run starts, 0 or more. The
	// deadline counts from there. See Spread.
	Spread time.Duration
}

// Due says which slot must run now, which ones are missed, and what to persist.
type Due struct {
	// Slot is the newest slot whose time has come; zero: nothing runs now.
	Slot time.Time
	// Missed counts the slots that will never run: those passed over in favour
	// of a newer one and, with TooLate, the newest. At most MaxMissed.
	Missed int
	// MissedCapped: there are more missed slots than Missed says.
	MissedCapped bool
	// OldestMissed and NewestMissed bound the missed slots; zero without any.
	OldestMissed, NewestMissed time.Time
	// TooLate: the newest slot whose time has come is later than the starting
	// deadline allows. It is NewestMissed, and Slot is zero.
	TooLate bool
	// ClockBehind: the persisted next slot is later than the first slot after
	// now. The clock went back over a slot, or the value is not this schedule's.
	// Nothing runs until then; a caller that knows better persists another next.
	ClockBehind bool
	// Next is the next slot to persist: the first one whose time has not come.
	// Zero only where Schedule.Next returns zero.
	Next time.Time
	// Wake is when to look again: Next plus the spread.
	Wake time.Time
}

// Due compares the persisted next slot with now. A zero next is a schedule that
// has never been looked at: its first slot is the first one after now.
//
// The persisted next counts as a slot even if the schedule does not name it:
// the calendar that wrote it may have been another one. Who edits a schedule
// therefore replaces it by Next(now) first.
//
// Invariants: Slot <= now; Next > Slot; Next never goes back; so a caller that
// persists Next never gets the same Slot again, whatever the clock does. The
// work is bounded by MaxMissed, however long ago next was. The zero Schedule
// has the zero Due.
func (s Schedule) Due(next, now time.Time, limits Limits) Due {
	// A spread delays slots; looking at an earlier now is the same.
	at := now.UTC().Add(-max(limits.Spread, 0))
	var due Due
	switch {
	case s.every == 0 && s.minute == 0:
		return due
	case next.IsZero():
		due.Next = s.Next(now)
	case next.After(at):
		due.Next = next.UTC()
		due.ClockBehind = next.After(s.Next(now))
	default:
		due = s.pastDue(next.UTC(), at, limits.StartingDeadline)
	}
	if !due.Next.IsZero() {
		due.Wake = due.Next.Add(max(limits.Spread, 0))
	}
	return due
}

// pastDue handles a next slot that has come.
func (s Schedule) pastDue(next, at time.Time, deadline time.Duration) Due {
	newest := s.newest(next, at)
	due := Due{Next: s.Next(at)}
	if deadline > 0 && at.Sub(newest) > deadline {
		due.TooLate = true
	} else {
		due.Slot = newest
	}
	for slot := next; slot.Before(newest) || (due.TooLate && slot.Equal(newest)); slot = s.Next(slot) {
		if due.Missed == MaxMissed {
			due.MissedCapped = true
			break
		}
		due.Missed++
		due.NewestMissed = slot
	}
	if due.Missed > 0 {
		due.OldestMissed = next
	}
	switch {
	case due.TooLate:
		due.NewestMissed = newest
	case due.MissedCapped:
		due.NewestMissed = s.newest(next, newest.Add(-time.Second))
	}
	return due
}

// newest returns the newest slot in (next, at], else next. It bisects: the
// first slot after x grows with x, so the last x whose first slot is not after
// at leads to the newest.
func (s Schedule) newest(next, at time.Time) time.Time {
	reaches := func(unix int64) bool {
		slot := s.Next(time.Unix(unix, 0))
		return !slot.IsZero() && !slot.After(at)
	}
	low, high := next.Unix(), at.Unix()
	if slot := s.Next(next); slot.IsZero() || slot.After(at) {
		return next
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; reaches(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return s.Next(time.Unix(low, 0))
}

// Spread returns how much later than its slots the schedule with that key
// starts: whole seconds in [0, spreadSeconds], always the same for the same
// arguments and evenly spread over keys. The key names one schedule in the
// cluster (namespace/name/UID). Zero or less spreadSeconds: no delay.
func Spread(key string, spreadSeconds int32) time.Duration {
	if spreadSeconds <= 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(key))
	seconds := binary.BigEndian.Uint64(sum[:8]) % (uint64(spreadSeconds) + 1)
	return time.Duration(seconds) * time.Second // #nosec G115 -- at most MaxInt32
}
