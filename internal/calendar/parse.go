// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones must not depend on what the image holds

	"github.com/robfig/cron/v3"
)

// starBit is how robfig/cron marks a field that was written as "*" or "?".
const starBit = 1 << 63

// allHours has a bit for each hour of the day.
const allHours = 1<<24 - 1

// shortestEvery is the shortest @every: slots are told apart by their minute.
const shortestEvery = time.Minute

// Schedule is a parsed schedule in its zone. The zero value has no slots. It
// is immutable and may be shared.
type Schedule struct {
	loc *time.Location
	// every is the distance of slots in seconds for @every, else 0.
	every int64
	// Bit n of a field is set if the value n matches.
	minute, hour, dom, month, dow uint64
	// eitherDay: both day fields are restricted, so that one of them is enough.
	eitherDay bool
	// repeats: a wall time that comes twice fires twice.
	repeats bool
	// makesUp: slots that a change of the clock skips fire right after it.
	makesUp bool
}

// Parse reads a schedule and the zone it is in. An empty timeZone means the
// prefix of the schedule, else UTC. The error is always an *Error.
func Parse(schedule, timeZone string) (Schedule, error) {
	zone, expr, prefixed := splitZone(strings.TrimSpace(schedule))
	if prefixed && timeZone != "" {
		return Schedule{}, errTwoTimeZones(fmt.Sprintf(
			"spec.schedule starts with the time zone %q and spec.timeZone is %q; remove one of them", shown(zone), shown(timeZone)))
	}
	if expr == "" {
		return Schedule{}, errEmpty()
	}
	if _, _, again := splitZone(expr); again {
		return Schedule{}, errTwoTimeZones("spec.schedule starts with two time zones; remove one of them")
	}
	field := FieldSchedule
	if !prefixed {
		field, zone = FieldTimeZone, timeZone
	}
	loc, err := loadZone(field, zone)
	if err != nil {
		return Schedule{}, err
	}
	if duration, ok := strings.CutPrefix(expr, "@every "); ok {
		return parseEvery(schedule, strings.TrimSpace(duration), loc)
	}
	return parseFields(schedule, expr, loc)
}

// splitZone takes a CRON_TZ= or TZ= prefix off.
func splitZone(s string) (zone, rest string, found bool) {
	after, found := strings.CutPrefix(s, "CRON_TZ=")
	if !found {
		after, found = strings.CutPrefix(s, "TZ=")
	}
	if !found {
		return "", s, false
	}
	if i := strings.IndexAny(after, " \t\r\n"); i >= 0 {
		return after[:i], strings.TrimSpace(after[i:]), true
	}
	return after, "", true
}

// loadZone returns the zone of that name; the empty name is UTC.
func loadZone(field, zone string) (*time.Location, error) {
	if zone == "Local" {
		return nil, errLocal(field)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, errUnknownTimeZone(field, zone, err)
	}
	return loc, nil
}

func parseEvery(schedule, duration string, loc *time.Location) (Schedule, error) {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return Schedule{}, &Error{Reason: ReasonParseError, Field: FieldSchedule, Err: err, Message: fmt.Sprintf(
			"spec.schedule %q does not parse: %q is no duration; write for example @every 90m or @every 6h", shown(schedule), shown(duration))}
	}
	if d < shortestEvery {
		return Schedule{}, errTooFrequent(schedule)
	}
	return Schedule{loc: loc, every: int64(d / time.Second)}, nil
}

func parseFields(schedule, expr string, loc *time.Location) (Schedule, error) {
	fields := strings.Fields(expr)
	hours := ""
	if len(fields) == 5 {
		hours = fields[1]
		fields[4] = sundayAsZero(fields[4])
		expr = strings.Join(fields, " ")
	}
	parsed, err := cron.ParseStandard(expr)
	if err != nil {
		return Schedule{}, errParse(schedule, fields, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Schedule{}, errParse(schedule, fields, fmt.Errorf("unsupported macro"))
	}
	s := Schedule{
		loc: loc, minute: spec.Minute &^ starBit, hour: spec.Hour &^ starBit, dom: spec.Dom &^ starBit,
		month: spec.Month &^ starBit, dow: spec.Dow &^ starBit,
		eitherDay: spec.Dom&starBit == 0 && spec.Dow&starBit == 0,
	}
	if s.minute == 0 || s.hour == 0 || s.dom == 0 || s.month == 0 || s.dow == 0 {
		// robfig/cron reads a field of commas only as one that matches nothing.
		return Schedule{}, errParse(schedule, fields, fmt.Errorf("a field names no value"))
	}
	s.makesUp = s.hour != allHours
	s.repeats = s.hour == allHours || (strings.ContainsAny(hours, "*?/") && bits.OnesCount64(s.hour) > 1)
	if !s.hasDay() {
		return Schedule{}, errNeverFires(schedule)
	}
	return s, nil
}

// daysOf is the length of each month in a leap year; index 0 is unused.
var daysOf = [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// hasDay tells whether some year has a day that matches. Every date that
// exists falls on every day of the week in some year, so only the length of
// the months matters.
func (s Schedule) hasDay() bool {
	if s.eitherDay {
		return true
	}
	for month := 1; month <= 12; month++ {
		days := uint64(1)<<(daysOf[month]+1) - 2
		if s.month&(1<<month) != 0 && s.dom&days != 0 {
			return true
		}
	}
	return false
}

// errParse says what robfig/cron found and, for the usual mistakes, the fix.
func errParse(schedule string, fields []string, cause error) *Error {
	fix := "write five fields: minute hour day-of-month month day-of-week"
	switch {
	case strings.HasPrefix(fields[0], "@"):
		fix = "use @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every <duration>"
	case len(fields) == 6:
		fix = "there is no field for seconds; " + fix
	}
	return &Error{Reason: ReasonParseError, Field: FieldSchedule, Err: cause, Message: fmt.Sprintf(
		"spec.schedule %q does not parse: %s; %s", shown(schedule), shown(cause.Error()), fix)}
}

// sundayAsZero rewrites the day-of-week field so that a 7, and a Sunday at the
// end of a range, becomes what robfig/cron understands. What it does not
// understand itself stays as it is, for robfig/cron to refuse.
func sundayAsZero(field string) string {
	elements := strings.Split(field, ",")
	for i, element := range elements {
		if days, ok := daysWithSunday(element); ok {
			elements[i] = days
		}
	}
	return strings.Join(elements, ",")
}

// daysWithSunday expands one element of the form a, a-b, a/step or a-b/step
// that mentions day 7; ok is false for any other.
func daysWithSunday(element string) (list string, ok bool) {
	span, stepText, stepped := strings.Cut(element, "/")
	lowText, highText, ranged := strings.Cut(span, "-")
	low, lowOK := dayOfWeek(lowText)
	high, highOK := low, lowOK
	if ranged {
		high, highOK = dayOfWeek(highText)
		if high == 0 && low > 0 && strings.EqualFold(highText, "sun") {
			high = 7
		}
	}
	step := 1
	if stepped {
		n, err := strconv.Atoi(stepText)
		if err != nil || n < 1 {
			return "", false
		}
		step = n
	}
	if !lowOK || !highOK || high != 7 || low > high {
		return "", false
	}
	var days []string
	for day := low; day <= high; day += min(step, 8) {
		days = append(days, strconv.Itoa(day%7))
	}
	return strings.Join(days, ","), true
}

// dayOfWeek reads a number 0 to 7 or an English three-letter name.
func dayOfWeek(text string) (day int, ok bool) {
	for i, name := range [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} {
		if strings.EqualFold(text, name) {
			return i, true
		}
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= 7
}
