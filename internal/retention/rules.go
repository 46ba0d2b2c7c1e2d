// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// keepRule is one of the keep rules.
type keepRule struct {
	rule Rule
	// field is its name in spec.retention.
	field string
	count func(Rules) *int32
	// bucket returns what the snapshots of one bucket have in common; nil: each
	// snapshot is a bucket of its own.
	bucket func(time.Time) [4]int
}

// keepRules are the keep rules, in the order in which they are named.
var keepRules = []keepRule{
	{KeptLast, "keepLast", func(r Rules) *int32 { return r.KeepLast }, nil},
	{KeptHourly, "keepHourly", func(r Rules) *int32 { return r.KeepHourly }, func(t time.Time) [4]int {
		year, month, day := t.Date()
		return [4]int{year, int(month), day, t.Hour()}
	}},
	{KeptDaily, "keepDaily", func(r Rules) *int32 { return r.KeepDaily }, func(t time.Time) [4]int {
		year, month, day := t.Date()
		return [4]int{year, int(month), day}
	}},
	{KeptWeekly, "keepWeekly", func(r Rules) *int32 { return r.KeepWeekly }, func(t time.Time) [4]int {
		year, week := t.ISOWeek()
		return [4]int{year, week}
	}},
	{KeptMonthly, "keepMonthly", func(r Rules) *int32 { return r.KeepMonthly }, func(t time.Time) [4]int {
		return [4]int{t.Year(), int(t.Month())}
	}},
	{KeptYearly, "keepYearly", func(r Rules) *int32 { return r.KeepYearly }, func(t time.Time) [4]int {
		return [4]int{t.Year()}
	}},
}

// normalized returns the rules without counts that are none.
func (r Rules) normalized() Rules {
	for _, count := range []**int32{&r.MaxCount, &r.KeepLast, &r.KeepHourly, &r.KeepDaily, &r.KeepWeekly, &r.KeepMonthly, &r.KeepYearly} {
		if *count != nil && **count < 1 {
			*count = nil
		}
	}
	if r.Location == nil {
		r.Location = time.UTC
	}
	return r
}

// keeps tells whether there is a keep rule.
func (r Rules) keeps() bool {
	return r.KeepLast != nil || r.KeepHourly != nil || r.KeepDaily != nil ||
		r.KeepWeekly != nil || r.KeepMonthly != nil || r.KeepYearly != nil
}

// keepsOnly tells whether what no keep rule selects goes for that alone.
func (r Rules) keepsOnly() bool { return r.keeps() && r.Expires == nil && r.MaxCount == nil }

// any tells whether there is a rule at all.
func (r Rules) any() bool { return r.Expires != nil || r.MaxCount != nil || r.keeps() }

// expiry returns when a snapshot expires; limited is false without expires.
func (r Rules) expiry(s Snapshot) (at time.Time, limited bool) {
	if r.Expires == nil {
		return time.Time{}, false
	}
	return s.Time().Add(*r.Expires), true
}

// selected returns the keep rules that select each of the times, which are
// ordered newest first.
func (r Rules) selected(times []time.Time) [][]Rule {
	by := make([][]Rule, len(times))
	for _, keep := range keepRules {
		count := keep.count(r)
		if count == nil {
			continue
		}
		left := *count
		var last [4]int
		for i, t := range times {
			if left == 0 {
				break
			}
			var bucket [4]int
			if keep.bucket != nil {
				bucket = keep.bucket(t.In(r.Location))
			}
			oldest := i == len(times)-1
			if first := i == 0 || keep.bucket == nil || bucket != last; first || oldest {
				by[i] = append(by[i], keep.rule)
				left--
			}
			last = bucket
		}
	}
	return by
}

// sentence names the keep rules that select a snapshot.
func (r Rules) sentence(selected []Rule) string {
	var names []string
	for _, keep := range keepRules {
		for _, rule := range selected {
			if rule == keep.rule {
				names = append(names, fmt.Sprintf("%s: %d", keep.field, *keep.count(r)))
			}
		}
	}
	return "it is selected by " + strings.Join(names, ", ")
}

// within says which limits a snapshot is within.
func (r Rules) within() string {
	var limits []string
	if r.Expires != nil {
		limits = append(limits, fmt.Sprintf("younger than %s (expires)", human(*r.Expires)))
	}
	if r.MaxCount != nil {
		limits = append(limits, fmt.Sprintf("among the newest %d (maxCount)", *r.MaxCount))
	}
	return "it is " + strings.Join(limits, " and ")
}

// ParseExpires reads spec.retention.expires: a whole number and one of h, m, s.
// The result is 0 or more. The error names the field and the fix; retrying
// cannot help.
func ParseExpires(text string) (time.Duration, error) {
	units := map[byte]time.Duration{'h': time.Hour, 'm': time.Minute, 's': time.Second}
	shown := text
	if len(shown) > 40 {
		shown = shown[:40] + "..."
	}
	digits := strings.TrimRight(text, "hms")
	if digits == "" || len(digits) != len(text)-1 || strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("spec.retention.expires %q is no duration; write a whole number and h, m or s, such as 168h", shown)
	}
	unit := units[text[len(text)-1]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if longest := int64(1<<63-1) / int64(unit); err != nil || n > longest {
		return 0, fmt.Errorf("spec.retention.expires %q is too long; the longest is %d%c", shown, longest, text[len(text)-1])
	}
	return time.Duration(n) * unit, nil
}
