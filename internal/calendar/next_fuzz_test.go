// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
)

// FuzzNext compares slots with what holds for every schedule, and in UTC, where no clock changes, with those of the library.
func FuzzNext(f *testing.F) {
	f.Add("*/7 3-5,22 1-31/2 * *", "", int64(1774747800))
	f.Add("0 0 31 * FRI", "UTC", int64(0))
	f.Add("30 2 * * 7", "Europe/Vienna", int64(1774710000))
	f.Add("0 */2 29 2 *", "Australia/Lord_Howe", int64(1790000000))
	f.Add("@every 61s", "America/St_Johns", int64(-1))
	f.Fuzz(func(t *testing.T, schedule, zone string, unix int64) {
		s, err := Parse(schedule, zone)
		if err != nil {
			t.Skip()
		}
		from := time.Unix(unix%(1<<36), 0).UTC()
		slot := s.Next(from)
		if slot.IsZero() {
			return
		}
		if !slot.After(from) || slot.Location() != time.UTC {
			t.Fatalf("Next(%v) = %v", from, slot)
		}
		if between := from.Add(slot.Sub(from) / 2).Truncate(time.Second); !between.Before(from) && !s.Next(between).Equal(slot) {
			t.Fatalf("Next(%v) = %v, but Next(%v) = %v", from, slot, between, s.Next(between))
		}
		after := s.Next(slot)
		if !after.IsZero() && after.Sub(slot) < time.Minute {
			t.Fatalf("slots %v and %v are closer than a minute", slot, after)
		}
		if s.every > 0 {
			if slot.Unix()%s.every != 0 {
				t.Fatalf("%v is no multiple of %d s", slot, s.every)
			}
			return
		}
		if _, offset := slot.In(s.Location()).Zone(); (slot.Unix()+int64(offset))%60 != 0 {
			t.Fatalf("%v is no whole minute in %v", slot, s.Location())
		}
		library, err := cron.ParseStandard(schedule)
		if err != nil || s.Location() != time.UTC {
			return
		}
		// The library gives up after five years.
		if want := library.Next(from); !want.IsZero() && !want.Equal(slot) {
			t.Fatalf("Next(%v) = %v, the library says %v", from, slot, want)
		}
	})
}
