// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// make crash takes every story with one fault; with -crash.full it takes hours.
var (
	crashFull  = flag.Bool("crash.full", false, "let every single call have its fault, and every pair of calls two")
	crashEvery = flag.Int("crash.every", 6, "of the stories with one fault take each one of so many; 1: all")
	crashPairs = flag.Int("crash.pairs", 60, "how many stories with two faults to take from all there are")
	crashSeed  = flag.Uint64("crash.seed", 1, "which stories with two faults those are")
)

// tell a story with these faults, and expect the world to be as it should be at its end.
func tell(t *testing.T, p plot, l lag, faults map[int]fault, runsFirst bool) *story {
	t.Helper()
	h := newStory(t, p, l)
	h.faults, h.runsFirst = faults, runsFirst
	h.play()
	h.judge()
	h.report(t)
	return h
}

// report what is wrong with the story, if anything is.
func (h *story) report(t *testing.T) {
	t.Helper()
	for _, c := range h.complaints {
		t.Error(c)
	}
	if t.Failed() {
		t.Log("what happened:\n" + strings.Join(h.trace, "\n"))
	}
}

// Nothing fails: the plot is what the other stories are measured by, and another look at its end has nothing to do.
func TestAStoryWithoutFaultsEndsWellAndComesToRest(t *testing.T) {
	t.Parallel()
	for _, p := range plots {
		t.Run(p.name, func(t *testing.T) {
			h := tell(t, p, lag{}, nil, false)
			t.Logf("%d calls, %d changes of the world, %d writes", h.calls, h.moves, h.server.writes)
		})
	}
}

// incident is a call and what becomes of it.
type incident struct {
	n     int
	what  string
	fault fault
}

func (i incident) String() string { return fmt.Sprintf("%s %d %s", i.fault, i.n, i.what) }

// incidents that can happen to a story after its nth call. Of what makes no difference one is enough: to lose the answer of a read, to end the
// process at another moment in which the world is the same, and to do so before a call instead of after the one before.
func (h *story) incidents(after int) []incident {
	var all []incident
	for i, c := range h.made[after:] {
		n := after + i + 1
		add := func(f fault) { all = append(all, incident{n, c.what, f}) }
		last := n == len(h.made) || h.made[n].moves > c.moves
		if !c.cached() || *crashFull {
			add(fails)
		}
		if c.writes() || *crashFull {
			add(unanswered)
		}
		if last || *crashFull {
			add(killAfter)
		}
		if n == 1 || *crashFull {
			add(killBefore)
		}
		if *crashFull {
			add(busy)
		}
	}
	return all
}

// Every call (of those that -crash.every takes) fails, is carried out without an answer, and is the last that the process makes.
func TestTheOperatorFailsAtEveryCall(t *testing.T) {
	t.Parallel()
	for _, p := range plots {
		t.Run(p.name, func(t *testing.T) {
			base := tell(t, p, lag{}, nil, false)
			all := base.incidents(0)
			t.Logf("%d stories of %d calls", len(all), base.calls)
			for k, i := range all {
				if k%*crashEvery != 0 && !*crashFull {
					continue
				}
				t.Run(i.String(), func(t *testing.T) {
					t.Parallel()
					if h := tell(t, p, lag{}, map[int]fault{i.n: i.fault}, i.n%2 == 0); h.fired != 1 && i.n < base.calls { // the last look of all may come before or after the end
						t.Errorf("%d faults happened: the story goes another way than the one without", h.fired)
					}
				})
			}
			t.Run("beyond the last call", func(t *testing.T) {
				t.Parallel()
				if h := tell(t, p, lag{}, map[int]fault{base.calls + 1: fails}, false); h.fired != 0 {
					t.Error("there is one call more")
				}
			})
		})
	}
}

// A cached read that fails is no more than another look. One in seven does, and each one does in one of the stories.
func TestCachedReadsFail(t *testing.T) {
	t.Parallel()
	const every = 7
	for _, p := range plots {
		for first := range every {
			t.Run(fmt.Sprintf("%s/%d", p.name, first), func(t *testing.T) {
				t.Parallel()
				faults := map[int]fault{}
				for n := first + 1; n < maxCalls; n += every {
					faults[n] = failsIfCached
				}
				tell(t, p, lag{}, faults, first%2 == 0)
			})
		}
	}
}

