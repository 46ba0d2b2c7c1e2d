// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"sync"
)

// wakeQueue delivers owners without ever blocking who adds one: it is unbounded, but holds each owner once.
type wakeQueue struct {
	out chan Owner
	// more has room for one signal: the pump takes all there is with each.
	more chan struct{}

	mu      sync.Mutex
	waiting map[Owner]struct{}
	order   []Owner
}

func newWakeQueue() *wakeQueue {
	return &wakeQueue{out: make(chan Owner), more: make(chan struct{}, 1), waiting: map[Owner]struct{}{}}
}

func (q *wakeQueue) add(o Owner) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.waiting[o]; ok {
		return
	}
	q.waiting[o] = struct{}{}
	q.order = append(q.order, o)
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// take removes the one that has waited longest. From here on a new wake-up of it is a new one: what it is about may have happened after
// the receiver looked.
func (q *wakeQueue) take() (Owner, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		return Owner{}, false
	}
	o := q.order[0]
	q.order = q.order[1:]
	delete(q.waiting, o)
	return o, true
}

// pump delivers until ctx is done.
func (q *wakeQueue) pump(ctx context.Context) {
	for {
		o, ok := q.take()
		if !ok {
			select {
			case <-q.more:
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case q.out <- o:
		case <-ctx.Done():
			return
		}
	}
}
