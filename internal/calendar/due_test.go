// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDue(t *testing.T) {
	at := func(text string) time.Time { return utc(t, "2026-01-10 "+text) }
	tests := map[string]struct {
		schedule  string
		next, now time.Time
		limits    Limits
		want      Due
	}{
		"a schedule that was never looked at starts with the first slot after now": {
			"0 * * * *", time.Time{}, at("10:00"), Limits{}, Due{Next: at("11:00"), Wake: at("11:00")}},
		"a second before the slot": {
			"0 * * * *", at("10:00"), at("09:59:59"), Limits{}, Due{Next: at("10:00"), Wake: at("10:00")}},
		"at the slot": {
			"0 * * * *", at("10:00"), at("10:00"), Limits{}, Due{Slot: at("10:00"), Next: at("11:00"), Wake: at("11:00")}},
		"long after the slot": {
			"0 * * * *", at("10:00"), at("10:59:59"), Limits{}, Due{Slot: at("10:00"), Next: at("11:00"), Wake: at("11:00")}},
		"after a downtime only the newest slot runs": {
			"0 * * * *", at("03:00"), at("10:30"), Limits{},
			Due{Slot: at("10:00"), Missed: 7, OldestMissed: at("03:00"), NewestMissed: at("09:00"), Next: at("11:00"), Wake: at("11:00")}},
		"within the starting deadline": {
			"0 * * * *", at("10:00"), at("10:05"), Limits{StartingDeadline: 5 * time.Minute},
			Due{Slot: at("10:00"), Next: at("11:00"), Wake: at("11:00")}},
		"a slot that is too late is missed": {
			"0 * * * *", at("10:00"), at("10:05:01"), Limits{StartingDeadline: 5 * time.Minute},
			Due{TooLate: true, Missed: 1, OldestMissed: at("10:00"), NewestMissed: at("10:00"), Next: at("11:00"), Wake: at("11:00")}},
		"all slots of a downtime are too late": {
			"0 * * * *", at("08:00"), at("10:30"), Limits{StartingDeadline: time.Minute},
			Due{TooLate: true, Missed: 3, OldestMissed: at("08:00"), NewestMissed: at("10:00"), Next: at("11:00"), Wake: at("11:00")}},
		"a spread delays the start and not the slot": {
			"0 * * * *", at("10:00"), at("10:02"), Limits{Spread: 2 * time.Minute},
			Due{Slot: at("10:00"), Next: at("11:00"), Wake: at("11:02")}},
		"before the spread is over nothing runs": {
			"0 * * * *", at("10:00"), at("10:01:59"), Limits{Spread: 2 * time.Minute},
			Due{Next: at("10:00"), Wake: at("10:02")}},
		"the deadline counts from the end of the spread": {
			"0 * * * *", at("10:00"), at("10:10:30"), Limits{Spread: 10 * time.Minute, StartingDeadline: time.Minute},
			Due{Slot: at("10:00"), Next: at("11:00"), Wake: at("11:10")}},
		"a spread that is longer than the distance of slots": {
			"*/5 * * * *", at("10:00"), at("10:12"), Limits{Spread: 12 * time.Minute},
			Due{Slot: at("10:00"), Next: at("10:05"), Wake: at("10:17")}},
		"a next slot that another calendar wrote is honoured": {
			"0 * * * *", at("10:17"), at("10:20"), Limits{}, Due{Slot: at("10:17"), Next: at("11:00"), Wake: at("11:00")}},
		"and passed over like any other": {
			"0 * * * *", at("10:17"), at("11:20"), Limits{},
			Due{Slot: at("11:00"), Missed: 1, OldestMissed: at("10:17"), NewestMissed: at("10:17"), Next: at("12:00"), Wake: at("12:00")}},
		"a clock that went back waits": {
			"0 * * * *", at("11:00"), at("09:30"), Limits{}, Due{ClockBehind: true, Next: at("11:00"), Wake: at("11:00")}},
		"ten years of minutes are counted up to the limit": {
			"* * * * *", utc(t, "2016-01-10 10:00"), at("10:00"), Limits{},
			Due{Slot: at("10:00"), Missed: MaxMissed, MissedCapped: true, OldestMissed: utc(t, "2016-01-10 10:00"),
				NewestMissed: at("09:59"), Next: at("10:01"), Wake: at("10:01")}},
		"ten years of minutes that are too late": {
			"* * * * *", utc(t, "2016-01-10 10:00"), at("10:00:30"), Limits{StartingDeadline: time.Second},
			Due{TooLate: true, Missed: MaxMissed, MissedCapped: true, OldestMissed: utc(t, "2016-01-10 10:00"),
				NewestMissed: at("10:00"), Next: at("10:01"), Wake: at("10:01")}},
		"exactly as many as are counted": {
			"* * * * *", at("10:00").Add(-MaxMissed * time.Minute), at("10:00"), Limits{},
			Due{Slot: at("10:00"), Missed: MaxMissed, OldestMissed: at("10:00").Add(-MaxMissed * time.Minute),
				NewestMissed: at("09:59"), Next: at("10:01"), Wake: at("10:01")}},
		"@every goes on from a slot off its grid": {
			"@every 6h", at("05:00"), at("05:01"), Limits{}, Due{Slot: at("05:00"), Next: at("06:00"), Wake: at("06:00")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := mustParse(t, tt.schedule, "").Due(tt.next, tt.now, tt.limits)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Due (-want +got):\n%s", diff)
			}
		})
	}
	if got := (Schedule{}).Due(at("10:00"), at("11:00"), Limits{}); got != (Due{}) {
		t.Errorf("the zero schedule: %+v", got)
	}
}

