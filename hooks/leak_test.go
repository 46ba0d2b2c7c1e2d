// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

func TestAThousandTimeoutsLeaveNothingBehind(t *testing.T) {
	const rounds, atOnce = 10, 50
	for _, protocol := range bothProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			// Without TLS, whose handshakes would take most of the time.
			s := startAPIServer(t, func(p *process) { <-p.gone }, (*httptest.Server).Start)
			before := runtime.NumGoroutine()
			// Only the pool's time is stepped: every command is running when it times out, however busy the machine is.
			clk := testingclock.NewFakeClock(epoch)
			pool := NewPool(s.executor(t, protocol), clk, Limits{Quiesce: atOnce})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- pool.Run(ctx) }()

			for round := range rounds {
				running := map[Owner]Key{}
				for i := range atOnce {
					o := owner(fmt.Sprint(i))
					running[o] = Key{Run: "run", Pass: int32(round), Hook: int32(i)}
					eventually(t, "a slot", func() bool { return pool.Reserve(running[o], o, LaneQuiesce) == Reserved })
					req := request("db-0")
					req.Namespace = "shop"
					if err := pool.Start(running[o], req); err != nil {
						t.Fatal(err)
					}
				}
				eventually(t, "all commands to run", func() bool { return int(s.started.Load()) == (round+1)*atOnce })
				clk.Step(time.Minute)
				for len(running) > 0 {
					o := <-pool.Wake()
					switch state, outcome, _ := pool.Status(running[o]); {
					case state != Done:
					case outcome.Reason != Timeout:
						t.Fatalf("got %s %q", outcome.Reason, outcome.Message)
					default:
						delete(running, o)
					}
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			eventually(t, "the connections to be closed", func() bool { return s.open.Load() == 0 })
			eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

func TestAHeldCommandThroughThePool(t *testing.T) {
	for name, tc := range map[string]struct {
		command func(p *process)
		release bool
		reason  Reason
	}{
		"released": {func(p *process) {
			_, _ = io.WriteString(p.stdout, "REA")
			_, _ = io.WriteString(p.stdout, "DY\n")
			<-p.stdinClosed
			_, _ = io.WriteString(p.stdout, "RELEASED\n")
			p.exit(0)
		}, true, Completed},
		"the connection breaks while held": {func(p *process) {
			_, _ = io.WriteString(p.stdout, "READY\n")
			p.kill()
		}, false, HoldLost},
		"the container dies while held": {func(p *process) {
			_, _ = io.WriteString(p.stdout, "READY\n")
			p.exit(137)
		}, false, HoldLost},
		"it ends without a status during the release": {func(p *process) {
			_, _ = io.WriteString(p.stdout, "READY\n")
			<-p.stdinClosed
			_, _ = io.WriteString(p.stdout, "RELEASED\n")
		}, true, ConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, tc.command)
			pool := NewPool(s.executor(t, ProtocolAuto), clock.RealClock{}, Limits{})
			go func() { _ = pool.Run(t.Context()) }()
			req := heldRequest("db-0")
			req.Namespace = "shop"
			for {
				switch state, outcome, held := pool.Status(key("a")); {
				case state == Done:
					if outcome.Reason != tc.reason || held.IsZero() {
						t.Fatalf("got %s %q, held since %v", outcome.Reason, outcome.Message, held)
					}
					return
				case state == Held && tc.release:
					pool.Release(key("a"))
				case pool.Reserve(key("a"), owner("a"), LaneQuiesce) == Reserved:
					if err := pool.Start(key("a"), req); err != nil {
						t.Fatal(err)
					}
				}
				<-pool.Wake()
			}
		})
	}
}
