// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// now is a Wednesday, noon.
var now = time.Date(2026, 7, 15, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// snap returns a ready snapshot of claim data that is age old.
func snap(name string, age time.Duration, change ...func(*Snapshot)) Snapshot {
	s := Snapshot{Name: name, UID: "uid-" + name, ClaimName: "data", ClaimUID: "1", Created: now.Add(-age), State: Ready}
	for _, c := range change {
		c(&s)
	}
	return s
}

func in(state State) func(*Snapshot) { return func(s *Snapshot) { s.State = state } }
func of(claim, uid string) func(*Snapshot) {
	return func(s *Snapshot) { s.ClaimName, s.ClaimUID = claim, uid }
}
func cutAt(age time.Duration) func(*Snapshot) {
	return func(s *Snapshot) { s.CutAt = ptr(now.Add(-age)) }
}
func app(s *Snapshot)     { s.Consistency = ConsistencyApplication }
func keep(s *Snapshot)    { s.Keep = true }
func active(s *Snapshot)  { s.RunActive = true }
func sourced(s *Snapshot) { s.ContentSourced = true }
func foreign(s *Snapshot) { s.Foreign = true }
func member(group string) func(*Snapshot) {
	return func(s *Snapshot) { s.Group = group }
}

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// the claim data as it exists in most cases.
var data = []Claim{{Name: "data", UID: "1", Created: now.Add(-1000 * day)}}

func TestDecide(t *testing.T) {
	week := Rules{Expires: ptr(7 * day), ReadyTimeout: day}
	two := Rules{MaxCount: ptr[int32](2), ReadyTimeout: day}
	last := Rules{Expires: ptr(7 * day), ExpireLast: true}
	tests := map[string]struct {
		rules     Rules
		claims    []Claim
		snapshots []Snapshot
		want      string
	}{
		"no rules delete nothing": {Rules{ReadyTimeout: day}, data,
			[]Snapshot{snap("a", 9000*day), snap("b", 9001*day), snap("c", 2*day, in(Failed)), snap("d", 3*day, in(Failed)), snap("e", 4*day, in(Unfinished))},
			"c NoRules, d NoRules, e NoRules, a NoRules, b NoRules"},
		"counts below one are no rules": {Rules{MaxCount: ptr[int32](0), KeepLast: ptr[int32](-1)}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour)}, "a NoRules, b NoRules"},
		"old ones expire and the newest ready one stays": {week, data,
			[]Snapshot{snap("a", 8*day), snap("b", 9*day)}, "a NewestReady, -b Expired"},
		"at exactly the age one expires": {week, data,
			[]Snapshot{snap("a", hour), snap("b", 7*day-1), snap("c", 7*day)}, "a NewestReady, b Within, -c Expired"},
		"expireLast: the newest ready one expires as well": {last, data,
			[]Snapshot{snap("a", 8*day, app), snap("b", 9*day)}, "-a Expired, -b Expired"},
		"expireLast: while young the newest ready one is protected from maxCount": {
			Rules{Expires: ptr(7 * day), MaxCount: ptr[int32](1), ExpireLast: true}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour, app), snap("c", 3*hour, app)}, "a NewestReady, b NewestApplication, -c BeyondMaxCount"},
		"expireLast: what a keep rule selects stays": {
			Rules{Expires: ptr(7 * day), ExpireLast: true, KeepLast: ptr[int32](1)}, data,
			[]Snapshot{snap("a", 8*day), snap("b", 9*day)}, "a KeepLast, -b Expired"},
		"the moment of the cut counts, not the creation of the object": {week, data,
			[]Snapshot{snap("a", hour), snap("b", 8*day, cutAt(6*day)), snap("c", 6*day, cutAt(8*day))}, "a NewestReady, b Within, -c Expired"},
		"a cut at the epoch is no cut": {week, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour, func(s *Snapshot) { s.CutAt = ptr(time.Unix(0, 0)) })}, "a NewestReady, b Within"},
		"maxCount keeps the newest": {two, data,
			[]Snapshot{snap("c", 3*hour), snap("a", hour), snap("b", 2*hour)}, "a NewestReady, b Within, -c BeyondMaxCount"},
		"both limits apply": {Rules{Expires: ptr(7 * day), MaxCount: ptr[int32](3)}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour), snap("c", 8*day), snap("d", 9*day)}, "a NewestReady, b Within, -c Expired, -d Expired"},
		"failed ones do not count and only the newest of them stays": {two, data,
			[]Snapshot{snap("a", hour, in(Failed)), snap("b", 2*hour, in(Failed)), snap("c", 3*hour), snap("d", 4*hour), snap("e", 5*hour)},
			"a NewestFailed, -b FailedSuperseded, c NewestReady, d Within, -e BeyondMaxCount"},
		"the newest failed one expires": {week, data,
			[]Snapshot{snap("a", hour), snap("b", 8*day, in(Failed))}, "a NewestReady, -b FailedExpired"},
		"unfinished ones do not count": {two, data,
			[]Snapshot{snap("a", hour, in(Unfinished)), snap("b", 2*hour, in(Unfinished)), snap("c", 3*hour), snap("d", 4*hour)},
			"a StillUnfinished, b StillUnfinished, c NewestReady, d Within"},
		"an unknown state is unfinished": {two, data, []Snapshot{snap("a", hour, in("?"))}, "a StillUnfinished"},
		"after the ready timeout an unfinished one has failed": {two, data,
			[]Snapshot{snap("a", day-1, in(Unfinished)), snap("b", day, in(Unfinished)), snap("c", 2*day, in(Failed))},
			"a StillUnfinished, b NewestFailed, -c FailedSuperseded"},
		"without a ready timeout it never has": {Rules{Expires: ptr(day)}, data,
			[]Snapshot{snap("a", 9*day, in(Unfinished))}, "a StillUnfinished"},
		"terminating ones neither count nor go": {two, data,
			[]Snapshot{snap("a", hour, in(Terminating)), snap("b", 2*hour), snap("c", 3*hour), snap("d", 99*day, in(Terminating), keep)},
			"a AlreadyTerminating, b NewestReady, c Within, d AlreadyTerminating"},
		"a labelled one stays and takes no place": {two, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour, keep), snap("c", 3*hour), snap("d", 4*hour)},
			"a NewestReady, b KeepLabel, c Within, -d BeyondMaxCount"},
		"a labelled one can be the newest": {week, data,
			[]Snapshot{snap("a", 8*day, keep), snap("b", 9*day)}, "a KeepLabel, -b Expired"},
		"a labelled one that failed stays beside the newest that failed": {week, data,
			[]Snapshot{snap("a", hour, in(Failed), keep), snap("b", 2*hour, in(Failed))}, "a KeepLabel, b NewestFailed"},
		"nothing of an active run goes": {Rules{Expires: ptr(hour), ReadyTimeout: day}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour, active), snap("c", 2*day, in(Unfinished), active), snap("d", 2*day, in(Failed), active)},
			"a NewestReady, b RunActive, d RunActive, c RunActive"},
		"a ready one of an active run counts": {two, data,
			[]Snapshot{snap("a", hour, active), snap("b", 2*hour), snap("c", 3*hour)}, "a RunActive, b Within, -c BeyondMaxCount"},
		"the newest application-consistent one stays": {Rules{MaxCount: ptr[int32](1)}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour), snap("c", 3*hour, app), snap("d", 4*hour, app)},
			"a NewestReady, -b BeyondMaxCount, c NewestApplication, -d BeyondMaxCount"},
		"and does not expire": {week, data,
			[]Snapshot{snap("a", hour), snap("b", 8*day, app), snap("c", 9*day, app)}, "a NewestReady, b NewestApplication, -c Expired"},
		"one that failed is not the newest application-consistent one": {week, data,
			[]Snapshot{snap("a", hour, in(Failed), app), snap("b", 8*day, app)}, "a NewestFailed, b NewestReady"},
		"a vanished claim keeps its newest but for expires": {week, nil,
			[]Snapshot{snap("a", 6*day), snap("b", 8*day)}, "a VanishedNewest, -b Expired"},
		"a vanished claim loses all to expires": {week, nil,
			[]Snapshot{snap("a", 8*day, app), snap("b", 9*day)}, "-a Expired, -b Expired"},
		"a vanished claim keeps its newest against maxCount": {Rules{MaxCount: ptr[int32](1)}, nil,
			[]Snapshot{snap("a", hour), snap("b", 2*hour), snap("c", 3*hour, app)}, "a VanishedNewest, -b BeyondMaxCount, c NewestApplication"},
		"a claim created again is another one": {Rules{MaxCount: ptr[int32](1)}, []Claim{{Name: "data", UID: "2"}},
			[]Snapshot{snap("a", hour, of("data", "2")), snap("b", 2*hour), snap("c", 3*hour)}, "b VanishedNewest, -c BeyondMaxCount, a NewestReady"},
		"claims are judged apart": {Rules{MaxCount: ptr[int32](1)}, []Claim{{Name: "data", UID: "1"}, {Name: "log", UID: "2"}},
			[]Snapshot{snap("a", hour), snap("b", 2*hour, of("log", "2")), snap("c", 3*hour, of("log", "2"))},
			"a NewestReady, b NewestReady, -c BeyondMaxCount"},
		"what snapscheduler made belongs to the claim of that name": {Rules{MaxCount: ptr[int32](1)}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour, of("data", ""))}, "-b BeyondMaxCount, a NewestReady"},
		"what snapscheduler made of the claim before is not of this one": {Rules{MaxCount: ptr[int32](1)},
			[]Claim{{Name: "data", UID: "1", Created: now.Add(-90 * time.Minute)}},
			[]Snapshot{snap("a", hour), snap("b", 2*hour, of("data", "")), snap("c", 3*hour, of("data", ""))},
			"b VanishedNewest, -c BeyondMaxCount, a NewestReady"},
		"what snapscheduler made of a claim that is gone": {week, nil,
			[]Snapshot{snap("a", hour, of("data", "")), snap("b", 8*day, of("data", ""))}, "a VanishedNewest, -b Expired"},
		"what carries the label and was made by somebody else neither goes nor counts": {Rules{MaxCount: ptr[int32](1), ReadyTimeout: day}, data,
			[]Snapshot{snap("a", hour, foreign), snap("b", 2*hour), snap("c", 3*hour, foreign), snap("d", 4*hour, foreign, in(Failed)), snap("e", 5*hour, foreign, in(Failed))},
			"a NotOurs, b NewestReady, c NotOurs, d NotOurs, e NotOurs"},
		"what was made from a content is left alone and counts for nothing": {Rules{MaxCount: ptr[int32](1)}, data,
			[]Snapshot{snap("a", hour, sourced), snap("b", 2*hour), snap("c", 3*hour, sourced)}, "a NotOurs, b NewestReady, c NotOurs"},
		"a time in the future is not counted": {Rules{MaxCount: ptr[int32](1)}, data,
			[]Snapshot{snap("a", -hour), snap("b", 2*hour), snap("c", 3*hour)}, "a InFuture, b NewestReady, -c BeyondMaxCount"},
		"members of a group go together": {week, append([]Claim{{Name: "log", UID: "2"}}, data...),
			[]Snapshot{snap("a1", hour), snap("b1", 8*day, member("g"), sourced), snap("a2", 2*hour, of("log", "2")), snap("b2", 8*day, of("log", "2"), member("g"))},
			"a1 NewestReady, -b1 Expired, a2 NewestReady, -b2 Expired"},
		"a member that stays holds its group": {week, append([]Claim{{Name: "log", UID: "2"}}, data...),
			[]Snapshot{snap("a1", hour), snap("b1", 8*day, member("g")), snap("b2", 8*day, of("log", "2"), member("g"))},
			"a1 NewestReady, b1 GroupHeld, b2 NewestReady"},
		"a member that terminates does not hold its group": {week, data,
			[]Snapshot{snap("a", hour), snap("b", 8*day, member("g")), snap("c", 8*day, in(Terminating), member("g"))},
			"a NewestReady, c AlreadyTerminating, -b Expired"},
		"two of the same moment are told apart by creation, then by name": {Rules{MaxCount: ptr[int32](1)}, data,
			[]Snapshot{snap("a", hour, cutAt(hour)), snap("b", hour, cutAt(hour)), snap("c", hour/2, cutAt(hour))},
			"c NewestReady, -b BeyondMaxCount, -a BeyondMaxCount"},
		"keep rules alone delete what they do not select": {Rules{KeepLast: ptr[int32](1), KeepDaily: ptr[int32](2)}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour), snap("c", day), snap("d", day+hour), snap("e", 2*day)},
			"a NewestReady, -b Unselected, c KeepDaily, -d Unselected, -e Unselected"},
		"keep rules beside maxCount only add": {Rules{MaxCount: ptr[int32](2), KeepDaily: ptr[int32](2)}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour), snap("c", day), snap("d", day+hour)},
			"a NewestReady, b Within, c KeepDaily, -d BeyondMaxCount"},
		"keep rules save from expires": {Rules{Expires: ptr(hour), KeepMonthly: ptr[int32](2)}, data,
			[]Snapshot{snap("a", hour), snap("b", 14*day), snap("c", 15*day), snap("d", 16*day)},
			"a NewestReady, -b Expired, c KeepMonthly, -d Expired"},
		"with fewer buckets than asked for the oldest stays too": {Rules{KeepDaily: ptr[int32](3)}, data,
			[]Snapshot{snap("a", hour), snap("b", 2*hour), snap("c", 3*hour)}, "a NewestReady, -b Unselected, c KeepDaily"},
		"failed ones have no part in keep rules": {Rules{KeepLast: ptr[int32](2)}, data,
			[]Snapshot{snap("a", hour, in(Failed)), snap("b", 2*hour, in(Failed)), snap("c", 3*hour), snap("d", 4*hour), snap("e", 5*hour)},
			"a NewestFailed, -b FailedSuperseded, c NewestReady, d KeepLast, -e Unselected"},
		"expires of nothing takes all but the newest": {Rules{Expires: ptr(time.Duration(0))}, data,
			[]Snapshot{snap("a", 0), snap("b", 0)}, "b NewestReady, -a Expired"},
		"nothing": {week, data, nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			verdicts := Decide(now, tt.rules, tt.claims, tt.snapshots)
			if got := write(verdicts); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			reversed := slices.Clone(tt.snapshots)
			slices.Reverse(reversed)
			if diff := cmp.Diff(verdicts, Decide(now, tt.rules, tt.claims, reversed), cmp.Transformer("utc", time.Time.UTC)); diff != "" {
				t.Errorf("another order of input gives other verdicts:\n%s", diff)
			}
			for _, v := range verdicts {
				if v.Rule == "" || v.Reason == "" || strings.Contains(v.Reason, "%!") {
					t.Errorf("%s: rule %q, reason %q", v.Snapshot.Name, v.Rule, v.Reason)
				}
			}
		})
	}
}

