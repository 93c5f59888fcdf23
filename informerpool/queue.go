// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"slices"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
)

// maxBrief is how many objects that came and went wait for a handler.
const maxBrief = 10_000

// takeLocked removes a pending change.
func (s *Subscription) takeLocked(it item) *delta.Pending {
	p := s.mu.pending[it]
	if p != nil {
		s.mu.brief -= p.Brief()
	}
	delete(s.mu.pending, it)

	return p
}

// voidLocked drops the pending change of an object that came and went: a slow
// handler need not receive it. Its place in the queue is cleared later.
func (s *Subscription) voidLocked(it item) {
	delete(s.mu.pending, it)
	if s.mu.stale++; s.mu.stale > len(s.mu.queue)/2+32 {
		s.clearLocked()
	}
}

// clearLocked removes the places from the queue that have no pending change.
func (s *Subscription) clearLocked() {
	var seen map[item]struct{}
	if s.mu.stale > 0 { // an object may have been re-created, and have more than one
		seen = make(map[item]struct{}, len(s.mu.pending))
	}
	s.mu.queue = slices.DeleteFunc(s.mu.queue, func(it item) bool {
		if !it.object() {
			return false
		}
		_, again := seen[it]
		if seen != nil {
			seen[it] = struct{}{}
		}
		return again || s.mu.pending[it] == nil
	})
	s.mu.queue, s.mu.stale = slices.Clone(s.mu.queue), 0 // a burst must not keep its memory
}

func (s *Subscription) pushLocked(it item) {
	s.mu.queue = append(s.mu.queue, it)
	s.deliverLocked()
}

// deliverLocked starts the delivering goroutine if there is work for it.
// Pool.Close stops every subscription before it waits for the goroutines, so
// none is added to those it waits for.
func (s *Subscription) deliverLocked() {
	if s.mu.running || s.mu.paused || s.mu.closed || len(s.mu.queue) == 0 && s.mu.rest.listener == nil {
		return
	}
	s.mu.running = true
	s.pool.running.Go(s.deliver)
}

// barrier is a place in a subscription's queue at which a function is called.
type barrier struct{ then func() }

// After calls the function then once the handler has received everything that
// has happened to the lease's objects so far, including the deletes of an
// Evict. After returns at once. The function runs on the delivering goroutine,
// between two events, and may take as long as a handler may. It is never called
// if the lease is released or removed, or the subscription ends, before that
// point. A lease that is not part of the subscription counts as delivered.
func (s *Subscription) After(l *Lease, then func()) {
	i := l.lock().informer
	defer i.mu.Unlock()
	if i.mu.attempt.evicted { // the deletes are still to come
		i.mu.attempt.forgotten = append(i.mu.attempt.forgotten, func() { s.pushBarrier(l, then) })
		return
	}
	s.pushBarrier(l, then)
}

// pushBarrier queues a barrier. The lock of the lease's informer is held, so it
// comes after every change made so far.
func (s *Subscription) pushBarrier(l *Lease, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.mu.closed || l.gone() != nil {
		return
	}
	ln := s.mu.listeners[l]
	if ln == nil {
		ln = &listener{sub: s, lease: l, replayed: true}
	}
	s.pushLocked(item{listener: ln, barrier: &barrier{then: then}})
}

// reachBarrierLocked calls the function of a barrier. It releases the lock
// meanwhile.
func (s *Subscription) reachBarrierLocked(it item) {
	s.outsideLocked(it.listener, func() { s.guard("After", it.listener.key(), "After", it.barrier.then) })
}
