// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"fmt"
	"math/rand"
	"slices"
	"sort"
	"testing"
	"time"
)

// forget is restic's forget, written from its documentation and independent of
// the package: "for the last n hours (days, weeks, ...) which have one or more
// snapshots, keep only the most recent one for each"; only hours that have a
// snapshot count; weeks are Monday 00:00 to Sunday 23:59; the rules are ORed;
// the oldest snapshot is kept in addition if there are not enough; snapshots in
// the future are ignored and not removed. It returns what is kept.
func forget(now time.Time, rules Rules, zone *time.Location, times []time.Time) map[time.Time]bool {
	kept := map[time.Time]bool{}
	var past []time.Time
	for _, t := range times {
		if t.After(now) {
			kept[t] = true
		} else {
			past = append(past, t)
		}
	}
	sort.Slice(past, func(i, j int) bool { return past[i].Before(past[j]) })

	if rules.KeepLast != nil {
		for i := 0; i < int(*rules.KeepLast) && i < len(past); i++ {
			kept[past[len(past)-1-i]] = true
		}
	}
	// Each period is named by its first moment.
	monday := func(t time.Time) time.Time {
		back := (int(t.Weekday()) + 6) % 7
		return time.Date(t.Year(), t.Month(), t.Day()-back, 0, 0, 0, 0, time.UTC)
	}
	for _, rule := range []struct {
		n     *int32
		start func(time.Time) time.Time
	}{
		{rules.KeepHourly, func(t time.Time) time.Time {
			return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), 0, 0, 0, time.UTC)
		}},
		{rules.KeepDaily, func(t time.Time) time.Time {
			return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
		}},
		{rules.KeepWeekly, monday},
		{rules.KeepMonthly, func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC) }},
		{rules.KeepYearly, func(t time.Time) time.Time { return time.Date(t.Year(), 1, 1, 0, 0, 0, 0, time.UTC) }},
	} {
		if rule.n == nil || *rule.n < 1 {
			continue
		}
		mostRecent := map[time.Time]time.Time{}
		for _, t := range past {
			mostRecent[rule.start(t.In(zone))] = t
		}
		var periods []time.Time
		for period := range mostRecent {
			periods = append(periods, period)
		}
		sort.Slice(periods, func(i, j int) bool { return periods[i].After(periods[j]) })
		for i := 0; i < int(*rule.n) && i < len(periods); i++ {
			kept[mostRecent[periods[i]]] = true
		}
		if len(periods) < int(*rule.n) && len(past) > 0 {
			kept[past[0]] = true
		}
	}
	return kept
}

func TestKeepRulesEqualRestic(t *testing.T) {
	const seed = 21
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2000 {
		count := func() *int32 { return []*int32{nil, ptr(int32(r.Intn(15)))}[r.Intn(2)] }
		rules := Rules{KeepLast: count(), KeepHourly: count(), KeepDaily: count(), KeepWeekly: count(), KeepMonthly: count(),
			KeepYearly: count(), Location: []*time.Location{time.UTC, vienna, time.FixedZone("", -5*3600-1800)}[r.Intn(3)]}
		if !rules.normalized().keeps() {
			continue // restic refuses an empty policy, here it deletes nothing
		}
		span := []time.Duration{3 * hour, 4 * day, 100 * day, 4000 * day}[r.Intn(4)]
		var times []time.Time
		var snapshots []Snapshot
		for i := range r.Intn(60) {
			at := now.Add(time.Duration(r.Int63n(int64(span / 50)))).Add(-time.Duration(r.Int63n(int64(span)))).Truncate(time.Second)
			if slices.ContainsFunc(times, at.Equal) {
				continue
			}
			times = append(times, at)
			snapshots = append(snapshots, Snapshot{Name: fmt.Sprint("s", i), ClaimName: "data", ClaimUID: "1", Created: at, State: Ready})
		}
		want := forget(now, rules, rules.Location, times)
		for _, v := range Decide(now, rules, data, snapshots) {
			if v.Delete == want[v.Snapshot.Time()] {
				t.Fatalf("round %d, %s: restic keeps it: %v, %+v", round, deref(rules), want[v.Snapshot.Time()], v)
			}
		}
	}
}

// The examples of restic's documentation.
func TestExamplesOfResticsDocumentation(t *testing.T) {
	sunday := time.Date(2019, 11, 17, 11, 0, 0, 0, time.UTC)
	var sundays []Snapshot
	for i := range 12 {
		sundays = append(sundays, Snapshot{Name: fmt.Sprint("s", i), ClaimName: "data", ClaimUID: "1", Created: sunday.AddDate(0, 0, -7*i), State: Ready})
	}
	stay := remaining(Decide(now, Rules{KeepDaily: ptr[int32](4)}, data, sundays))
	if len(stay) != 4 || !stay[3].Created.Equal(sunday.AddDate(0, 0, -21)) {
		t.Errorf("12 Sundays, keepDaily 4: %+v", stay)
	}

	var days []Snapshot
	last := time.Date(2100, 4, 18, 11, 0, 0, 0, time.UTC)
	for i := range 36525 {
		days = append(days, Snapshot{Name: fmt.Sprint("s", i), ClaimName: "data", ClaimUID: "1", Created: last.AddDate(0, 0, -i), State: Ready})
	}
	rules := Rules{KeepDaily: ptr[int32](7), KeepWeekly: ptr[int32](5), KeepMonthly: ptr[int32](12), KeepYearly: ptr[int32](75)}
	stay = remaining(Decide(last, rules, data, days))
	// 7 days, of which one is a Sunday, and 4 more Sundays. Of 12 months and 75
	// years the current ones are the newest day, and December is the last year.
	if want := 7 + 4 + 11 + 73; len(stay) != want {
		t.Errorf("a century of days: %d stay, want %d", len(stay), want)
	}
}

func FuzzDecide(f *testing.F) {
	f.Add(int64(1), int64(0), int32(0), int32(0))
	f.Add(int64(2), int64(7*24*3600), int32(3), int32(2))
	f.Add(int64(3), int64(-1), int32(-1), int32(1<<31-1))
	f.Add(int64(4), int64(1<<62), int32(1), int32(1))
	f.Fuzz(func(t *testing.T, seed, expires int64, maxCount, keepCount int32) {
		h := generate(rand.New(rand.NewSource(seed)))
		h.rules.Expires, h.rules.MaxCount, h.rules.KeepMonthly = ptr(time.Duration(expires)), &maxCount, &keepCount
		if expires == 0 {
			h.rules.Expires = nil
		}
		verdicts := h.decide()
		if len(verdicts) != len(h.snapshots) {
			t.Fatalf("%d verdicts for %d snapshots", len(verdicts), len(h.snapshots))
		}
		NextDue(verdicts)
		h.snapshots = remaining(verdicts)
		for _, v := range h.decide() {
			if v.Delete {
				t.Fatalf("goes the second time only: %+v", v)
			}
		}
	})
}

func FuzzParseExpires(f *testing.F) {
	for _, text := range []string{"168h", "0s", "9223372036854775807h", "h", "1h\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseExpires(text); err == nil && d < 0 || err != nil && d != 0 {
			t.Fatalf("ParseExpires(%q) = %v, %v", text, d, err)
		}
	})
}