// write abbreviates verdicts: "name Rule", with a minus if it goes.
func write(verdicts []Verdict) string {
	var parts []string
	for _, v := range verdicts {
		sign := ""
		if v.Delete {
			sign = "-"
		}
		parts = append(parts, fmt.Sprintf("%s%s %s", sign, v.Snapshot.Name, v.Rule))
	}
	return strings.Join(parts, ", ")
}

func TestKeepRulesFollowTheCalendarOfTheZone(t *testing.T) {
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name, text string) Snapshot {
		when, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return Snapshot{Name: name, ClaimName: "data", ClaimUID: "1", Created: when, State: Ready}
	}
	tests := map[string]struct {
		rules     Rules
		snapshots []Snapshot
		want      string
	}{
		"midnight in UTC": {Rules{KeepDaily: ptr[int32](1)},
			[]Snapshot{at("a", "2026-07-10 23:00"), at("b", "2026-07-10 21:00")}, "a NewestReady, -b Unselected"},
		"midnight in Vienna is two hours earlier": {Rules{KeepDaily: ptr[int32](2), Location: vienna},
			[]Snapshot{at("a", "2026-07-10 23:00"), at("b", "2026-07-10 21:00"), at("c", "2026-07-10 20:00")},
			"a NewestReady, b KeepDaily, -c Unselected"},
		"a week ends on Sunday": {Rules{KeepWeekly: ptr[int32](2)},
			[]Snapshot{at("a", "2026-07-13 00:00"), at("b", "2026-07-12 23:59"), at("c", "2026-07-06 00:00")},
			"a NewestReady, b KeepWeekly, -c Unselected"},
		"a week does not end with the year": {Rules{KeepWeekly: ptr[int32](1)},
			[]Snapshot{at("a", "2026-01-02 00:00"), at("b", "2025-12-29 00:00"), at("c", "2025-12-28 00:00")},
			"a NewestReady, -b Unselected, -c Unselected"},
		"hours of different days are different": {Rules{KeepHourly: ptr[int32](2)},
			[]Snapshot{at("a", "2026-07-10 05:00"), at("b", "2026-07-09 05:30"), at("c", "2026-07-09 05:00")},
			"a NewestReady, b KeepHourly, -c Unselected"},
		"buckets without snapshots are not counted": {Rules{KeepYearly: ptr[int32](2)},
			[]Snapshot{at("a", "2026-07-10 05:00"), at("b", "2012-07-09 05:30"), at("c", "2011-07-09 05:00")},
			"a NewestReady, b KeepYearly, -c Unselected"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := write(Decide(now, tt.rules, data, tt.snapshots)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestReasonsAreSentencesForAnOperator(t *testing.T) {
	rules := Rules{Expires: ptr(168 * hour), MaxCount: ptr[int32](2), KeepLast: ptr[int32](2), KeepDaily: ptr[int32](3)}
	snapshots := []Snapshot{snap("a", hour), snap("b", day), snap("c", 8*day), snap("d", 8*day+hour), snap("e", 9*day), snap("f", 10*day)}
	want := map[string]string{
		"a": "it is the newest ready snapshot of its claim",
		"b": "it is selected by keepLast: 2, keepDaily: 3",
		"c": "it is selected by keepDaily: 3",
		"d": "it is older than 168h (expires)",
		"e": "it is older than 168h (expires)",
		"f": "it is older than 168h (expires)",
	}
	got := map[string]string{}
	for _, v := range Decide(now, rules, data, snapshots) {
		got[v.Snapshot.Name] = v.Reason
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	within := Decide(now, Rules{Expires: ptr(90 * time.Minute), MaxCount: ptr[int32](2)}, data, snapshots[:1:1])
	if got := within[0].Due; !got.IsZero() {
		t.Errorf("the newest ready snapshot is due at %v", got)
	}
	for d, want := range map[time.Duration]string{0: "0s", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 10 * time.Second: "10s", day: "24h"} {
		if got := human(d); got != want {
			t.Errorf("human = %q, want %q", got, want)
		}
	}
}

func TestNextDue(t *testing.T) {
	week := Rules{Expires: ptr(7 * day), ReadyTimeout: day}
	tests := map[string]struct {
		rules     Rules
		claims    []Claim
		snapshots []Snapshot
		// in is how long from now; negative: never.
		in time.Duration
	}{
		"nothing is never due":                     {week, data, nil, -1},
		"the next that expires":                    {week, data, []Snapshot{snap("a", hour), snap("b", day), snap("c", 2*day)}, 5 * day},
		"the newest ready one does not expire":     {week, data, []Snapshot{snap("a", hour)}, -1},
		"but with expireLast it does":              {Rules{Expires: ptr(7 * day), ExpireLast: true}, data, []Snapshot{snap("a", hour)}, 7*day - hour},
		"and that of a vanished claim does":        {week, nil, []Snapshot{snap("a", hour)}, 7*day - hour},
		"the newest failed one expires":            {week, data, []Snapshot{snap("a", hour, in(Failed))}, 7*day - hour},
		"an unfinished one will have failed":       {week, data, []Snapshot{snap("a", hour, in(Unfinished))}, day - hour},
		"a future one will have come":              {week, data, []Snapshot{snap("a", -hour)}, hour},
		"without rules nothing is due":             {Rules{ReadyTimeout: day}, data, []Snapshot{snap("a", hour, in(Unfinished)), snap("b", -hour)}, -1},
		"maxCount alone waits for a change":        {Rules{MaxCount: ptr[int32](1)}, data, []Snapshot{snap("a", hour), snap("b", 2*hour)}, -1},
		"what a keep rule selects is not due":      {Rules{Expires: ptr(7 * day), KeepLast: ptr[int32](2)}, data, []Snapshot{snap("a", hour), snap("b", 2*hour)}, -1},
		"labelled and active ones are not due":     {week, data, []Snapshot{snap("a", hour, keep), snap("b", 2*hour, active)}, -1},
		"a held member is not due, its holder can": {week, data, []Snapshot{snap("a", hour), snap("b", 6*day, member("g")), snap("c", 8*day, member("g"))}, day},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var want time.Time
			if tt.in >= 0 {
				want = now.Add(tt.in)
			}
			if got := NextDue(Decide(now, tt.rules, tt.claims, tt.snapshots)); !got.Equal(want) {
				t.Errorf("NextDue = %v, want %v", got, want)
			}
		})
	}
}

func TestParseExpires(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"168h": 168 * hour, "90m": 90 * time.Minute, "30s": 30 * time.Second, "0h": 0, "007m": 7 * time.Minute,
		"2562047h": 2562047 * hour, "9223372036s": 9223372036 * time.Second,
	} {
		if got, err := ParseExpires(text); err != nil || got != want {
			t.Errorf("ParseExpires(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for about, tt := range map[string]struct{ text, part string }{
		"empty":                       {"", "168h"},
		"a unit only":                 {"h", "168h"},
		"no unit":                     {"168", "168h"},
		"days":                        {"7d", "168h"},
		"a sign":                      {"-1h", "168h"},
		"a plus":                      {"+1h", "168h"},
		"a fraction":                  {"1.5h", "168h"},
		"two units":                   {"1h30m", "168h"},
		"a unit twice":                {"1hh", "168h"},
		"a space":                     {" 1h", "168h"},
		"a new line":                  {"1h\n", "168h"},
		"digits of another script":    {"١h", "168h"},
		"one hour too long":           {"2562048h", "the longest is 2562047h"},
		"too long for any number":     {strings.Repeat("9", 5000) + "s", "the longest is 9223372036s"},
		"minutes that would overflow": {"153722868m", "the longest is 153722867m"},
	} {
		if got, err := ParseExpires(tt.text); err == nil || !strings.Contains(err.Error(), tt.part) || len(err.Error()) > 300 {
			t.Errorf("%s: ParseExpires = %v, %v, want an error with %q", about, got, err, tt.part)
		}
	}
}
