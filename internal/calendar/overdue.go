// SPDX-License-Identifier: Apache-2.0

package calendar

import "time"

// SuccessDue returns by when a schedule that succeeded at since must have succeeded again: two slots later. The second slot after since gets
// as much time as passed between since and the slot before it, so that for even slots it is twice their distance after since, and a weekend
// without slots counts for none. Zero where Next is.
func (s Schedule) SuccessDue(since time.Time) time.Time {
	first := s.Next(since)
	if first.IsZero() {
		return time.Time{}
	}
	second := s.Next(first)
	if second.IsZero() {
		return time.Time{}
	}
	return second.Add(since.Sub(s.slotBefore(since, second.Sub(first))))
}

// slotBefore returns the newest slot at or before t, else t. distance is a first guess of how far back it is.
func (s Schedule) slotBefore(t time.Time, distance time.Duration) time.Time {
	for back := max(distance, time.Minute); back < searchYears*365*24*time.Hour; back *= 2 {
		if slot := s.Next(t.Add(-back)); !slot.After(t) {
			return s.newest(slot, t)
		}
	}
	return t
}
