// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"testing"
	"time"
)

func TestASuccessIsDueTwoSlotsLater(t *testing.T) {
	at := func(s string) time.Time {
		t.Helper()
		v, err := time.Parse("Mon 2006-01-02 15:04:05", s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, c := range map[string]struct{ schedule, since, due string }{
		"even slots: twice their distance":                   {"0 * * * *", "Mon 2026-03-02 10:04:05", "Mon 2026-03-02 12:04:05"},
		"a run that takes most of the time to the next slot": {"0 * * * *", "Mon 2026-03-02 10:59:00", "Mon 2026-03-02 12:59:00"},
		"at a slot":                                 {"0 * * * *", "Mon 2026-03-02 10:00:00", "Mon 2026-03-02 12:00:00"},
		"a day by hand between weekly slots":        {"0 0 * * 0", "Sat 2026-03-07 12:00:00", "Sat 2026-03-21 12:00:00"},
		"the weekend has no slots":                  {"0 9 * * 1-5", "Thu 2026-03-05 09:05:00", "Mon 2026-03-09 09:05:00"},
		"from Friday on":                            {"0 9 * * 1-5", "Fri 2026-03-06 09:05:00", "Tue 2026-03-10 09:05:00"},
		"two slots close together":                  {"0 8,9 * * *", "Mon 2026-03-02 08:01:00", "Tue 2026-03-03 08:01:00"},
		"once a year":                               {"@yearly", "Thu 2026-01-01 00:10:00", "Sat 2028-01-01 00:10:00"},
		"every so often":                            {"@every 6h", "Mon 2026-03-02 06:30:00", "Mon 2026-03-02 18:30:00"},
		"29 February: the slot before was 2024":     {"0 0 29 2 *", "Thu 2024-02-29 00:01:00", "Sun 2032-02-29 00:01:00"},
		"a schedule that began long after its slot": {"0 0 1 1 *", "Tue 2026-06-30 00:00:00", "Thu 2028-06-29 00:00:00"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse(c.schedule, "")
			if err != nil {
				t.Fatal(err)
			}
			if due := s.SuccessDue(at(c.since)); !due.Equal(at(c.due)) {
				t.Errorf("since %s: due %s, want %s", c.since, due.Format("Mon 2006-01-02 15:04:05"), c.due)
			}
		})
	}
	if due := (Schedule{}).SuccessDue(at("Mon 2026-03-02 10:00:00")); !due.IsZero() {
		t.Errorf("the zero schedule is due %s", due)
	}
}

// However uneven the slots: there are always two between a success and the time the next one is due.
func TestASuccessIsDueAfterAtLeastTwoSlots(t *testing.T) {
	for _, spec := range []string{"*/7 3-5 * * 1,4", "0 0 1 * *", "30 2 * * *", "59 23 31 12 *", "@every 90m", "0 8,9 * * *"} {
		s, err := Parse(spec, "Europe/Vienna")
		if err != nil {
			t.Fatal(err)
		}
		since := time.Date(2026, 1, 1, 0, 0, 13, 0, time.UTC)
		for range 400 {
			since = since.Add(11*time.Hour + 17*time.Minute)
			due, n := s.SuccessDue(since), 0
			for slot := s.Next(since); !slot.After(due); slot = s.Next(slot) {
				n++
			}
			if n < 2 {
				t.Fatalf("%s: since %s due %s with %d slots between", spec, since, due, n)
			}
		}
	}
}