// Two faults in one story: all pairs, or a sample that is spread evenly over the first fault's call.
func TestTheOperatorFailsTwice(t *testing.T) {
	t.Parallel()
	if *crashFull {
		everyPair(t)
		return
	}
	dice := rand.New(rand.NewPCG(*crashSeed, 0))
	t.Logf("%d pairs, seed %d", *crashPairs, *crashSeed)
	for k, p := range plots {
		base := tell(t, p, lag{}, nil, false)
		all := base.incidents(0)
		share := (*crashPairs + len(plots) - 1 - k) / len(plots)
		for j := range share {
			// The jth part of the story, and within it any call.
			first := all[(j*len(all)+dice.IntN(len(all)))/share]
			second := first.n + 1 + dice.IntN(max(10, base.calls-first.n+10))
			f := []fault{fails, unanswered, killAfter, killAfter}[dice.IntN(4)]
			runsFirst := dice.IntN(2) == 0
			t.Run(fmt.Sprintf("%s/%s, %s %d", p.name, first, f, second), func(t *testing.T) {
				t.Parallel()
				tell(t, p, lag{}, map[int]fault{first.n: first.fault, second: f}, runsFirst)
			})
		}
	}
}

func everyPair(t *testing.T) {
	for _, p := range plots {
		base := tell(t, p, lag{}, nil, false)
		for _, first := range base.incidents(0) {
			t.Run(p.name+"/"+first.String(), func(t *testing.T) {
				t.Parallel()
				once := tell(t, p, lag{}, map[int]fault{first.n: first.fault}, false)
				for _, second := range once.incidents(first.n) {
					t.Run(second.String(), func(t *testing.T) {
						tell(t, p, lag{}, map[int]fault{first.n: first.fault, second.n: second.fault}, false)
					})
				}
			})
		}
	}
}

// lags of a cache, in everything or in one kind of object.
func lags() []lag {
	var all []lag
	for _, kind := range []string{"", kindSchedule, kindRun, kindSnapshot} {
		for by := 1; by <= 5; by++ {
			if kind == "" || by%2 == 1 || *crashFull {
				all = append(all, lag{kind: kind, by: by})
			}
		}
		all = append(all, lag{kind: kind, forever: true})
	}
	return all
}

// The operator's reads are older than its writes. It writes no more for that than a few things twice.
func TestTheCacheTrails(t *testing.T) {
	t.Parallel()
	for _, p := range plots {
		base := tell(t, p, lag{}, nil, false)
		for _, l := range lags() {
			t.Run(p.name+"/"+l.String(), func(t *testing.T) {
				t.Parallel()
				if h := tell(t, p, l, nil, false); h.server.writes > base.server.writes+8 {
					t.Errorf("%d writes, and %d with a cache that does not trail", h.server.writes, base.server.writes)
				}
			})
		}
	}
}

// The process ends, and the next one's cache trails as well.
func TestTheCacheTrailsBehindADeadOperator(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(*crashSeed, 1))
	for _, p := range plots {
		base := tell(t, p, lag{}, nil, false)
		kills := slices.DeleteFunc(base.incidents(0), func(i incident) bool { return i.fault != killAfter })
		for k, l := range []lag{{by: 1}, {by: 3}, {by: 5}, {forever: true}, {kind: kindRun, forever: true}} {
			for i := k; i < len(kills); i += 5 {
				if !*crashFull && dice.IntN(2) == 0 {
					continue
				}
				n := kills[i].n
				t.Run(fmt.Sprintf("%s/%s/%s", p.name, l, kills[i]), func(t *testing.T) {
					t.Parallel()
					tell(t, p, l, map[int]fault{n: killAfter}, n%2 == 0)
				})
			}
		}
	}
}

// A run is deleted while its application is quiesced. It is released, goes, and the cache still shows it as it was: nothing is done for it
// any more, its pods may be another run's by now.
func TestNothingIsDoneForARunThatIsGone(t *testing.T) {
	t.Parallel()
	p := plots[1]
	for _, phase := range []v1.RunPhase{v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks} {
		for _, l := range append(lags(), lag{}) {
			if l.kind == kindSchedule {
				continue // a schedule that does not see its own slot taken makes the run anew, with another UID
			}
			t.Run(fmt.Sprintf("%s/%s", phase, l), func(t *testing.T) {
				t.Parallel()
				h := newStory(t, p, l)
				name := h.runNamed("hourly")
				deleted := false
				h.meddle = func() {
					r, ok := h.server.newest[objectKey{kindRun, name}].(*v1.SnapshotRun)
					if deleted || !ok || r.Status.Phase != phase {
						return
					}
					deleted = true
					if err := h.server.Delete(t.Context(), r.DeepCopy()); err != nil {
						t.Fatal(err)
					}
				}
				h.play()
				h.judgePods()
				if !deleted || h.server.newest[objectKey{kindRun, name}] != nil {
					h.complain("the run was deleted: %t, and it is still there", deleted)
				}
				h.report(t)
			})
		}
	}
}
