// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"math/rand"
	"slices"
	"testing"
	"time"
)

// bytesSource lets a fuzzer choose what generate would draw by lot. When the bytes are used up, a fixed sequence follows: math/rand draws
// again and again until it likes what it gets.
type bytesSource struct {
	data []byte
	next rand.Source
}

func newBytesSource(data []byte) *bytesSource { return &bytesSource{data, rand.NewSource(1)} }

func (s *bytesSource) Int63() int64 {
	if len(s.data) < 2 {
		return s.next.Int63()
	}
	v := int64(s.data[0])<<8 | int64(s.data[1])
	s.data = s.data[2:]
	return v<<47 | v<<32 // what is drawn below a small bound is taken from bits 32 and up, what is drawn below a duration from all of them
}

func (s *bytesSource) Seed(int64) {}

// FuzzHistory judges any history. What docs/retention.md protects never goes.
func FuzzHistory(f *testing.F) {
	f.Add([]byte{})
	for seed := range int64(8) {
		r, data := rand.New(rand.NewSource(seed)), make([]byte, 1000)
		_, _ = r.Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := rand.New(newBytesSource(data))
		h := generate(r)
		for _, check := range []func(*testing.T, *rand.Rand, history){
			theNewestReadySnapshotSurvives, aVanishedClaimKeepsItsNewestButForExpires, applyingTheResultAgainDeletesNothing,
			failedAndUnfinishedOnesNeverEvictReadyOnes, whatMustNeverGoStays, nothingGoesBeforeItIsDue, theInputIsNotChanged,
		} {
			c := h
			c.snapshots, c.claims = slices.Clone(h.snapshots), slices.Clone(h.claims)
			check(t, r, c)
		}
		if t.Failed() {
			t.Fatalf("history: %+v", h)
		}
	})
}

// FuzzClock: times at the ends of what a clock can say do not confuse the rules, and never make a protected snapshot go.
func FuzzClock(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(0), false)
	f.Add(int64(1<<33), int64(-1<<40), int64(1<<62), int64(3600), true)
	f.Add(int64(253402300799), int64(253402300799), int64(-1), int64(-1), false)
	f.Fuzz(func(t *testing.T, nowUnix, created, expires, timeout int64, expireLast bool) {
		at := time.Unix(nowUnix%(1<<40), 0)
		last := Snapshot{Name: "s", UID: "s", ClaimName: "a", ClaimUID: "1", Created: time.Unix(created%(1<<40), 0), State: Ready}
		unfinished := last
		unfinished.Name, unfinished.UID, unfinished.State = "u", "u", Unfinished
		rules := Rules{Expires: ptr(time.Duration(expires)), ExpireLast: expireLast, ReadyTimeout: time.Duration(timeout)}
		verdicts := Decide(at, rules, []Claim{{Name: "a", UID: "1"}}, []Snapshot{last, unfinished})
		for _, v := range verdicts {
			if v.Snapshot.State == Ready && v.Delete && (!expireLast || v.Rule != Expired) {
				t.Fatalf("the last snapshot goes at %v: %+v", at, v)
			}
		}
		if due := NextDue(verdicts); !due.IsZero() && !due.After(at) {
			t.Fatalf("at %v the next look is due at %v", at, due)
		}
	})
}
