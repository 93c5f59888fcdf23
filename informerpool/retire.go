// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "slices"

// Retire releases the lease because its cluster is gone. Handlers receive the
// deletes of all its objects in order, marked as evicted, even after a pause.
// The informer stops at once, without lingering, unless another lease is held;
// only the objects of those deletes stay in memory. Like [Lease.Release],
// Retire is idempotent and does not wait.
func (l *Lease) Retire() {
	l.once.Do(func() {
		// Close it before looking at the listeners: a listener that is attached
		// later sees it.
		close(l.released)
		for _, ln := range l.attached() {
			l.part(ln)
		}
		l.pool.release(l, 0)
	})
}

// part separates a listener from the lease. It offers the deletes of the
// objects the listener has delivered, whether or not the informer has already
// forgotten them.
func (l *Lease) part(ln *listener) {
	i := l.lock().informer
	if at := slices.Index(i.mu.listeners, ln); at >= 0 {
		i.mu.listeners = slices.Delete(i.mu.listeners, at, at+1)
		ln.evictLocked(i)
	}
	i.mu.Unlock()

	l.mu.Lock()
	l.mu.listeners = slices.DeleteFunc(l.mu.listeners, func(x *listener) bool { return x == ln })
	l.mu.Unlock()

	ln.sub.part(ln)
}

// evicted returns the delete of an object whose cluster was removed.
func evicted(o *Object) change {
	return change{
		old:     o,
		final:   o,
		unknown: true,
		evicted: true,
	}
}

// part leaves a listener only its pending deletes, and the barriers after them.
func (s *Subscription) part(ln *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if ln.removed {
		return
	}
	if s.mu.listeners[ln.lease] == ln {
		delete(s.mu.listeners, ln.lease)
	}
	ln.parted = true
	if !ln.replayed {
		ln.replayed = true
		close(ln.synced)
	}
	s.mu.queue = slices.DeleteFunc(s.mu.queue, func(it item) bool {
		if it.listener != ln || it.barrier != nil {
			return false
		}
		p := s.mu.pending[it]
		if p == nil || p.isVoid() {
			delete(s.mu.pending, it)
			return true
		}
		return false
	})
	s.clearLocked()
}
