// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"
)

// history is a generated situation.
type history struct {
	rules     Rules
	claims    []Claim
	snapshots []Snapshot
}

// generate makes a history from a source of randomness: two claim names, of
// which each may exist, be gone, or have been created again.
func generate(r *rand.Rand) history {
	count := func() *int32 {
		if r.Intn(3) > 0 {
			return nil
		}
		return ptr(int32(r.Intn(5)))
	}
	var h history
	h.rules = Rules{MaxCount: count(), KeepLast: count(), KeepHourly: count(), KeepDaily: count(), KeepWeekly: count(),
		KeepMonthly: count(), KeepYearly: count(), ExpireLast: r.Intn(4) == 0, ReadyTimeout: time.Duration(r.Intn(3)) * 12 * hour}
	if r.Intn(2) == 0 {
		h.rules.Expires = ptr(time.Duration(r.Int63n(int64(40 * day))))
	}
	if r.Intn(2) == 0 {
		h.rules.Location = time.FixedZone("", r.Intn(24*3600)-12*3600)
	}
	for _, name := range []string{"a", "b"} {
		if r.Intn(4) > 0 {
			h.claims = append(h.claims, Claim{Name: name, UID: fmt.Sprint(1 + r.Intn(2)), Created: now.Add(-time.Duration(r.Int63n(int64(60 * day))))})
		}
	}
	span := []time.Duration{2 * hour, 3 * day, 60 * day, 3000 * day}[r.Intn(4)]
	for i := range r.Intn(40) {
		h.snapshots = append(h.snapshots, randomSnapshot(r, i, span))
	}
	return h
}

func randomSnapshot(r *rand.Rand, i int, span time.Duration) Snapshot {
	age := time.Duration(r.Int63n(int64(span)))
	if r.Intn(2) == 0 {
		age = age.Truncate(hour)
	}
	s := snap(fmt.Sprintf("s%d", i), age, of([]string{"a", "b"}[r.Intn(2)], []string{"", "1", "2"}[r.Intn(3)]))
	s.State = []State{Ready, Ready, Ready, Ready, Unfinished, Failed, Failed, Terminating}[r.Intn(8)]
	s.Consistency = []string{"", "crash", ConsistencyApplication}[r.Intn(3)]
	s.Keep, s.RunActive, s.ContentSourced, s.Foreign = r.Intn(12) == 0, r.Intn(12) == 0, r.Intn(15) == 0, r.Intn(20) == 0
	switch r.Intn(8) {
	case 0:
		s.CutAt = ptr(s.Created.Add(time.Duration(r.Int63n(int64(2 * hour)))))
	case 1:
		s.CutAt = ptr(now.Add(time.Duration(r.Int63n(int64(hour)))))
	}
	if r.Intn(10) == 0 {
		s.Group = fmt.Sprint("g", r.Intn(3))
	}
	return s
}

// histories calls check with many generated histories.
func histories(t *testing.T, seed int64, check func(*testing.T, *rand.Rand, history)) {
	t.Helper()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewSource(seed))
	for i := range 1000 {
		h := generate(r)
		check(t, r, h)
		if t.Failed() {
			t.Fatalf("history %d: %+v", i, h)
		}
	}
}

func (h history) decide() []Verdict { return Decide(now, h.rules, h.claims, h.snapshots) }

// remaining returns the snapshots that stay.
func remaining(verdicts []Verdict) []Snapshot {
	var stay []Snapshot
	for _, v := range verdicts {
		if !v.Delete {
			stay = append(stay, v.Snapshot)
		}
	}
	return stay
}

// byName finds verdicts.
func byName(verdicts []Verdict) map[string]Verdict {
	m := make(map[string]Verdict, len(verdicts))
	for _, v := range verdicts {
		m[v.Snapshot.Name] = v
	}
	return m
}

// newestReady returns the newest ready snapshot that is recorded for a claim
// and whose time has come.
func newestReady(now time.Time, snapshots []Snapshot, name, uid string, also func(Snapshot) bool) *Snapshot {
	var newest *Snapshot
	for _, s := range snapshots {
		counts := s.ClaimName == name && s.ClaimUID == uid && s.State == Ready && !s.Time().After(now) && also(s)
		if counts && !s.Foreign && (!s.ContentSourced || s.Group != "") && (newest == nil || newer(s, *newest) < 0) {
			newest = &s
		}
	}
	return newest
}

func anySnapshot(Snapshot) bool { return true }

func TestTheNewestReadySnapshotSurvives(t *testing.T) {
	histories(t, 11, theNewestReadySnapshotSurvives)
}

