// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package fairqueue shares the workers of one workqueue between tenants.
//
// # Tests
//
// The leading test is TestTenantsTakeTurns.
package fairqueue

import (
	"sync"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Queue is a priority queue in which no tenant delays the others: behind each
// tenant's first few requests, the rest waits in a backlog of its own.
//
//	            room for the tenant
//	Add --------------------------------> inner queue --> Get --> running
//	   \                                    ^                       |
//	    +--> the tenant's backlog ----------+ <-------- Done -------+
//	                                 room again
//
// The inner queue is first in, first out for each priority, and a tenant has at
// most as many requests of a priority in it as may run, so tenants take turns.
// Delayed requests are delayed by the inner queue; when they are due, they are
// added again, without a delay.
//
// INVARIANT: while a backlog is not empty, as many of its tenant's requests as
// may run are running, or are in the inner queue with the same priority. So a
// Done follows, which moves on.
type Queue[request, tenant comparable] struct {
	priorityqueue.PriorityQueue[request]

	limit    int
	tenantOf func(request) tenant

	mu struct { // nothing else is locked under it
		sync.Mutex

		tenants map[tenant]*share[request]
	}
}

// New returns a queue in front of inner, which belongs to it. At most limit
// requests of a tenant run at a time.
func New[request, tenant comparable](
	inner priorityqueue.PriorityQueue[request], limit int, tenantOf func(request) tenant,
) *Queue[request, tenant] {
	q := &Queue[request, tenant]{PriorityQueue: inner, limit: max(limit, 1), tenantOf: tenantOf}
	q.mu.tenants = map[tenant]*share[request]{}
	return q
}

// Add implements workqueue.TypedInterface.
func (q *Queue[request, tenant]) Add(r request) { q.AddWithOpts(priorityqueue.AddOpts{}, r) }

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *Queue[request, tenant]) AddWithOpts(o priorityqueue.AddOpts, requests ...request) {
	if o.After <= 0 && !o.RateLimited {
		requests = q.admit(requests, ptr.Deref(o.Priority, 0))
	}
	q.PriorityQueue.AddWithOpts(o, requests...)
}

// admit puts the requests for which there is no room into backlogs, and returns
// the others.
func (q *Queue[request, tenant]) admit(requests []request, priority int) []request {
	tenants := make([]tenant, 0, len(requests)) // by the user's function
	for _, r := range requests {
		tenants = append(tenants, q.tenantOf(r))
	}

	q.mu.Lock()
	defer q.mu.Unlock()

	admitted := make([]request, 0, len(requests))
	for i, r := range requests {
		if q.shareLocked(tenants[i]).admit(r, priority, q.limit) {
			admitted = append(admitted, r)
		}
	}

	return admitted
}

func (q *Queue[request, tenant]) shareLocked(t tenant) *share[request] {
	s := q.mu.tenants[t]
	if s == nil {
		s = newShare[request]()
		q.mu.tenants[t] = s
	}
	return s
}

// Get implements workqueue.TypedInterface.
func (q *Queue[request, tenant]) Get() (r request, shutdown bool) {
	r, _, shutdown = q.GetWithPriority()
	return r, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *Queue[request, tenant]) GetWithPriority() (r request, priority int, shutdown bool) {
	for {
		r, priority, shutdown = q.PriorityQueue.GetWithPriority()
		if shutdown {
			return r, priority, shutdown
		}
		admitted, running := q.run(r)
		if running {
			return r, priority, false
		}
		q.PriorityQueue.Done(r)
		if !admitted { // it was delayed
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, r)
		}
	}
}

// run reports whether a request was admitted, and whether it runs from now on.
// An admitted one that does not run has been put into the backlog.
func (q *Queue[request, tenant]) run(r request) (admitted, running bool) {
	t := q.tenantOf(r)
	q.mu.Lock()
	defer q.mu.Unlock()

	s := q.mu.tenants[t]
	if s == nil || !s.has(r) {
		return false, false
	}
	return true, s.run(r, q.limit)
}

// Done implements workqueue.TypedInterface.
func (q *Queue[request, tenant]) Done(r request) {
	q.PriorityQueue.Done(r)
	for priority, requests := range q.refill(q.tenantOf(r)) {
		q.PriorityQueue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, requests...)
	}
}

// refill ends a run, and returns the requests for which there is room now, by
// priority.
func (q *Queue[request, tenant]) refill(t tenant) map[int][]request {
	q.mu.Lock()
	defer q.mu.Unlock()

	s := q.mu.tenants[t]
	if s == nil || s.running == 0 {
		return nil // it was not running
	}
	s.running--
	admitted := s.refill(q.limit)
	if s.isEmpty() {
		delete(q.mu.tenants, t)
	}

	return admitted
}

// Len implements workqueue.TypedInterface. It counts backlogs as well.
func (q *Queue[request, tenant]) Len() int {
	n := q.PriorityQueue.Len()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.mu.tenants {
		n += len(s.waiting)
	}
	return n
}
