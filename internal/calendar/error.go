// SPDX-License-Identifier: Apache-2.0

package calendar

import (
	"fmt"
	"strings"
)

// Reason says in one word why a schedule has no slots. Values are stable and
// may be used in conditions.
type Reason string

const (
	// ReasonEmpty: the schedule is empty or holds nothing but a zone.
	ReasonEmpty Reason = "Empty"
	// ReasonParseError: the schedule is no cron expression and no macro.
	ReasonParseError Reason = "ParseError"
	// ReasonUnknownTimeZone: the zone is no IANA name, or it is "Local", which
	// would depend on where the operator runs.
	ReasonUnknownTimeZone Reason = "UnknownTimeZone"
	// ReasonTwoTimeZones: the schedule starts with a zone and names one more.
	ReasonTwoTimeZones Reason = "TwoTimeZones"
	// ReasonNeverFires: the expression is well formed, but no calendar has such
	// a day (30 February).
	ReasonNeverFires Reason = "NeverFires"
	// ReasonTooFrequent: @every with less than a minute.
	ReasonTooFrequent Reason = "TooFrequent"
)

// Fields that an Error can be about.
const (
	FieldSchedule = "spec.schedule"
	FieldTimeZone = "spec.timeZone"
)

// Error is what Parse returns: the text of a person's mistake. Retrying cannot
// help; the caller shows Message and waits for the object to change.
type Error struct {
	// Reason is one of the Reason constants.
	Reason Reason
	// Field is FieldSchedule or FieldTimeZone.
	Field string
	// Message names the field, what is wrong and how to fix it. It is stable for
	// the same input and never longer than about 500 bytes.
	Message string
	// Err is the cause, if another package found it; may be nil.
	Err error
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// shownBytes bounds what an error repeats of its input.
const shownBytes = 100

// shown cuts s to what an error may repeat. Messages end up in conditions, which
// must be valid UTF-8.
func shown(s string) string {
	if len(s) > shownBytes {
		s = s[:shownBytes] + "..."
	}
	return strings.ToValidUTF8(s, "")
}

func errEmpty() *Error {
	return &Error{Reason: ReasonEmpty, Field: FieldSchedule,
		Message: `spec.schedule is empty; write five fields (minute hour day-of-month month day-of-week), such as "0 2 * * *", or a macro such as @daily`}
}

func errTwoTimeZones(message string) *Error {
	return &Error{Reason: ReasonTwoTimeZones, Field: FieldSchedule, Message: message}
}

func errNeverFires(schedule string) *Error {
	return &Error{Reason: ReasonNeverFires, Field: FieldSchedule, Message: fmt.Sprintf(
		"spec.schedule %q never fires: none of its months has such a day; choose a day of month that exists", shown(schedule))}
}

func errUnknownTimeZone(field, zone string, cause error) *Error {
	return &Error{Reason: ReasonUnknownTimeZone, Field: field, Err: cause, Message: fmt.Sprintf(
		"%s names the time zone %q, which is unknown; use an IANA name such as Europe/Vienna or Etc/UTC", field, shown(zone))}
}

func errLocal(field string) *Error {
	return &Error{Reason: ReasonUnknownTimeZone, Field: field, Message: fmt.Sprintf(
		`%s names the time zone "Local", which depends on where the operator runs; use an IANA name such as Europe/Vienna`, field)}
}

func errTooFrequent(schedule string) *Error {
	return &Error{Reason: ReasonTooFrequent, Field: FieldSchedule, Message: fmt.Sprintf(
		"spec.schedule %q fires more than once a minute; the shortest is @every 1m", shown(schedule))}
}