func theNewestReadySnapshotSurvives(t *testing.T, _ *rand.Rand, h history) {
	verdicts := byName(h.decide())
	for _, claim := range h.claims {
		// Of the claim as it exists, adopted ones included.
		snapshots := slices.Clone(h.snapshots)
		for i, s := range snapshots {
			if s.ClaimName == claim.Name && s.ClaimUID == "" && s.Created.After(claim.Created) {
				snapshots[i].ClaimUID = claim.UID
			}
		}
		for about, also := range map[string]func(Snapshot) bool{
			"ready":       anySnapshot,
			"application": func(s Snapshot) bool { return s.Consistency == ConsistencyApplication },
		} {
			newest := newestReady(now, snapshots, claim.Name, claim.UID, also)
			if newest == nil || !verdicts[newest.Name].Delete {
				continue
			}
			if !h.rules.ExpireLast || verdicts[newest.Name].Rule != Expired {
				t.Errorf("the newest %s one of %s goes: %+v", about, claim.Name, verdicts[newest.Name])
			}
		}
	}
}

func TestAVanishedClaimKeepsItsNewestButForExpires(t *testing.T) {
	histories(t, 12, aVanishedClaimKeepsItsNewestButForExpires)
}

func aVanishedClaimKeepsItsNewestButForExpires(t *testing.T, _ *rand.Rand, h history) {
	verdicts := byName(h.decide())
	for _, name := range []string{"a", "b"} {
		for _, uid := range []string{"1", "2"} {
			if slices.ContainsFunc(h.claims, func(c Claim) bool { return c.Name == name && c.UID == uid }) {
				continue
			}
			newest := newestReady(now, h.snapshots, name, uid, anySnapshot)
			if newest != nil && verdicts[newest.Name].Delete && verdicts[newest.Name].Rule != Expired {
				t.Errorf("the last one of %s/%s goes: %+v", name, uid, verdicts[newest.Name])
			}
		}
	}
}

// A claim is deleted and created again, and the new one gets snapshots.
func TestAClaimCreatedAgainNeverCostsTheLastSnapshotOfTheOldOne(t *testing.T) {
	histories(t, 13, func(t *testing.T, r *rand.Rand, h history) {
		h.rules.Expires = nil
		if len(h.claims) == 0 {
			return
		}
		old := h.claims[0]
		before := remaining(h.decide())
		again := h
		again.claims = slices.Clone(h.claims)
		again.claims[0] = Claim{Name: old.Name, UID: "3", Created: now}
		again.snapshots = slices.Clone(before)
		for i := range 10 {
			s := snap(fmt.Sprint("new", i), -time.Duration(i)*hour, of(old.Name, "3"))
			again.snapshots = append(again.snapshots, s)
		}
		later := now.Add(11 * hour)
		after := byName(Decide(later, again.rules, again.claims, again.snapshots))
		for _, uid := range []string{old.UID, ""} {
			if last := newestReady(later, before, old.Name, uid, anySnapshot); last != nil && after[last.Name].Delete {
				t.Errorf("the last one of the old claim goes: %+v", after[last.Name])
			}
		}
	})
}

func TestApplyingTheResultAgainDeletesNothing(t *testing.T) {
	histories(t, 14, applyingTheResultAgainDeletesNothing)
}

func applyingTheResultAgainDeletesNothing(t *testing.T, r *rand.Rand, h history) {
	first := h.decide()
	h.snapshots = remaining(first)
	for _, v := range h.decide() {
		if v.Delete {
			t.Errorf("goes the second time only: %+v", v)
		}
	}
	// Nor does it matter if only some deletions succeed.
	h.snapshots = nil
	for _, v := range first {
		if !v.Delete || r.Intn(2) == 0 {
			h.snapshots = append(h.snapshots, v.Snapshot)
		}
	}
	then := byName(h.decide())
	for _, v := range first {
		if !v.Delete && then[v.Snapshot.Name].Delete {
			t.Errorf("goes after some others went: %+v", then[v.Snapshot.Name])
		}
	}
}

// Older snapshots turn up. The one exception is the oldest snapshot that keep
// rules select for want of more: it is not the oldest any more.
func TestMoreHistoryDeletesNothingNewer(t *testing.T) {
	histories(t, 15, func(t *testing.T, r *rand.Rand, h history) {
		for i := range h.snapshots {
			h.snapshots[i].Group = "" // a group can hang on such a one
		}
		before := h.decide()
		for i := range 5 {
			s := randomSnapshot(r, 100+i, 1000*day)
			s.Created, s.CutAt, s.Group = s.Created.Add(-5000*day), nil, ""
			h.snapshots = append(h.snapshots, s)
		}
		after := byName(h.decide())
		for _, v := range before {
			then := after[v.Snapshot.Name]
			if !v.Delete && then.Delete && !(byKeepRule(v) && isOldestOfItsClaim(h, before, v)) {
				t.Errorf("goes for older ones: was %+v, is %+v", v, then)
			}
		}
	})
}

