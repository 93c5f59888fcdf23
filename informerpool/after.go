// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

// mark is a place in a subscription's queue where something is to be done.
type mark struct{ then func() }

// After calls then when the handler has been told of everything that has
// happened to the lease's objects by now, the deletes of an Evict included. It
// returns at once: then is called between two events, by the delivering
// goroutine, and may take as long as the handler. It is not called at all if
// the lease is released or removed, or the subscription ends, before that; a
// lease that is not part of the subscription counts as told of.
func (s *Subscription) After(l *Lease, then func()) {
	e := l.lock().entry
	defer e.mu.Unlock()
	if e.evicted { // the deletes are still to come
		e.forgotten = append(e.forgotten, func() { s.pushMark(l, then) })
		return
	}
	s.pushMark(l, then)
}

// pushMark queues a mark. The lock of the lease's entry is held, so it comes
// after every change that was made.
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

// reachMarkLocked does what is to be done at a mark. The lock is given up
// meanwhile.
func (s *Subscription) reachMarkLocked(it item) {
	s.outsideLocked(it.tap, func() { s.guard("After", it.tap.lease.Key(), "After", it.mark.then) })
}
