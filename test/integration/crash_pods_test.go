// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
)

// pod holds an application that can be quiesced and released.
type pod struct {
	name     string
	quiesced bool
	starts   map[string]int // of pre hooks, by command
	releases int
}

// command is one exec.
type command struct {
	*story
	process *process
	call    hooks.Call
	ctx     context.Context
	result  chan hooks.Result
	state   commandState
	late    time.Time // when it does what it does although nobody listens any more
}

type commandState int

const (
	arrived  commandState = iota // and not begun
	running                      // and has done nothing yet
	holding                      // quiesced, until its input ends
	loose                        // runs without anybody listening
	finished                     // has done what it does, or never will
)

func (c *command) verb() string { return c.call.Command[0] }

func (c *command) String() string {
	return fmt.Sprintf("%s of %s in %s", c.verb(), c.call.Command[1], c.call.Target.Pod)
}

func (c *command) pod() *pod { return c.apps[c.call.Target.Pod] }

// podExec stands for the kubelets. The story decides what happens, and when.
type podExec struct{ p *process }

func (e podExec) Exec(ctx context.Context, call hooks.Call) hooks.Result {
	c := &command{story: e.p.story, process: e.p, call: call, ctx: ctx, result: make(chan hooks.Result, 1)}
	e.p.arrivals.Lock()
	e.p.commands = append(e.p.commands, c)
	e.p.arrivals.Unlock()
	select {
	case r := <-c.result:
		return r
	case <-ctx.Done():
		return hooks.Result{Reason: hooks.Interrupted}
	}
}

// arrived are the calls of the process whose stream is open.
func (h *story) arrived() int {
	h.arrivals.Lock()
	defer h.arrivals.Unlock()
	n := 0
	for _, c := range h.commands {
		if c.process == h.process && c.ctx.Err() == nil && (c.state == arrived || c.state == running || c.state == holding) {
			n++
		}
	}
	return n
}

// answer ends the stream.
func (c *command) answer(s commandState, r hooks.Result) {
	c.state = s
	c.result <- r
	c.await()
}

// cutOff: nobody listens any more. What has begun goes on, but a held command sees its input end.
func (c *command) cutOff(why string) {
	switch c.state {
	case arrived:
		c.state = finished
	case running:
		c.state, c.late = loose, c.clock.Now().Add(19*time.Second) // its timeout is 20 s
		c.happens("%s goes on alone: %s", c, why)
	case holding:
		c.act(false)
		c.state = finished
		c.happens("%s releases: %s", c, why)
	case loose, finished:
	}
}

// act: the command quiesces the application, or releases it.
func (c *command) act(quiesce bool) {
	if c.broken.deaf == nil || !c.broken.deaf(c.verb()) {
		c.pod().quiesced = quiesce
	}
	if !quiesce {
		c.pod().releases++
	}
}

// commandStarts: the first that has arrived begins.
func (h *story) commandStarts() bool {
	for _, c := range h.commands {
		if c.state != arrived || c.ctx.Err() != nil {
			continue
		}
		err := c.process.call("exec "+c.String(), func() error {
			c.begin()
			return nil
		})
		switch {
		case err == nil, errors.Is(err, errDead):
		case errors.Is(err, errLost):
			if c.verb() != "release" {
				h.unknown[h.runNamed(c.call.Command[1])] = "the connection to " + c.String() + " was lost"
			}
			if c.verb() == "hold" { // it sees its input end as soon as it has quiesced
				c.act(true)
				c.act(false)
				c.state = finished
			}
			c.cutOff("the connection was lost")
			c.answer(c.state, hooks.Result{Reason: hooks.ConnectionLost, Message: "the connection was lost"})
		default:
			c.answer(finished, hooks.Result{Reason: hooks.Unreachable, Message: err.Error()})
		}
		return true
	}
	return false
}

// begin: the command runs.
func (c *command) begin() {
	c.state = running
	c.moves++
	if !c.recorded() {
		c.complain("%s began without a claim of its process on record", c)
	}
	if c.verb() == "release" {
		return
	}
	c.pod().starts[c.call.Command[1]]++
	if c.pod().quiesced {
		c.complain("%s began while the application was quiesced", c)
	}
	for _, other := range c.commands {
		if other != c && other.pod() == c.pod() && (other.state == running || other.state == holding || other.state == loose) {
			c.complain("%s began while %s ran", c, other)
		}
	}
}

// recorded: the run's newest record has a claim of this process for the command.
func (c *command) recorded() bool {
	r, ok := c.server.newest[objectKey{kindRun, c.runNamed(c.call.Command[1])}].(*v1.SnapshotRun)
	if !ok {
		return false
	}
	stage := v1.StagePre
	if c.verb() == "release" {
		stage = v1.StagePost
	}
	for i := range r.Status.Hooks {
		for _, t := range r.Status.Hooks[i].Targets {
			if r.Status.Hooks[i].Stage == stage && t.Pod == c.call.Target.Pod && t.Claim != nil && t.Claim.Process == c.process.runs.Options.Process {
				return true
			}
		}
	}
	return false
}

// commandEnds: the first that runs does what it does.
func (h *story) commandEnds() bool {
	for _, c := range h.commands {
		if c.ctx.Err() != nil {
			c.cutOff("its call was cancelled")
			continue
		}
		switch {
		case c.state == running && c.verb() == "hold":
			h.happens("%s: QUIESCED", c)
			c.act(true)
			c.state = holding
			fmt.Fprintln(c.call.Stdout, "QUIESCED")
			h.await()
		case c.state == running:
			h.happens("%s has done its work", c)
			c.act(c.verb() == "quiesce")
			c.answer(finished, completed())
		case c.state == holding && inputEnded(c.call.Release):
			h.happens("%s: RELEASED", c)
			c.act(false)
			_, _ = io.WriteString(c.call.Stdout, "RELEASED\n")
			c.answer(finished, completed())
		default:
			continue
		}
		return true
	}
	return false
}

func completed() hooks.Result {
	return hooks.Result{Reason: hooks.Completed, ExitCode: ptr.To(int32(0))}
}

func inputEnded(release <-chan struct{}) bool {
	select {
	case <-release:
		return true
	default:
		return false
	}
}

// lateCommands do what they do although nobody listens any more.
func (h *story) lateCommands() {
	for _, c := range h.commands {
		if c.state != loose || c.late.After(h.clock.Now()) {
			continue
		}
		c.state = finished
		h.happens("%s has done its work, late", c)
		switch c.verb() {
		case "hold":
			c.act(true)
			c.act(false)
		default:
			c.act(c.verb() == "quiesce")
		}
	}
}

func (h *story) allQuiesced() bool {
	for _, p := range h.apps {
		if !p.quiesced {
			return false
		}
	}
	return true
}

// podNames of the story, sorted.
func (h *story) podNames() []string { return slices.Sorted(maps.Keys(h.apps)) }