func byKeepRule(v Verdict) bool {
	return slices.Contains([]Rule{KeptLast, KeptHourly, KeptDaily, KeptWeekly, KeptMonthly, KeptYearly}, v.Rule)
}

// isOldestOfItsClaim tells whether no older one of the same claim counts.
func isOldestOfItsClaim(h history, verdicts []Verdict, v Verdict) bool {
	current := existing(h.claims)
	claim, _ := owner(v.Snapshot, current)
	return !slices.ContainsFunc(verdicts, func(other Verdict) bool {
		o := other.Snapshot
		of, _ := owner(o, current)
		return of == claim && o.State == Ready && !o.Keep && !o.Foreign && !o.ContentSourced && !o.Time().After(now) && newer(v.Snapshot, o) < 0
	})
}

func TestFailedAndUnfinishedOnesNeverEvictReadyOnes(t *testing.T) {
	histories(t, 16, failedAndUnfinishedOnesNeverEvictReadyOnes)
}

func failedAndUnfinishedOnesNeverEvictReadyOnes(t *testing.T, _ *rand.Rand, h history) {
	for i := range h.snapshots {
		h.snapshots[i].Group = ""
	}
	with := h.decide()
	h.snapshots = slices.DeleteFunc(h.snapshots, func(s Snapshot) bool { return s.State != Ready })
	without := byName(h.decide())
	for _, v := range with {
		if v.Snapshot.State == Ready && (v.Delete != without[v.Snapshot.Name].Delete || v.Rule != without[v.Snapshot.Name].Rule) {
			t.Errorf("with the others %+v, without %+v", v, without[v.Snapshot.Name])
		}
	}
}

func TestWhatMustNeverGoStays(t *testing.T) { histories(t, 17, whatMustNeverGoStays) }

func whatMustNeverGoStays(t *testing.T, _ *rand.Rand, h history) {
	for _, v := range h.decide() {
		s := v.Snapshot
		young := h.rules.ReadyTimeout <= 0 || now.Sub(s.Created) < h.rules.ReadyTimeout
		if v.Delete && (s.Keep || s.Foreign || s.RunActive || s.State == Terminating || s.ContentSourced && s.Group == "" ||
			s.State == Unfinished && young || s.Time().After(now) && s.State == Ready) {
			t.Errorf("goes: %+v", v)
		}
		if v.Delete && h.rules.Expires == nil && (v.Rule == Expired || v.Rule == FailedExpired) {
			t.Errorf("expires without expires: %+v", v)
		}
	}
}

func TestNothingGoesBeforeItIsDue(t *testing.T) { histories(t, 18, nothingGoesBeforeItIsDue) }

func nothingGoesBeforeItIsDue(t *testing.T, r *rand.Rand, h history) {
	verdicts := h.decide()
	h.snapshots = remaining(verdicts)
	due := NextDue(Decide(now, h.rules, h.claims, h.snapshots))
	at := now.Add(20000 * day)
	if !due.IsZero() {
		if !due.After(now) {
			t.Errorf("due at %v, which is not in the future", due)
			return
		}
		at = now.Add(time.Duration(r.Int63n(int64(due.Sub(now)))))
	}
	for _, v := range Decide(at, h.rules, h.claims, h.snapshots) {
		if v.Delete {
			t.Errorf("goes at %v, due is %v: %+v", at, due, v)
		}
	}
}

func TestTheInputIsNotChanged(t *testing.T) { histories(t, 19, theInputIsNotChanged) }

func theInputIsNotChanged(t *testing.T, r *rand.Rand, h history) {
	written := func() string { return fmt.Sprintf("%+v %+v", h.claims, h.snapshots) + deref(h.rules) }
	before := written()
	verdicts := fmt.Sprint(h.decide())
	if before != written() {
		t.Error("the input was changed")
	}
	r.Shuffle(len(h.snapshots), func(i, j int) { h.snapshots[i], h.snapshots[j] = h.snapshots[j], h.snapshots[i] })
	if again := fmt.Sprint(h.decide()); again != verdicts {
		t.Errorf("another order of input gives other verdicts:\n%s\n%s", verdicts, again)
	}
}

func deref(r Rules) string {
	text := fmt.Sprintf("%+v", r)
	for _, p := range []*int32{r.MaxCount, r.KeepLast, r.KeepHourly, r.KeepDaily, r.KeepWeekly, r.KeepMonthly, r.KeepYearly} {
		if p != nil {
			text += fmt.Sprint(*p, ",")
		}
	}
	return text
}
