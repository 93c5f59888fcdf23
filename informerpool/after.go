// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

// mark is a place in a subscription's queue at which a function is called.
type mark struct{ then func() }

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
		i.mu.attempt.forgotten = append(i.mu.attempt.forgotten, func() { s.pushMark(l, then) })
		return
	}
	s.pushMark(l, then)
}

// pushMark queues a mark. The lock of the lease's informer is held, so the mark
// comes after every change made so far.
func (s *Subscription) pushMark(l *Lease, then func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed || l.gone() != nil {
		return
	}
	t := s.taps[l]
	if t == nil {
		t = &tap{sub: s, lease: l, replayed: true}
	}
	s.pushLocked(item{tap: t, mark: &mark{then: then}})
}

// reachMarkLocked calls the function of a mark. It releases the lock meanwhile.
func (s *Subscription) reachMarkLocked(it item) {
	s.outsideLocked(it.tap, func() { s.guard("After", it.tap.lease.Key(), "After", it.mark.then) })
}
