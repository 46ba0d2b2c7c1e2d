// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"math/bits"
	"time"
)

// searchYears is how far Next looks ahead. The rarest date, 29 February, comes
// at least every 8 years.
const searchYears = 12

// lastYear is the newest year of a slot: times are persisted with four digits.
const lastYear = 9999

// Location returns the zone of the schedule; UTC for the zero value.
func (s Schedule) Location() *time.Location {
	if s.loc == nil {
		return time.UTC
	}
	return s.loc
}

// Next returns the first slot strictly after t, in UTC. Slots fall on whole
// minutes of the wall clock (for @every: on whole seconds) and are at least a
// minute apart. The zero time means that there is none before the year 10000;
// for a schedule that Parse accepted, no caller with a sane clock sees it.
func (s Schedule) Next(t time.Time) time.Time {
	t = t.UTC()
	if t.Year() > lastYear {
		return time.Time{}
	}
	if t.Year() < 1 {
		t = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	var slot time.Time
	switch {
	case s.every > 0:
		slot = s.nextEvery(t)
	case s.minute != 0:
		slot = s.nextWall(t)
	}
	if slot.Year() > lastYear {
		return time.Time{}
	}
	return slot
}

// nextEvery returns the first multiple of the distance after t.
func (s Schedule) nextEvery(t time.Time) time.Time {
	seconds := t.Unix()
	past := seconds % s.every
	if past < 0 {
		past += s.every
	}
	return time.Unix(seconds-past+s.every, 0).UTC()
}

// nextWall walks the periods in which the zone's offset is constant. Within
// one, wall time is a plain calendar; between two, a part of it is skipped or
// comes twice.
func (s Schedule) nextWall(t time.Time) time.Time {
	limit := t.AddDate(searchYears, 0, 0)
	at := t.Truncate(time.Second).Add(time.Second)
	for at.Before(limit) {
		local := at.In(s.loc)
		_, offset := local.Zone()
		shift := time.Duration(offset) * time.Second
		start, end := bounds(local)
		from, until := at.Add(shift), limit.Add(shift)
		if !end.IsZero() && end.Before(limit) {
			until = end.UTC().Add(shift)
		}
		if !start.IsZero() {
			jump := shift - offsetBefore(start)
			change := start.UTC().Add(shift)
			if jump > 0 && s.makesUp && at.Equal(start) && s.matchesIn(change.Add(-jump), change) {
				return start.UTC()
			}
			if jump < 0 && !s.repeats {
				from = later(from, change.Add(-jump))
			}
		}
		if slot, ok := s.firstMatch(from, until); ok {
			return slot.Add(-shift)
		}
		if end.IsZero() {
			break
		}
		at = end.UTC()
	}
	return time.Time{}
}

// bounds returns the period around local in which the offset is constant, or a
// part of that period that begins with it or before and ends after local; zero
// times stand for no bound.
func bounds(local time.Time) (start, end time.Time) {
	start, end = local.ZoneBounds()
	if !end.IsZero() && !end.After(local) {
		// Beyond the zone's table of changes, Go (1.26) ends the period a day
		// early on 31 December of a leap year. No zone changes its clock within
		// an hour of any time of that day.
		end = local.Add(time.Hour)
	}
	return start, end
}

// offsetBefore returns the offset that a change of the zone at start ended.
func offsetBefore(start time.Time) time.Duration {
	_, offset := start.Add(-time.Second).Zone()
	return time.Duration(offset) * time.Second
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// matchesIn tells whether a wall time in [from, until) matches.
func (s Schedule) matchesIn(from, until time.Time) bool {
	_, ok := s.firstMatch(from, until)
	return ok
}

// firstMatch returns the first matching wall time in [from, until). Wall times
// are written as UTC times here: a calendar without changes of the clock.
func (s Schedule) firstMatch(from, until time.Time) (time.Time, bool) {
	if up := from.Truncate(time.Minute); up.Before(from) {
		from = up.Add(time.Minute)
	}
	for from.Before(until) {
		year, month, day := from.Date()
		switch {
		case s.month&(1<<month) == 0:
			from = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !s.dayMatches(day, from.Weekday()):
			from = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		default:
			hour, minute, ok := s.timeFrom(from.Hour(), from.Minute())
			if ok {
				match := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
				return match, match.Before(until)
			}
			from = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		}
	}
	return time.Time{}, false
}

// dayMatches applies cron's rule for the two day fields.
func (s Schedule) dayMatches(day int, weekday time.Weekday) bool {
	inMonth, inWeek := s.dom&(1<<day) != 0, s.dow&(1<<weekday) != 0
	if s.eitherDay {
		return inMonth || inWeek
	}
	return inMonth && inWeek
}

// timeFrom returns the first matching time of a day at or after hour:minute.
func (s Schedule) timeFrom(hour, minute int) (h, m int, ok bool) {
	if s.hour&(1<<hour) != 0 {
		if m, ok = firstBit(s.minute, minute); ok {
			return hour, m, true
		}
	}
	h, ok = firstBit(s.hour, hour+1)
	m, _ = firstBit(s.minute, 0)
	return h, m, ok
}

// firstBit returns the lowest set bit at or above from.
func firstBit(set uint64, from int) (bit int, ok bool) {
	set &= ^uint64(0) << from
	return bits.TrailingZeros64(set), set != 0
}
