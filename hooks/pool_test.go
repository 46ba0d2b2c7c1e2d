// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

func TestACallRunsToItsEnd(t *testing.T) {
	withPool(t, Limits{}, func(p *poolTest) {
		began := time.Now()
		c := p.start("a", LaneQuiesce, request("a"))
		p.want("a", Running)
		time.Sleep(3 * time.Second)
		_, _ = io.WriteString(c.Stdout, "out\n")
		_, _ = io.WriteString(c.Stderr, "err\n")
		c.exit(7)
		o := p.wantReason("a", NonZeroExit)
		if *o.ExitCode != 7 || o.Output != "out\nerr\n" || o.Protocol != ProtocolWebSocket ||
			!o.Started.Equal(began) || o.Ended.Sub(began) != 3*time.Second || o.EndUnknown() || o.NeverStarted() {
			t.Errorf("got %+v", o)
		}
		p.wantWoken("a")
		if state := p.Reserve(key("a"), owner("a"), LaneQuiesce); state != Done {
			t.Errorf("reserving again: got state %d", state)
		}
	})
}

func TestExpectedOutputDecides(t *testing.T) {
	withPool(t, Limits{}, func(p *poolTest) {
		req := request("a")
		req.ExpectOutput = "checkpoint complete"
		p.start("a", LaneQuiesce, req).exit(0)
		p.wantReason("a", OutputMissing)

		req.Pod = "b"
		c := p.start("b", LaneQuiesce, req)
		_, _ = io.WriteString(c.Stdout, "checkpoint ")
		_, _ = io.WriteString(c.Stdout, "complete")
		c.exit(0)
		p.wantReason("b", Completed)
	})
}

func TestATimeoutEndsTheCallAtOnce(t *testing.T) {
	withPool(t, Limits{Quiesce: 1}, func(p *poolTest) {
		p.start("a", LaneQuiesce, request("a"))
		p.Reserve(key("b"), owner("b"), LaneQuiesce)
		time.Sleep(time.Minute - 1)
		p.want("a", Running)
		time.Sleep(time.Nanosecond)
		if o := p.wantReason("a", Timeout); !o.EndUnknown() || o.Ended.Sub(o.Started) != time.Minute {
			t.Errorf("got %+v", o)
		}
		p.want("b", Reserved)
	})
}

func TestSlotsAreGivenFirstComeFirstServed(t *testing.T) {
	withPool(t, Limits{Quiesce: 2}, func(p *poolTest) {
		a := p.start("a", LaneQuiesce, request("a"))
		b := p.start("b", LaneQuiesce, request("b"))
		for _, pod := range []string{"c", "d", "e"} {
			for range 2 {
				if state := p.Reserve(key(pod), owner(pod), LaneQuiesce); state != Queued {
					t.Fatalf("%s: got state %d", pod, state)
				}
			}
		}
		if err := p.Start(key("c"), request("c")); !errors.Is(err, ErrNotReserved) {
			t.Fatalf("got %v", err)
		}
		if s := p.Stats(); s.Busy[LaneQuiesce] != 2 || s.Queued[LaneQuiesce] != 3 {
			t.Errorf("got %+v", s)
		}
		b.exit(0)
		p.want("c", Reserved)
		p.want("d", Queued)
		a.exit(0)
		p.want("d", Reserved)
		p.want("e", Queued)
		p.wantWoken("b", "c", "a", "d")
	})
}

func TestReleasesNeverWaitBehindPreHooks(t *testing.T) {
	withPool(t, Limits{Quiesce: 1, Release: 1}, func(p *poolTest) {
		p.start("a", LaneQuiesce, request("a"))
		p.Reserve(key("b"), owner("b"), LaneQuiesce)
		p.start("post", LaneRelease, request("post")).exit(0)
		p.wantReason("post", Completed)
		p.want("b", Queued)
	})
}

