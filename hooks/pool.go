// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

var (
	// ErrNotReserved: the key has no reservation (any more). Nothing has started; reserve again.
	ErrNotReserved = errors.New("no slot is reserved for this call")
	// ErrStopped: the pool has stopped. Nothing has started.
	ErrStopped = errors.New("the pool has stopped")
)

// Pool runs calls outside the reconcile workers. All its methods return at once. It gives out slots only while Run runs.
type Pool struct {
	exec   Executor
	clock  clock.WithDelayedExecution
	limits [lanes]int
	ttl    time.Duration
	wakes  *wakeQueue

	mu sync.Mutex
	// life is Run's context: what every call's context comes from. nil before Run and after it.
	life    context.Context
	stopped bool
	calls   map[Key]*call
	busy    [lanes]int
	queues  [lanes][]*call
	workers sync.WaitGroup
}

// call is one key's memory; guarded by Pool.mu.
type call struct {
	key      Key
	owner    Owner
	lane     Lane
	state    State
	slot     bool
	timedOut bool
	outcome  Outcome
	held     time.Time

	// timer ends the present state if nothing else does.
	timer   clock.Timer
	cancel  context.CancelFunc
	release chan struct{}
	// releaseTimeout is the request's, 0 if it is not held.
	releaseTimeout time.Duration
}

// NewPool returns a Pool that runs calls through exec.
func NewPool(exec Executor, clk clock.WithDelayedExecution, limits Limits) *Pool {
	orDefault := func(n, standard int) int {
		if n <= 0 {
			return standard
		}
		return n
	}
	p := &Pool{exec: exec, clock: clk, ttl: limits.Reservation, wakes: newWakeQueue(), calls: map[Key]*call{}}
	p.limits[LaneQuiesce] = orDefault(limits.Quiesce, 64)
	p.limits[LaneRelease] = orDefault(limits.Release, 256)
	if p.ttl <= 0 {
		p.ttl = 30 * time.Second
	}
	return p
}

// Run gives out slots and delivers wake-ups until ctx is done, then cancels every call, waits for their ends and returns. It runs once.
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	if p.life != nil || p.stopped {
		p.mu.Unlock()
		return errors.New("running the pool: it has run before")
	}
	p.life = ctx
	for lane := range lanes {
		p.grant(lane)
	}
	p.mu.Unlock()

	p.wakes.pump(ctx)

	p.mu.Lock()
	p.life, p.stopped = nil, true
	p.mu.Unlock()
	// The calls' contexts come from ctx, so all of them are ending.
	p.workers.Wait()
	return nil
}

// Wake delivers the owners of calls that have changed: a queued one got its slot, a reservation expired, a held command became ready, a call
// ended. Wake-ups of the same owner that nobody has taken yet become one. A wake-up is a hint: what counts is Status.
func (p *Pool) Wake() <-chan Owner { return p.wakes.out }

// Reserve asks for a slot for the key and returns its state, whatever it is: asking again changes nothing. Of a call that is Queued, the owner
// is woken when the slot is its own.
func (p *Pool) Reserve(k Key, o Owner, l Lane) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.calls[k]
	if !ok {
		c = &call{key: k, owner: o, lane: l, state: Queued}
		p.calls[k] = c
		p.queues[l] = append(p.queues[l], c)
		// The caller learns of a slot that is free from the answer, and needs no wake-up.
		p.grant(l, c)
	}
	return c.state
}

// Start starts the call of a reserved key. A key that was started before is left alone: it starts at most once until it is forgotten. After an
// error nothing has started.
func (p *Pool) Start(k Key, req Request) error {
	if err := req.validate(); err != nil {
		return fmt.Errorf("starting the call: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.calls[k]
	switch {
	case !ok || c.state == Queued:
		return fmt.Errorf("starting the call: %w", ErrNotReserved)
	case c.state != Reserved:
		return nil
	case p.life == nil:
		return fmt.Errorf("starting the call: %w", ErrStopped)
	}
	ctx, cancel := context.WithCancel(p.life)
	c.cancel = cancel
	if req.Hold != nil {
		c.release = make(chan struct{})
		c.releaseTimeout = req.Hold.ReleaseTimeout
	}
	p.enter(c, Running)
	p.expireAfter(c, req.Timeout)
	started := p.clock.Now()
	p.workers.Go(func() { p.work(ctx, c, req, started) })
	return nil
}

// Release closes the stdin of a held command, also of one that is not ready yet. Anything else is left alone.
func (p *Pool) Release(k Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.calls[k]
	if !ok || c.release == nil || (c.state != Held && c.state != Running) {
		return
	}
	p.enter(c, Releasing)
	p.expireAfter(c, c.releaseTimeout)
	close(c.release)
}

// Cancel ends a call on this side: one that runs becomes Done with Interrupted shortly after, one that waits or is reserved at once, and that
// one never started. An unknown key is left alone.
func (p *Pool) Cancel(k Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.calls[k]
	switch {
	case !ok || c.state == Done:
	case c.cancel != nil:
		c.cancel()
	default:
		p.withdraw(c)
		c.outcome = Outcome{Reason: Interrupted, Message: "the call was cancelled before it started", Ended: p.clock.Now()}
		p.enter(c, Done)
		p.freeSlot(c)
	}
}

// Status returns where the call stands; its outcome, once it is Done; and since when a held command is ready, zero if it never was.
func (p *Pool) Status(k Key) (state State, outcome Outcome, heldSince time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.calls[k]
	if !ok {
		return Unknown, Outcome{}, time.Time{}
	}
	return c.state, c.outcome, c.held
}

// Forget drops all memory of a run and cancels what still runs. Call it when the run is over: its keys could start again.
func (p *Pool) Forget(run types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var forgotten []*call
	for k, c := range p.calls {
		if k.Run == run {
			forgotten = append(forgotten, c)
			delete(p.calls, k)
			p.withdraw(c)
		}
	}
	// Only now: a slot that one of them leaves must not go to another of them.
	for _, c := range forgotten {
		if c.cancel != nil {
			// Its worker gives the slot back when the stream has ended.
			c.cancel()
		} else {
			p.freeSlot(c)
		}
	}
}

// Stats counts the calls, for metrics.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Busy: p.busy}
	for lane, queue := range p.queues {
		s.Queued[lane] = len(queue)
	}
	for _, c := range p.calls {
		if c.state == Held || c.state == Releasing {
			s.Held++
		}
	}
	return s
}

// grant gives free slots to those who have waited longest, and wakes their owners except for the callers'.
func (p *Pool) grant(l Lane, callers ...*call) {
	for p.life != nil && p.busy[l] < p.limits[l] && len(p.queues[l]) > 0 {
		c := p.queues[l][0]
		p.queues[l] = slices.Delete(p.queues[l], 0, 1)
		p.busy[l]++
		c.slot = true
		p.enter(c, Reserved)
		p.expireAfter(c, p.ttl)
		if !slices.Contains(callers, c) {
			p.wakes.add(c.owner)
		}
	}
}

// freeSlot gives the call's slot, if it has one, to the next.
func (p *Pool) freeSlot(c *call) {
	if c.slot {
		c.slot = false
		p.busy[c.lane]--
		p.grant(c.lane)
	}
}

// withdraw takes a call out of its queue and stops its timer.
func (p *Pool) withdraw(c *call) {
	if i := slices.Index(p.queues[c.lane], c); i >= 0 {
		p.queues[c.lane] = slices.Delete(p.queues[c.lane], i, i+1)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}