// A clock that jumps in both directions, an operator that stops and comes
// back, and a persisted next: no slot comes twice, and none is lost between
// what ran and what was counted as missed.
func TestDueNeverReturnsASlotTwice(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	zones := []string{"", "Europe/Vienna", "Australia/Lord_Howe"}
	schedules := []string{"* * * * *", "*/30 * * * *", "0 */2 * * *", "30 2 * * *", "@every 90m", "0 0 1 * *"}
	for range 120 {
		s := mustParse(t, schedules[r.Intn(len(schedules))], zones[r.Intn(len(zones))])
		limits := Limits{Spread: time.Duration(r.Intn(3)) * time.Minute, StartingDeadline: time.Duration(r.Intn(3)) * time.Hour}
		now := utc(t, "2026-03-28 00:00").Add(time.Duration(r.Int63n(int64(48 * time.Hour))))
		ran := map[time.Time]bool{}
		var next, newest time.Time
		for step := range 60 {
			due := s.Due(next, now, limits)
			again := s.Due(next, now, limits)
			if due != again {
				t.Fatalf("two answers to one question: %+v and %+v", due, again)
			}
			if !due.Slot.IsZero() {
				if ran[due.Slot] || !due.Slot.After(newest) || due.Slot.After(now) {
					t.Fatalf("step %d: slot %v after %v, now %v", step, due.Slot, newest, now)
				}
				ran[due.Slot], newest = true, due.Slot
			}
			if due.Next.Before(next) || !due.Next.After(due.Slot) {
				t.Fatalf("step %d: next %v after %v", step, due.Next, next)
			}
			checkMissed(t, s, next, due)
			next = due.Next
			jump := time.Duration(r.Int63n(int64(6 * time.Hour)))
			if r.Intn(3) == 0 {
				jump = -jump
			}
			now = now.Add(jump)
		}
	}
}

// checkMissed counts again what lies between the persisted slot and Due.Next.
func checkMissed(t *testing.T, s Schedule, next time.Time, due Due) {
	t.Helper()
	if next.IsZero() {
		return
	}
	passed := 0
	for slot := next; slot.Before(due.Next); slot = s.Next(slot) {
		passed++
	}
	if !due.Slot.IsZero() {
		passed--
	}
	if due.Missed != passed {
		t.Fatalf("missed %d, want %d: next %v, %+v", due.Missed, passed, next, due)
	}
}

func TestSpread(t *testing.T) {
	if got := Spread("shop/hourly/1", 0); got != 0 {
		t.Errorf("no spread = %v", got)
	}
	if got := Spread("shop/hourly/1", -5); got != 0 {
		t.Errorf("negative spread = %v", got)
	}
	first := Spread("shop/hourly/1", 600)
	if again := Spread("shop/hourly/1", 600); again != first {
		t.Error("the same key has two delays")
	}
	// A changed hash would move every schedule of every user.
	if got, want := Spread("shop/hourly/1", 600), 384*time.Second; got != want {
		t.Errorf("delay = %v, want %v", got, want)
	}
	seen := map[time.Duration]int{}
	for i := range 4000 {
		got := Spread(fmt.Sprintf("shop/hourly/%d", i), 3)
		if got < 0 || got > 3*time.Second || got%time.Second != 0 {
			t.Fatalf("delay = %v", got)
		}
		seen[got]++
	}
	for delay, count := range seen {
		if count < 800 {
			t.Errorf("delay %v for %d of 4000 keys", delay, count)
		}
	}
	if len(seen) != 4 {
		t.Errorf("delays = %v, want 0 to 3 s", seen)
	}
	if got := Spread("shop/hourly/1", 1<<31-1); got < 0 {
		t.Errorf("largest spread = %v", got)
	}
}

func FuzzDue(f *testing.F) {
	f.Add("* * * * *", "", int64(0), int64(1.7e9), int64(0), int64(0))
	f.Add("0 0 29 2 *", "Europe/Vienna", int64(-1e10), int64(4e9), int64(60), int64(30))
	f.Add("30 2 * * *", "Australia/Lord_Howe", int64(1774710000), int64(1774800000), int64(3600), int64(0))
	f.Add("@every 1m", "", int64(-62135596800), int64(253402300799), int64(0), int64(5))
	f.Fuzz(func(t *testing.T, schedule, zone string, nextUnix, nowUnix, deadline, spread int64) {
		s, err := Parse(schedule, zone)
		if err != nil {
			t.Skip()
		}
		const farthest = 1 << 40 // the year 36812
		next, now := time.Unix(nextUnix%farthest, 0), time.Unix(nowUnix%farthest, 0)
		limits := Limits{StartingDeadline: time.Duration(deadline%1e9) * time.Second, Spread: time.Duration(spread%1e9) * time.Second}
		due := s.Due(next, now, limits)
		if due.Slot.After(now) || due.Missed < 0 || due.Missed > MaxMissed {
			t.Fatalf("%+v at %v", due, now)
		}
		if !due.Next.IsZero() && (!due.Next.After(due.Slot) || due.Next.Before(next) && !next.IsZero()) {
			t.Fatalf("next went back: %+v from %v", due, next)
		}
		if due.Next.IsZero() {
			return
		}
		if second := s.Due(due.Next, now, limits); !second.Slot.IsZero() {
			t.Fatalf("a second slot %v at the same time", second.Slot)
		}
	})
}