func TestAKeyStartsAtMostOnce(t *testing.T) {
	withPool(t, Limits{}, func(p *poolTest) {
		if err := p.Start(key("a"), request("a")); !errors.Is(err, ErrNotReserved) {
			t.Fatalf("got %v", err)
		}
		c := p.start("a", LaneQuiesce, request("a"))
		again := func() {
			t.Helper()
			p.Reserve(key("a"), owner("a"), LaneQuiesce)
			if err := p.Start(key("a"), request("a")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		again()
		c.exit(0)
		p.want("a", Done)
		again()
		if len(p.exec.order) != 1 {
			t.Fatalf("started %d times", len(p.exec.order))
		}
	})
}

func TestAReservationExpires(t *testing.T) {
	withPool(t, Limits{Quiesce: 1}, func(p *poolTest) {
		p.Reserve(key("a"), owner("a"), LaneQuiesce)
		p.Reserve(key("b"), owner("b"), LaneQuiesce)
		time.Sleep(30 * time.Second)
		p.want("a", Unknown)
		p.want("b", Reserved)
		p.wantWoken("a", "b")
		if err := p.Start(key("a"), request("a")); !errors.Is(err, ErrNotReserved) {
			t.Fatalf("got %v", err)
		}
		if state := p.Reserve(key("a"), owner("a"), LaneQuiesce); state != Queued {
			t.Fatalf("got state %d", state)
		}
	})
}

func TestCancel(t *testing.T) {
	withPool(t, Limits{Quiesce: 1}, func(p *poolTest) {
		p.start("running", LaneQuiesce, request("running"))
		p.Reserve(key("queued"), owner("queued"), LaneQuiesce)
		p.Reserve(key("last"), owner("last"), LaneQuiesce)
		p.Cancel(key("queued"))
		if o := p.wantReason("queued", Interrupted); !o.NeverStarted() || o.EndUnknown() {
			t.Errorf("got %+v", o)
		}
		if err := p.Start(key("queued"), request("queued")); err != nil {
			t.Fatal(err)
		}
		p.Cancel(key("running"))
		if o := p.wantReason("running", Interrupted); o.NeverStarted() || !o.EndUnknown() {
			t.Errorf("got %+v", o)
		}
		p.want("last", Reserved)
		p.Cancel(key("last"))
		p.wantReason("last", Interrupted)
		p.Cancel(key("nobody"))
		p.want("nobody", Unknown)
		if s := p.Stats(); s != (Stats{}) || len(p.exec.order) != 1 {
			t.Errorf("got %+v, %d starts", s, len(p.exec.order))
		}
	})
}

func TestForget(t *testing.T) {
	withPool(t, Limits{Quiesce: 2}, func(p *poolTest) {
		p.start("running", LaneQuiesce, request("running"))
		p.Reserve(key("reserved"), owner("reserved"), LaneQuiesce)
		p.Reserve(key("queued"), owner("queued"), LaneQuiesce)
		other := Key{Run: "other"}
		p.Reserve(other, owner("other"), LaneQuiesce)
		p.Forget("run")
		for _, pod := range []string{"running", "reserved", "queued"} {
			p.want(pod, Unknown)
		}
		if state, _, _ := p.Status(other); state != Reserved {
			t.Errorf("got state %d", state)
		}
		if s := p.Stats(); s.Busy[LaneQuiesce] != 1 || s.Queued[LaneQuiesce] != 0 {
			t.Errorf("got %+v", s)
		}
		p.wantWoken("other")
	})
}

func TestWakeUpsOfOneOwnerBecomeOne(t *testing.T) {
	withPool(t, Limits{}, func(p *poolTest) {
		var calls []*fakeCall
		for _, pod := range []string{"a", "b", "c", "d"} {
			p.Reserve(key(pod), owner("same"), LaneQuiesce)
			if err := p.Start(key(pod), request(pod)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for _, pod := range []string{"a", "b", "c", "d"} {
			calls = append(calls, p.exec.of(pod))
		}
		for _, c := range calls {
			c.exit(0)
			synctest.Wait()
		}
		// The first is in the pump's hand already and may have been looked at: the others need a second one.
		p.wantWoken("same", "same")
	})
}

func TestNothingStartsUnlessThePoolRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &fakeExecutor{}
		pool := NewPool(exec, clock.RealClock{}, Limits{})
		p := &poolTest{Pool: pool, t: t, exec: exec}
		if state := p.Reserve(key("a"), owner("a"), LaneQuiesce); state != Queued {
			t.Fatalf("got state %d", state)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		p.want("a", Reserved)
		p.wantWoken("a")
		if err := p.Start(key("a"), request("a")); err != nil {
			t.Fatal(err)
		}
		p.Reserve(key("b"), owner("b"), LaneQuiesce)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		p.wantReason("a", Interrupted)
		if err := p.Start(key("b"), request("b")); !errors.Is(err, ErrStopped) {
			t.Errorf("got %v", err)
		}
		if state := p.Reserve(key("c"), owner("c"), LaneQuiesce); state != Queued {
			t.Errorf("got state %d", state)
		}
		if err := p.Run(t.Context()); err == nil {
			t.Error("the pool ran twice")
		}
	})
}

func TestRequestsThatCannotEndAreRefused(t *testing.T) {
	withPool(t, Limits{}, func(p *poolTest) {
		p.Reserve(key("a"), owner("a"), LaneQuiesce)
		for name, change := range map[string]func(*Request){
			"no command":         func(r *Request) { r.Command = nil },
			"no timeout":         func(r *Request) { r.Timeout = 0 },
			"no ready text":      func(r *Request) { r.ExpectOutput = "" },
			"no release text":    func(r *Request) { r.Hold.ExpectReleaseOutput = "" },
			"no release timeout": func(r *Request) { r.Hold.ReleaseTimeout = 0 },
		} {
			req := heldRequest("a")
			change(&req)
			if err := p.Start(key("a"), req); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		p.want("a", Reserved)
	})
}

func TestReleaseLeavesOtherCallsAlone(t *testing.T) {
	withPool(t, Limits{}, func(p *poolTest) {
		c := p.start("a", LaneQuiesce, request("a"))
		p.Release(key("a"))
		p.Release(key("nobody"))
		p.want("a", Running)
		c.exit(0)
		p.want("a", Done)
		p.Release(key("a"))
		p.want("a", Done)
	})
}

func TestManyRunsAtOnce(t *testing.T) {
	withPool(t, Limits{Quiesce: 3, Release: 2}, func(p *poolTest) {
		var users sync.WaitGroup
		for _, run := range []string{"r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"} {
			users.Go(func() {
				for attempt := range int32(20) {
					k := Key{Run: types.UID(run), Attempt: attempt}
					lane := Lane(attempt % 2)
					pod := run
					for {
						state, outcome, _ := p.Status(k)
						if state == Done {
							if outcome.Reason != Timeout {
								t.Errorf("got %+v", outcome)
							}
							break
						}
						if p.Reserve(k, owner(run), lane) == Reserved {
							if err := p.Start(k, request(pod)); err != nil {
								t.Error(err)
							}
						}
						time.Sleep(time.Second)
					}
				}
				p.Forget(types.UID(run))
			})
		}
		users.Wait()
		if n := len(p.exec.order); n != 160 {
			t.Errorf("started %d times", n)
		}
		if s := p.Stats(); s != (Stats{}) || len(p.calls) != 0 {
			t.Errorf("got %+v and %d memories", s, len(p.calls))
		}
	})
}
