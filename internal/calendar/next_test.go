// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"
)

// slots returns the slots in (from, until), as wall times with their offset.
func slots(s Schedule, from, until time.Time) []string {
	var all []string
	for at := s.Next(from); at.Before(until); at = s.Next(at) {
		all = append(all, at.In(s.Location()).Format("02 15:04 -07:00"))
	}
	return all
}

// Each case covers a little more than the day of the change.
func TestNextAroundChangesOfTheClock(t *testing.T) {
	tests := map[string]struct {
		zone, schedule, from, until string
		want                        []string
	}{
		"Vienna in spring: a fixed time in the missing hour fires right after it": {
			"Europe/Vienna", "30 2 * * *", "2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00",
			[]string{"28 02:30 +01:00", "29 03:00 +02:00", "30 02:30 +02:00"}},
		"Vienna in spring: several minutes of the missing hour are one slot": {
			"Europe/Vienna", "*/20 2 * * *", "2026-03-29T00:00:00+01:00", "2026-03-30T02:10:00+02:00",
			[]string{"29 03:00 +02:00", "30 02:00 +02:00"}},
		"Vienna in spring: what is due right after anyway is not doubled": {
			"Europe/Vienna", "0 2,3 * * *", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00",
			[]string{"29 03:00 +02:00"}},
		"Vienna in spring: a time right before the gap is not moved": {
			"Europe/Vienna", "59 1 * * *", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00",
			[]string{"29 01:59 +01:00"}},
		"Vienna in spring: a step of two hours keeps its distance": {
			"Europe/Vienna", "0 */2 * * *", "2026-03-28T23:30:00+01:00", "2026-03-29T07:00:00+02:00",
			[]string{"29 00:00 +01:00", "29 03:00 +02:00", "29 04:00 +02:00", "29 06:00 +02:00"}},
		"Vienna in spring: every 30 minutes goes on evenly": {
			"Europe/Vienna", "*/30 * * * *", "2026-03-29T01:00:00+01:00", "2026-03-29T04:00:00+02:00",
			[]string{"29 01:30 +01:00", "29 03:00 +02:00", "29 03:30 +02:00"}},
		"Vienna in spring: every hour at 15 and 45 goes on evenly": {
			"Europe/Vienna", "15,45 * * * *", "2026-03-29T01:00:00+01:00", "2026-03-29T04:00:00+02:00",
			[]string{"29 01:15 +01:00", "29 01:45 +01:00", "29 03:15 +02:00", "29 03:45 +02:00"}},
		"Vienna in spring: only the Sunday is moved": {
			"Europe/Vienna", "30 2 * * 1", "2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00",
			[]string{"30 02:30 +02:00"}},
		"Vienna in autumn: a fixed time in the doubled hour fires the first time": {
			"Europe/Vienna", "30 2 * * *", "2026-10-24T00:00:00+02:00", "2026-10-27T00:00:00+01:00",
			[]string{"24 02:30 +02:00", "25 02:30 +02:00", "26 02:30 +01:00"}},
		"Vienna in autumn: several minutes of the doubled hour fire once each": {
			"Europe/Vienna", "0,30 2,3 * * *", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00",
			[]string{"25 02:00 +02:00", "25 02:30 +02:00", "25 03:00 +01:00", "25 03:30 +01:00"}},
		"Vienna in autumn: a step fires both times": {
			"Europe/Vienna", "0 */2 * * *", "2026-10-25T00:30:00+02:00", "2026-10-25T05:00:00+01:00",
			[]string{"25 02:00 +02:00", "25 02:00 +01:00", "25 04:00 +01:00"}},
		"Vienna in autumn: every 30 minutes goes on evenly": {
			"Europe/Vienna", "*/30 * * * *", "2026-10-25T01:30:00+02:00", "2026-10-25T03:10:00+01:00",
			[]string{"25 02:00 +02:00", "25 02:30 +02:00", "25 02:00 +01:00", "25 02:30 +01:00", "25 03:00 +01:00"}},
		"Vienna in autumn: a single hour written as a step is a fixed time": {
			"Europe/Vienna", "30 2/22 * * *", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00",
			[]string{"25 02:30 +02:00"}},
		"New York in spring: a fixed time in the missing hour": {
			"America/New_York", "15 2 * * *", "2026-03-07T12:00:00-05:00", "2026-03-10T00:00:00-04:00",
			[]string{"08 03:00 -04:00", "09 02:15 -04:00"}},
		"New York in spring: every 30 minutes": {
			"America/New_York", "*/30 * * * *", "2026-03-08T01:00:00-05:00", "2026-03-08T04:00:00-04:00",
			[]string{"08 01:30 -05:00", "08 03:00 -04:00", "08 03:30 -04:00"}},
		"New York in autumn: a fixed time in the doubled hour": {
			"America/New_York", "30 1 * * *", "2026-10-31T12:00:00-04:00", "2026-11-03T00:00:00-05:00",
			[]string{"01 01:30 -04:00", "02 01:30 -05:00"}},
		"New York in autumn: @hourly": {
			"America/New_York", "@hourly", "2026-11-01T00:00:00-04:00", "2026-11-01T02:30:00-05:00",
			[]string{"01 01:00 -04:00", "01 01:00 -05:00", "01 02:00 -05:00"}},
		"Lord Howe in spring: half an hour is missing": {
			"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00+10:30", "2026-10-06T00:00:00+11:00",
			[]string{"04 02:30 +11:00", "05 02:15 +11:00"}},
		"Lord Howe in spring: the other half of the hour exists": {
			"Australia/Lord_Howe", "45 2 * * *", "2026-10-03T12:00:00+10:30", "2026-10-05T00:00:00+11:00",
			[]string{"04 02:45 +11:00"}},
		"Lord Howe in spring: every 30 minutes": {
			"Australia/Lord_Howe", "*/30 * * * *", "2026-10-04T01:00:00+10:30", "2026-10-04T03:10:00+11:00",
			[]string{"04 01:30 +10:30", "04 02:30 +11:00", "04 03:00 +11:00"}},
		"Lord Howe in autumn: half an hour is doubled": {
			"Australia/Lord_Howe", "0,45 1 * * *", "2026-04-04T12:00:00+11:00", "2026-04-06T00:00:00+10:30",
			[]string{"05 01:00 +11:00", "05 01:45 +11:00"}},
		"Lord Howe in autumn: every 30 minutes": {
			"Australia/Lord_Howe", "*/30 * * * *", "2026-04-05T01:00:00+11:00", "2026-04-05T02:10:00+10:30",
			[]string{"05 01:30 +11:00", "05 01:30 +10:30", "05 02:00 +10:30"}},
		"Cairo in spring: a missing midnight": {
			"Africa/Cairo", "@daily", "2026-04-23T12:00:00+02:00", "2026-04-25T12:00:00+03:00",
			[]string{"24 01:00 +03:00", "25 00:00 +03:00"}},
		"Cairo in autumn: midnight of the day after comes twice for a clock, once for a slot": {
			"Africa/Cairo", "30 23 * * *", "2026-10-29T00:00:00+03:00", "2026-10-31T00:00:00+02:00",
			[]string{"29 23:30 +03:00", "30 23:30 +02:00"}},
		"Apia lost a whole day": {
			"Pacific/Apia", "0 5 * * *", "2011-12-29T00:00:00-10:00", "2012-01-01T00:00:00+14:00",
			[]string{"29 05:00 -10:00", "31 00:00 +14:00", "31 05:00 +14:00"}},
		"@every ignores the change": {
			"Europe/Vienna", "@every 1h", "2026-03-29T00:30:00+01:00", "2026-03-29T05:00:00+02:00",
			[]string{"29 01:00 +01:00", "29 03:00 +02:00", "29 04:00 +02:00"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := mustParse(t, tt.schedule, tt.zone)
			if diff := cmp.Diff(tt.want, slots(s, utc(t, tt.from), utc(t, tt.until))); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextAtTheLimits(t *testing.T) {
	tests := map[string]struct{ schedule, from, want string }{
		"a slot is not after itself":                    {"0 5 * * *", "2026-01-01 05:00", "2026-01-02 05:00"},
		"a second before a slot":                        {"0 5 * * *", "2026-01-01 04:59:59", "2026-01-01 05:00"},
		"29 February over the century":                  {"0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"},
		"the last day of a leap year in a far future":   {"TZ=Europe/Vienna 30 5 * * *", "2040-12-31 00:30", "2040-12-31 04:30"},
		"and the day after":                             {"TZ=Europe/Vienna 30 5 * * *", "2040-12-31 12:00", "2041-01-01 04:30"},
		"@every before the epoch":                       {"@every 1h", "1969-12-31 22:30", "1969-12-31 23:00"},
		"@every at the epoch":                           {"@every 1h", "1970-01-01 00:00", "1970-01-01 01:00"},
		"@every a century":                              {"@every 876000h", "2026-01-01 00:00", "2069-12-07 00:00"},
		"before the first year there is the first slot": {"@every 1h", "0000-12-31 22:30", "0001-01-01 01:00"},
		"the last slot that can be written is one":      {"@yearly", "9998-06-01 00:00", "9999-01-01 00:00"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, want := mustParse(t, tt.schedule, "").Next(utc(t, tt.from)), utc(t, tt.want); !got.Equal(want) {
				t.Errorf("Next = %v, want %v", got, want)
			}
		})
	}
	for name, got := range map[string]time.Time{
		"the zero schedule has no slots":       Schedule{}.Next(utc(t, "2026-01-01 00:00")),
		"no slot has a year of five digits":    mustParse(t, "@yearly", "").Next(utc(t, "9999-06-01 00:00")),
		"no slot of @every has five digits":    mustParse(t, "@every 1h", "").Next(utc(t, "9999-12-31 23:30")),
		"after the year 9999 there is nothing": mustParse(t, "@hourly", "").Next(utc(t, "9999-12-31 23:30").AddDate(5, 0, 0)),
	} {
		if !got.IsZero() {
			t.Errorf("%s: Next = %v", name, got)
		}
	}
	if got := (Schedule{}).Location(); got != time.UTC {
		t.Errorf("zone of the zero schedule = %v", got)
	}
}

// These are the places where robfig/cron alone would not do.
func TestWhatRobfigCronDoes(t *testing.T) {
	vienna := mustParse(t, "@daily", "Europe/Vienna").Location()
	robfig := func(schedule, from string) time.Time {
		s, err := cron.ParseStandard(schedule)
		if err != nil {
			t.Fatal(err)
		}
		return s.Next(utc(t, from).In(vienna))
	}
	if got, want := robfig("30 2 * * *", "2026-03-29 00:00"), utc(t, "2026-03-30 00:30"); !got.Equal(want) {
		t.Errorf("a slot in the missing hour: %v, expected to be skipped until %v", got, want)
	}
	if got, want := robfig("30 2 * * *", "2026-10-25 00:30"), utc(t, "2026-10-25 01:30"); !got.Equal(want) {
		t.Errorf("a slot in the doubled hour: %v, expected once more at %v", got, want)
	}
	if got := robfig("0 0 29 2 *", "2096-03-01 00:00"); !got.IsZero() {
		t.Errorf("the leap day after 2096: %v, expected none", got)
	}
}

// randomField writes a field of a cron expression.
func randomField(r *rand.Rand, low, high int) string {
	value := func() int { return low + r.Intn(high-low+1) }
	var elements []string
	for range 1 + r.Intn(3) {
		a, b := value(), value()
		switch r.Intn(6) {
		case 0:
			return "*"
		case 1:
			elements = append(elements, fmt.Sprintf("*/%d", 1+r.Intn(high)))
		case 2:
			elements = append(elements, fmt.Sprintf("%d-%d", min(a, b), max(a, b)))
		case 3:
			elements = append(elements, fmt.Sprintf("%d-%d/%d", min(a, b), max(a, b), 1+r.Intn(5)))
		default:
			elements = append(elements, fmt.Sprint(a))
		}
	}
	return strings.Join(elements, ",")
}

func randomExpression(r *rand.Rand) string {
	return strings.Join([]string{randomField(r, 0, 59), randomField(r, 0, 23), randomField(r, 1, 31),
		randomField(r, 1, 12), randomField(r, 0, 6)}, " ")
}

func TestNextEqualsRobfigCronWhereNoClockChanges(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	for range 3000 {
		expression := randomExpression(r)
		want, err := cron.ParseStandard(expression)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(expression, "")
		from := time.Unix(r.Int63n(3e9), 0).UTC()
		if err != nil {
			if next := want.Next(from); !next.IsZero() {
				t.Fatalf("%q: %v, but robfig/cron finds %v", expression, err, next)
			}
			continue
		}
		for range 10 {
			got, expected := s.Next(from), want.Next(from)
			if expected.IsZero() {
				break
			}
			if !got.Equal(expected) {
				t.Fatalf("%q after %v: %v, want %v", expression, from, got, expected)
			}
			from = got
		}
	}
}

// bruteForce walks every minute of wall and elapsed time and applies the rule
// of the package comment literally.
func bruteForce(expression string, loc *time.Location, from, until time.Time) map[time.Time]bool {
	plain, err := cron.ParseStandard(expression)
	if err != nil {
		panic(err)
	}
	hours := strings.Fields(expression)[1]
	named := 0
	hourly, _ := cron.ParseStandard("0 " + hours + " * * *")
	midnight := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for h := range 24 {
		hour := midnight.Add(time.Duration(h) * time.Hour)
		if hourly.Next(hour.Add(-time.Second)).Equal(hour) {
			named++
		}
	}
	everyHour := named == 24
	step := !everyHour && named > 1 && strings.ContainsAny(hours, "*/")
	matches := func(wall time.Time) bool { return plain.Next(wall.Add(-time.Second)).Equal(wall) }

	found := map[time.Time]bool{}
	seen := map[time.Time]bool{}
	var before time.Time
	for at := from.Add(-4 * time.Hour); at.Before(until); at = at.Add(time.Minute) {
		_, offset := at.In(loc).Zone()
		wall := at.Add(time.Duration(offset) * time.Second)
		fires := matches(wall) && (!seen[wall] || everyHour || step)
		if !everyHour && !before.IsZero() {
			for skipped := before.Add(time.Minute); skipped.Before(wall); skipped = skipped.Add(time.Minute) {
				fires = fires || matches(skipped)
			}
		}
		seen[wall], before = true, wall
		if fires && at.After(from) {
			found[at] = true
		}
	}
	return found
}

func TestNextEqualsTheDocumentedRuleAroundChanges(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	changes := []struct{ zone, at string }{
		{"Europe/Vienna", "2026-03-29 01:00"}, {"Europe/Vienna", "2026-10-25 01:00"},
		{"America/New_York", "2026-03-08 07:00"}, {"America/New_York", "2026-11-01 06:00"},
		{"Australia/Lord_Howe", "2026-10-03 15:30"}, {"Australia/Lord_Howe", "2026-04-04 15:00"},
		{"Africa/Cairo", "2026-04-23 22:00"}, {"Africa/Cairo", "2026-10-29 21:00"},
		{"America/Sao_Paulo", "2018-11-04 03:00"}, {"Africa/Casablanca", "2026-02-15 02:00"},
		{"Pacific/Apia", "2011-12-30 10:00"},
	}
	for i := range 330 {
		change := changes[i%len(changes)]
		expression := strings.Join([]string{randomField(r, 0, 59), randomField(r, 0, 23), "*", "*", randomField(r, 0, 6)}, " ")
		if r.Intn(2) == 0 {
			expression = fmt.Sprintf("%s %d * * *", randomField(r, 0, 59), r.Intn(4))
		}
		s := mustParse(t, expression, change.zone)
		from, until := utc(t, change.at).Add(-4*time.Hour), utc(t, change.at).Add(4*time.Hour)
		want := bruteForce(expression, s.Location(), from, until)
		got := map[time.Time]bool{}
		for at := s.Next(from); at.Before(until); at = s.Next(at) {
			got[at] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q in %s around %s (-want +got):\n%s", expression, change.zone, change.at, diff)
		}
	}
}

func TestNextIncreasesByAMinuteOrMore(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	zones := []string{"", "Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia", "Africa/Casablanca"}
	for range 1000 {
		expression := randomExpression(r)
		if r.Intn(10) == 0 {
			expression = fmt.Sprintf("@every %ds", 60+r.Intn(1e6))
		}
		s, err := Parse(expression, zones[r.Intn(len(zones))])
		if err != nil {
			continue
		}
		at := time.Unix(2e8+r.Int63n(4e9), r.Int63n(1e9))
		previous := s.Next(at)
		if !previous.After(at) {
			t.Fatalf("%q: Next(%v) = %v", expression, at, previous)
		}
		for range 50 {
			next := s.Next(previous)
			if next.Sub(previous) < time.Minute || next.Format("200601021504") == previous.Format("200601021504") {
				t.Fatalf("%q: %v follows %v", expression, next, previous)
			}
			// Whatever lies between two slots leads to the second.
			between := previous.Add(time.Duration(r.Int63n(int64(next.Sub(previous)))))
			if got := s.Next(between); !got.Equal(next) {
				t.Fatalf("%q: Next(%v) = %v, want %v", expression, between, got, next)
			}
			previous = next
		}
	}
}
