// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// utc reads a time; most tests write them as "2026-03-29 01:00".
func utc(t testing.TB, text string) time.Time {
	t.Helper()
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC()
		}
	}
	t.Fatalf("%q is no time", text)
	return time.Time{}
}

func mustParse(t testing.TB, schedule, zone string) Schedule {
	t.Helper()
	s, err := Parse(schedule, zone)
	if err != nil {
		t.Fatalf("Parse(%q, %q): %v", schedule, zone, err)
	}
	return s
}

func TestParseAccepts(t *testing.T) {
	// Thursday.
	const from = "2026-01-01 00:00"
	tests := map[string]struct{ schedule, zone, want string }{
		"five fields":                              {"30 2 * * *", "", "2026-01-01 02:30"},
		"@hourly":                                  {"@hourly", "", "2026-01-01 01:00"},
		"@daily":                                   {"@daily", "", "2026-01-02 00:00"},
		"@midnight":                                {"@midnight", "", "2026-01-02 00:00"},
		"@weekly is Sunday":                        {"@weekly", "", "2026-01-04 00:00"},
		"@monthly":                                 {"@monthly", "", "2026-02-01 00:00"},
		"@yearly":                                  {"@yearly", "", "2027-01-01 00:00"},
		"@annually":                                {"@annually", "", "2027-01-01 00:00"},
		"@every counts from the epoch":             {"@every 7h", "", "2026-01-01 07:00"},
		"@every drops fractions of a second":       {"@every 60500ms", "", "2026-01-01 00:01"},
		"@every does not mind spaces":              {"@every   90m", "", "2026-01-01 01:30"},
		"@every in a zone counts the same":         {"@every 7h", "Europe/Vienna", "2026-01-01 07:00"},
		"names of days":                            {"0 0 * * MON", "", "2026-01-05 00:00"},
		"names of months in lower case":            {"0 0 1 feb *", "", "2026-02-01 00:00"},
		"a range of names":                         {"0 0 * * sat-SUN", "", "2026-01-03 00:00"},
		"a question mark":                          {"0 3 ? * ?", "", "2026-01-01 03:00"},
		"a list with a range in hours":             {"0 1-3,7 * * *", "", "2026-01-01 01:00"},
		"a list with a range in months":            {"0 0 1 3-4,7 *", "", "2026-03-01 00:00"},
		"a range with a step":                      {"10-50/20 * * * *", "", "2026-01-01 00:10"},
		"double spaces and tabs":                   {"  0  5\t*  * * ", "", "2026-01-01 05:00"},
		"7 is Sunday":                              {"0 0 * * 7", "", "2026-01-04 00:00"},
		"07 is Sunday":                             {"0 0 * * 07", "", "2026-01-04 00:00"},
		"both days restricted: either is enough":   {"0 0 20 * 5", "", "2026-01-02 00:00"},
		"a day that only some months have":         {"0 0 31 2,3 *", "", "2026-03-31 00:00"},
		"an impossible day of month or a Sunday":   {"0 0 30 2 7", "", "2026-02-01 00:00"},
		"29 February":                              {"0 0 29 2 *", "", "2028-02-29 00:00"},
		"a zone in its field":                      {"0 5 * * *", "Europe/Vienna", "2026-01-01 04:00"},
		"a CRON_TZ prefix":                         {"CRON_TZ=Europe/Vienna 0 5 * * *", "", "2026-01-01 04:00"},
		"a TZ prefix":                              {"TZ=America/New_York 0 5 * * *", "", "2026-01-01 10:00"},
		"a prefix and a macro":                     {"TZ=America/New_York @daily", "", "2026-01-01 05:00"},
		"a prefix and a tab":                       {"TZ=Asia/Tokyo\t0 5 * * *", "", "2026-01-01 20:00"},
		"an empty prefix is UTC":                   {"CRON_TZ= 0 5 * * *", "", "2026-01-01 05:00"},
		"a zone that differs by half an hour":      {"0 5 * * *", "Asia/Kolkata", "2026-01-01 23:30"},
		"a zone whose offset has no fixed hour":    {"0 5 * * *", "Asia/Kathmandu", "2026-01-01 23:15"},
		"an empty element in a list is harmless":   {"1,,2 * * * *", "", "2026-01-01 00:01"},
		"a step that is wider than its field":      {"*/100 * * * *", "", "2026-01-01 01:00"},
		"a step so wide that adding it overflows":  {"0 0 * * 1-7/9223372036854775807", "", "2026-01-05 00:00"},
		"Etc/UTC":                                  {"0 5 * * *", "Etc/UTC", "2026-01-01 05:00"},
		"a value with a step goes up to the limit": {"0 20/2 * * *", "", "2026-01-01 20:00"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := mustParse(t, tt.schedule, tt.zone)
			if got, want := s.Next(utc(t, from)), utc(t, tt.want); !got.Equal(want) || got.Location() != time.UTC {
				t.Errorf("Next = %v, want %v", got, want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("9", 100_000)
	tests := map[string]struct {
		schedule, zone string
		reason         Reason
		field          string
		message        []string
	}{
		"nothing at all":                    {"", "", ReasonEmpty, FieldSchedule, []string{"spec.schedule is empty", "@daily"}},
		"spaces only":                       {" \t ", "", ReasonEmpty, FieldSchedule, nil},
		"a zone only":                       {"CRON_TZ=Europe/Vienna", "", ReasonEmpty, FieldSchedule, nil},
		"a zone and a space only":           {"TZ=Europe/Vienna ", "", ReasonEmpty, FieldSchedule, nil},
		"a minute 60":                       {"60 * * * *", "", ReasonParseError, FieldSchedule, []string{`"60 * * * *"`, "60", "five fields"}},
		"six fields":                        {"0 0 5 * * *", "", ReasonParseError, FieldSchedule, []string{"seconds", "five fields"}},
		"four fields":                       {"0 5 * *", "", ReasonParseError, FieldSchedule, nil},
		"a macro with more letters":         {"@hourlyfoo", "", ReasonParseError, FieldSchedule, []string{"@hourly or @every"}},
		"an unknown macro":                  {"@reboot", "", ReasonParseError, FieldSchedule, []string{"@weekly"}},
		"@every without a duration":         {"@every", "", ReasonParseError, FieldSchedule, []string{"@every <duration>"}},
		"@every with a word":                {"@every day", "", ReasonParseError, FieldSchedule, []string{"no duration", "@every 6h"}},
		"@every with less than a minute":    {"@every 59s", "", ReasonTooFrequent, FieldSchedule, []string{"@every 1m"}},
		"@every into the past":              {"@every -1h", "", ReasonTooFrequent, FieldSchedule, nil},
		"a day of week 8":                   {"0 0 * * 8", "", ReasonParseError, FieldSchedule, nil},
		"a range that runs backwards":       {"0 0 * * 5-2", "", ReasonParseError, FieldSchedule, nil},
		"a step of zero up to Sunday":       {"0 0 * * 5-7/0", "", ReasonParseError, FieldSchedule, nil},
		"a field of commas":                 {", * * * *", "", ReasonParseError, FieldSchedule, []string{"names no value"}},
		"an unknown zone":                   {"0 5 * * *", "Europe/Wien", ReasonUnknownTimeZone, FieldTimeZone, []string{"Europe/Wien", "Europe/Vienna"}},
		"an unknown zone in the prefix":     {"TZ=Mars 0 5 * * *", "", ReasonUnknownTimeZone, FieldSchedule, []string{"spec.schedule", "Mars"}},
		"the operator's own zone":           {"0 5 * * *", "Local", ReasonUnknownTimeZone, FieldTimeZone, []string{"Local"}},
		"the operator's own zone in prefix": {"CRON_TZ=Local 0 5 * * *", "", ReasonUnknownTimeZone, FieldSchedule, nil},
		"a path as zone":                    {"0 5 * * *", "../../etc/passwd", ReasonUnknownTimeZone, FieldTimeZone, nil},
		"a zone in both places":             {"TZ=UTC 0 5 * * *", "UTC", ReasonTwoTimeZones, FieldSchedule, []string{"remove one"}},
		"two prefixes":                      {"TZ=UTC CRON_TZ=UTC 0 5 * * *", "", ReasonTwoTimeZones, FieldSchedule, nil},
		"a prefix that swallows the rest":   {"TZ=UTC TZ=UTC", "", ReasonTwoTimeZones, FieldSchedule, nil},
		"30 February":                       {"0 0 30 2 *", "", ReasonNeverFires, FieldSchedule, []string{"never fires", "exists"}},
		"the 31st of short months":          {"0 0 31 2,4,6,9,11 ?", "", ReasonNeverFires, FieldSchedule, nil},
		"letters that a cut would split":    {"a" + strings.Repeat("ä", 200) + " * * * *", "", ReasonParseError, FieldSchedule, nil},
		"a very long number":                {long + " * * * *", "", ReasonParseError, FieldSchedule, nil},
		"a very long zone":                  {"0 5 * * *", long, ReasonUnknownTimeZone, FieldTimeZone, nil},
		"a very long zone twice":            {"TZ=" + long + " 0 5 * * *", long, ReasonTwoTimeZones, FieldSchedule, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tt.schedule, tt.zone)
			var got *Error
			if !errors.As(err, &got) {
				t.Fatalf("error = %v, want an *Error", err)
			}
			if tt.reason == ReasonUnknownTimeZone && tt.zone != "Local" && !strings.Contains(tt.schedule, "Local") && errors.Unwrap(err) == nil {
				t.Error("the cause is lost")
			}
			if got.Reason != tt.reason || got.Field != tt.field {
				t.Errorf("reason %s about %s, want %s about %s", got.Reason, got.Field, tt.reason, tt.field)
			}
			for _, part := range append(tt.message, tt.field) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message %q does not contain %q", err, part)
				}
			}
			if len(err.Error()) > 500 || !utf8.ValidString(err.Error()) {
				t.Errorf("message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestSundayAsZero(t *testing.T) {
	tests := map[string]struct{ field, want string }{
		"7 alone":                          {"7", "0"},
		"a range up to 7":                  {"5-7", "5,6,0"},
		"a list with 7":                    {"1,7", "1,0"},
		"a list with a range up to 7":      {"1,5-7", "1,5,6,0"},
		"the whole week from Monday":       {"1-7", "1,2,3,4,5,6,0"},
		"the whole week from Sunday":       {"0-7", "0,1,2,3,4,5,6,0"},
		"a step up to 7":                   {"1-7/2", "1,3,5,0"},
		"a step that misses 7":             {"1-7/4", "1,5"},
		"7 with a step":                    {"7/2", "0"},
		"a name up to 7":                   {"FRI-7", "5,6,0"},
		"a range up to SUN":                {"Fri-Sun", "5,6,0"},
		"SUN at the start stays":           {"SUN-TUE", "SUN-TUE"},
		"SUN to SUN stays":                 {"sun-SUN", "sun-SUN"},
		"a step of 7 is no day":            {"*/7", "*/7"},
		"a star stays":                     {"*", "*"},
		"a range from 7 stays and fails":   {"7-5", "7-5"},
		"two hyphens stay and fail":        {"1-5-7", "1-5-7"},
		"a bad step stays and fails":       {"5-7/x", "5-7/x"},
		"a value without Sunday stays":     {"3/2", "3/2"},
		"a number above 7 stays and fails": {"5-17", "5-17"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := sundayAsZero(tt.field); got != tt.want {
				t.Errorf("sundayAsZero(%q) = %q, want %q", tt.field, got, tt.want)
			}
		})
	}
}

// No t.Parallel: the zone of the process is changed.
func TestTheZoneOfTheProcessDoesNotMatter(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	saved := time.Local
	time.Local = tokyo
	defer func() { time.Local = saved }()
	s := mustParse(t, "0 5 * * *", "")
	if s.Location() != time.UTC {
		t.Errorf("zone = %v, want UTC", s.Location())
	}
	if got, want := s.Next(utc(t, "2026-01-01 00:00").In(tokyo)), utc(t, "2026-01-01 05:00"); !got.Equal(want) {
		t.Errorf("Next = %v, want %v", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0 5 * * *", "")
	f.Add("TZ=UTC", "")
	f.Add("CRON_TZ=Europe/Vienna */5 1-5/2 ? JAN FRI-7", "")
	f.Add("@every 1h30m", "Australia/Lord_Howe")
	f.Add("0 0 29 2 *", "Africa/Cairo")
	f.Fuzz(func(t *testing.T, schedule, zone string) {
		s, err := Parse(schedule, zone)
		if err != nil {
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Reason == "" || len(err.Error()) > 1000 || !utf8.ValidString(err.Error()) {
				t.Fatalf("error %v is not as documented", err)
			}
			return
		}
		from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		for range 5 {
			slot := s.Next(from)
			if !slot.After(from) {
				t.Fatalf("Next(%v) = %v, which is not after it", from, slot)
			}
			from = slot
		}
	})
}
