// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"fmt"
	"time"
)

// switchSlack is how late a switch may be on a busy machine.
const switchSlack = 10 * time.Second

// Promise is what the configuration says about how long an application is blocked.
type Promise struct {
	// Quiet is how long it takes if nobody dies: the hooks, the cut, and the load of the machine.
	Quiet time.Duration
	// Takeover is how long it takes until another operator works after the leader died: the lease, one retry, the start of the controllers.
	Takeover time.Duration
	// Hastened is the same without waiting for the lease.
	Hastened time.Duration
	// Reconnect is how long it takes until the operator works again once a part of the cluster does that was dead.
	Reconnect time.Duration
	// Unknown is when a pre hook whose end is unknown is released for the second time: its own timeout and a grace.
	Unknown time.Duration
	// Switch is after how long a held command thaws by itself.
	Switch time.Duration
}

// Block is one write that took long.
type Block struct {
	App  string
	Kind Kind
	Run  string // that had quiesced the application; empty: none is known
	From time.Time
	For  time.Duration
	// Bound is how long it may have taken, and Why it is that long.
	Bound time.Duration
	Why   string
}

func (b Block) tooLong() bool { return b.For > b.Bound }

// bound says how long a writer may have been blocked, given what was done to the processes meanwhile.
func (e *Evidence) bound(p Promise, b *Block) {
	if b.Kind == Plain {
		b.Bound, b.Why = p.Quiet, "nothing freezes it"
		return
	}
	b.Bound, b.Why = p.Quiet, "hooks and cut"
	until := b.From.Add(b.For)
	add := func(d time.Duration, why string) {
		b.Bound += d
		b.Why += fmt.Sprintf(" + %s %s", seconds(d), why)
	}
	unknown := false
	for _, blow := range e.Blows {
		if blow.At.After(until) || blow.Over.Before(b.From) {
			continue
		}
		switch {
		case blow.Victim != Leader:
			add(blow.Over.Sub(blow.At)+p.Reconnect, "without "+blow.Victim)
			unknown = true
		case blow.Hastened || blow.How == "SIGTERM":
			add(p.Hastened, "take-over")
		default:
			add(p.Takeover, "lease and take-over")
		}
		for _, h := range blow.Hits {
			unknown = unknown || (h.Run == b.Run && h.Phase == "PreHooks")
		}
	}
	if unknown {
		add(p.Unknown, "until a pre hook of unknown end is released again")
	}
	if limit := p.Switch + switchSlack; b.Kind == Held && b.Bound > limit {
		b.Bound, b.Why = limit, "the command's own switch"
	}
}

// blocks are the writes of an application that took longer than atLeast.
func (e *Evidence) blocks(p Promise, a *App, end time.Time, atLeast time.Duration) []Block {
	var out []Block
	for _, w := range a.Writes {
		done := w.Done
		if done.IsZero() {
			done = end
		}
		if done.Sub(w.Begun) < atLeast {
			continue
		}
		b := Block{App: a.Name, Kind: a.Kind, From: w.Begun, For: done.Sub(w.Begun), Run: e.quiescing(a.Name, w.Begun, done)}
		e.bound(p, &b)
		out = append(out, b)
	}
	return out
}

// quiescing is the run whose pre hook was the last to start before an application that was blocked was free.
func (e *Evidence) quiescing(app string, from, until time.Time) string {
	name, newest := "", time.Time{}
	for i := range e.Runs {
		r := &e.Runs[i]
		over := r.Released
		if over.IsZero() {
			over = until
		}
		if r.App == app && !r.Claimed.IsZero() && !r.Claimed.After(until) && !over.Before(from) && r.Claimed.After(newest) {
			name, newest = r.Name, r.Claimed
		}
	}
	return name
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
