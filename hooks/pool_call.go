// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"time"
)

// enter moves a call to a state; the timer of the state before is void.
func (p *Pool) enter(c *call, state State) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.state = state
}

// expireAfter bounds the present state of a call.
func (p *Pool) expireAfter(c *call, d time.Duration) {
	state := c.state
	// In a goroutine of its own, because stepped clocks call back while they hold a lock that Now, under p.mu, waits for.
	c.timer = p.clock.AfterFunc(d, func() { go p.expire(c, state) })
}

// expire ends a state that has taken too long.
func (p *Pool) expire(c *call, state State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.state != state:
		// The timer fired while the call moved on. No state is ever entered twice, so the state tells.
	case state != Reserved:
		c.timedOut = true
		c.cancel()
	case p.calls[c.key] == c:
		// Nothing has started, so the key is as good as new.
		delete(p.calls, c.key)
		p.wakes.add(c.owner)
		p.freeSlot(c)
	}
}

// work carries one call to its end.
func (p *Pool) work(ctx context.Context, c *call, req Request, started time.Time) {
	releaseOutput := ""
	if req.Hold != nil {
		releaseOutput = req.Hold.ExpectReleaseOutput
	}
	output := newCapture(req.ExpectOutput, releaseOutput, func() { p.becomeHeld(c) })
	result := p.exec.Exec(ctx, Call{
		Target: req.Target, Account: req.Account, Command: req.Command,
		Stdout: output, Stderr: output.stderr(), Release: c.release,
	})
	ready, released := output.expected()
	tail := output.output()

	p.mu.Lock()
	defer p.mu.Unlock()
	c.cancel()
	reason, message := judge(c, result, ready, released)
	c.outcome = Outcome{
		Reason: reason, ExitCode: result.ExitCode, Message: message, Output: tail,
		Started: started, Ended: p.clock.Now(), Protocol: result.Protocol,
	}
	p.enter(c, Done)
	if p.calls[c.key] == c {
		p.wakes.add(c.owner)
	}
	p.freeSlot(c)
}

// becomeHeld notes that a held command is ready.
func (p *Pool) becomeHeld(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.release == nil || c.timedOut || (c.state != Running && c.state != Releasing) {
		return
	}
	c.held = p.clock.Now()
	if c.state == Running {
		// Already being released, it stays so.
		p.enter(c, Held)
		if p.calls[c.key] == c {
			p.wakes.add(c.owner)
		}
	}
	p.freeSlot(c)
}

// judge turns the end of a stream into the end of the call, by what was expected of it and by the state that it ended in.
func judge(c *call, result Result, ready, released bool) (Reason, string) {
	switch {
	case result.Reason == Interrupted && c.timedOut && c.state == Releasing:
		return Timeout, "the held command did not end within its release timeout; it may still be running"
	case result.Reason == Interrupted && c.timedOut && c.release != nil:
		return Timeout, "the held command was not ready within its timeout; it may still be running"
	case result.Reason == Interrupted && c.timedOut:
		return Timeout, "the command did not end within its timeout; it may still be running"
	case result.Reason == Interrupted:
		return Interrupted, result.Message
	case c.state == Held && result.Reason == Completed:
		return HoldLost, "the held command ended by itself before it was released"
	case c.state == Held:
		return HoldLost, line("the held command was lost before it was released: " + result.Message)
	case result.Reason != Completed:
		return result.Reason, result.Message
	case !ready && c.release != nil:
		return OutputMissing, "the held command ended without saying that it was ready"
	case !ready:
		return OutputMissing, "the command exited with code 0 but its output lacks what was expected"
	case !released && c.release != nil:
		return OutputMissing, "the held command exited with code 0 without saying that it had released"
	default:
		return Completed, result.Message
	}
}
