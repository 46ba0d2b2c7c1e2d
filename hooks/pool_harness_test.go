// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// fakeExecutor hands its calls to the test, which plays the command.
type fakeExecutor struct {
	mu    sync.Mutex
	calls map[string]*fakeCall
	order []string
}

type fakeCall struct {
	Call
	end chan Result
}

func (f *fakeExecutor) Exec(ctx context.Context, call Call) Result {
	c := &fakeCall{Call: call, end: make(chan Result, 1)}
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]*fakeCall{}
	}
	f.calls[call.Target.Pod] = c
	f.order = append(f.order, call.Target.Pod)
	f.mu.Unlock()
	select {
	case result := <-c.end:
		return result
	case <-ctx.Done():
		return interrupted()
	}
}

// of returns the call in the pod.
func (f *fakeExecutor) of(pod string) *fakeCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[pod]
}

func (c *fakeCall) exit(code int32) {
	if code == 0 {
		c.end <- Result{Reason: Completed, ExitCode: &code, Protocol: ProtocolWebSocket, Message: "the command completed"}
		return
	}
	c.end <- Result{Reason: NonZeroExit, ExitCode: &code, Protocol: ProtocolWebSocket}
}

// poolTest is a pool in a bubble of its own time.
type poolTest struct {
	*Pool
	t    *testing.T
	exec *fakeExecutor
	stop func()
}

func withPool(t *testing.T, limits Limits, test func(p *poolTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		exec := &fakeExecutor{}
		p := &poolTest{Pool: NewPool(exec, clock.RealClock{}, limits), t: t, exec: exec}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		p.stop = func() {
			cancel()
			<-ended
		}
		synctest.Wait()
		test(p)
		p.stop()
	})
}

func key(pod string) Key { return Key{Run: "run", Stage: "pre", Target: pod} }

func owner(name string) Owner { return Owner{Namespace: "shop", Name: name} }

func request(pod string) Request {
	return Request{Target: Target{Pod: pod}, Command: []string{"true"}, Timeout: time.Minute}
}

func heldRequest(pod string) Request {
	r := request(pod)
	r.ExpectOutput = "READY"
	r.Hold = &Hold{ExpectReleaseOutput: "RELEASED", ReleaseTimeout: 10 * time.Second}
	return r
}

// start reserves and starts, and returns the command.
func (p *poolTest) start(pod string, lane Lane, req Request) *fakeCall {
	p.t.Helper()
	if state := p.Reserve(key(pod), owner(pod), lane); state != Reserved {
		p.t.Fatalf("reserving %s: got state %d", pod, state)
	}
	if err := p.Start(key(pod), req); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
	return p.exec.of(pod)
}

func (p *poolTest) want(pod string, state State) Outcome {
	p.t.Helper()
	synctest.Wait()
	got, outcome, _ := p.Status(key(pod))
	if got != state {
		p.t.Fatalf("%s: got state %d %+v, want %d", pod, got, outcome, state)
	}
	return outcome
}

func (p *poolTest) wantReason(pod string, reason Reason) Outcome {
	p.t.Helper()
	outcome := p.want(pod, Done)
	if outcome.Reason != reason {
		p.t.Fatalf("%s: got %s %q, want %s", pod, outcome.Reason, outcome.Message, reason)
	}
	return outcome
}

// woken takes every wake-up there is.
func (p *poolTest) woken() []string {
	var names []string
	for {
		synctest.Wait()
		select {
		case o := <-p.Wake():
			names = append(names, o.Name)
		default:
			return names
		}
	}
}

func (p *poolTest) wantWoken(names ...string) {
	p.t.Helper()
	if got := p.woken(); !reflect.DeepEqual(got, names) {
		p.t.Fatalf("woken: got %v, want %v", got, names)
	}
}
