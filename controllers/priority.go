// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// later is the priority of what can wait until everything that is due has begun. When thousands of schedules are due at the same time, their
// snapshots are all taken before the books are kept. What an application waits for has the ordinary priority, 0.
const later = -10

// deferring hands on events of which some can wait.
type deferring struct {
	handler.EventHandler
	canWait func(client.Object) bool
}

func (d deferring) Create(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	d.EventHandler.Create(ctx, e, d.queue(e.Object, q))
}

func (d deferring) Update(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	d.EventHandler.Update(ctx, e, d.queue(e.ObjectNew, q))
}

func (d deferring) Delete(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	d.EventHandler.Delete(ctx, e, d.queue(e.Object, q))
}

// queue is the one that an event about o goes to.
func (d deferring) queue(o client.Object, q workqueue.TypedRateLimitingInterface[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
	if pq, ok := q.(priorityqueue.PriorityQueue[ctrl.Request]); ok && d.canWait(o) {
		return deferredQueue{pq}
	}
	return q
}

// deferredQueue gives what comes without a priority that of what can wait. One that is in the queue already keeps the higher of its two.
type deferredQueue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
}

func (q deferredQueue) Add(item ctrl.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(later)}, item)
}

func always(client.Object) bool { return true }
