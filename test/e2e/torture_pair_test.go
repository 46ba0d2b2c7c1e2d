// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// pair of operators: one leads, the other waits. Each that ends is replaced.
type pair struct {
	t      *testing.T
	leader *operator
	live   []*operator
	all    []*operator
	leads  chan *operator // takes each operator once it leads
}

// drainFor is short: a hand-over in the middle of runs is what is to be seen.
const drainFor = 5 * time.Second

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, leads: make(chan *operator, 1000)}
	t.Cleanup(func() {
		for _, o := range p.live {
			o.kill()
		}
		dropLease()
	})
	return p
}

// ready: two operators run and one of them leads.
func (p *pair) ready() {
	p.t.Helper()
	p.fill()
	for p.leader == nil || !p.leader.runs() {
		p.awaitLeader()
	}
}

// fill up to two.
func (p *pair) fill() {
	p.t.Helper()
	var live []*operator
	for _, o := range p.live {
		if o.runs() {
			live = append(live, o)
		}
	}
	p.live = live
	for len(p.live) < 2 {
		o, err := launch("--drain-timeout=" + drainFor.String())
		if err != nil {
			p.t.Fatalf("starting an operator: %v", err)
		}
		p.live, p.all = append(p.live, o), append(p.all, o)
		go func() {
			select {
			case <-o.log.sees(working):
				p.leads <- o
			case <-o.done:
			}
		}()
	}
}

// awaitLeader waits until another operator works.
func (p *pair) awaitLeader() {
	p.t.Helper()
	select {
	case p.leader = <-p.leads:
	case <-time.After(time.Minute):
		for _, o := range p.live {
			p.t.Logf("log of an operator:\n%s", o.log.tail())
		}
		p.t.Fatal("no operator leads after a minute")
	}
}
