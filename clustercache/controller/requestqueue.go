// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// requestQueue is the queue of a controller for a handler that has requests of
// another type. The handler can add and forget requests. The others are the
// controller's: to Get, the queue is shut down, and Done and ShutDown do
// nothing.
type requestQueue[from, to comparable] struct {
	queue workqueue.TypedRateLimitingInterface[to]
	as    func(from) to
}

// newRequestQueue returns a queue whose requests are added to another one, as
// what a function returns for them. It has priorities where the other has them.
func newRequestQueue[from, to comparable](
	queue workqueue.TypedRateLimitingInterface[to], as func(from) to,
) workqueue.TypedRateLimitingInterface[from] {
	q := requestQueue[from, to]{queue: queue, as: as}
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[to]); ok {
		return priorityRequestQueue[from, to]{q, prioritized}
	}
	return q
}

// Add implements workqueue.TypedInterface.
func (q requestQueue[from, to]) Add(r from) { q.queue.Add(q.as(r)) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q requestQueue[from, to]) AddAfter(r from, after time.Duration) {
	q.queue.AddAfter(q.as(r), after)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q requestQueue[from, to]) AddRateLimited(r from) { q.queue.AddRateLimited(q.as(r)) }

// Forget implements workqueue.TypedRateLimitingInterface.
func (q requestQueue[from, to]) Forget(r from) { q.queue.Forget(q.as(r)) }

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q requestQueue[from, to]) NumRequeues(r from) int { return q.queue.NumRequeues(q.as(r)) }

// Len implements workqueue.TypedInterface. It counts the requests of all
// clusters.
func (q requestQueue[from, to]) Len() int { return q.queue.Len() }

// ShuttingDown implements workqueue.TypedInterface.
func (q requestQueue[from, to]) ShuttingDown() bool { return q.queue.ShuttingDown() }

// Get implements workqueue.TypedInterface.
func (q requestQueue[from, to]) Get() (r from, shutdown bool) { return r, true }

// Done implements workqueue.TypedInterface.
func (q requestQueue[from, to]) Done(from) {}

// ShutDown implements workqueue.TypedInterface.
func (q requestQueue[from, to]) ShutDown() {}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q requestQueue[from, to]) ShutDownWithDrain() {}

// priorityRequestQueue is a requestQueue with priorities.
type priorityRequestQueue[from, to comparable] struct {
	requestQueue[from, to]

	prioritized priorityqueue.PriorityQueue[to]
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q priorityRequestQueue[from, to]) AddWithOpts(o priorityqueue.AddOpts, requests ...from) {
	mapped := make([]to, 0, len(requests))
	for _, r := range requests {
		mapped = append(mapped, q.as(r))
	}
	q.prioritized.AddWithOpts(o, mapped...)
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q priorityRequestQueue[from, to]) GetWithPriority() (r from, priority int, shutdown bool) {
	return r, 0, true
}
