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
		// Close it before looking at the taps: a tap that is attached later
		// sees it.
		close(l.released)
		for _, t := range l.attached() {
			l.part(t)
		}
		l.pool.release(l, 0)
	})
}

// part separates a tap from the lease. It offers the deletes of the objects the
// tap has delivered, whether or not the informer has already forgotten them.
func (l *Lease) part(t *tap) {
	i := l.lock().informer
	if at := slices.Index(i.mu.listeners, t); at >= 0 {
		i.mu.listeners = slices.Delete(i.mu.listeners, at, at+1)
		t.evictLocked(i)
	}
	i.mu.Unlock()

	l.mu.Lock()
	l.taps = slices.DeleteFunc(l.taps, func(x *tap) bool { return x == t })
	l.mu.Unlock()

	t.sub.part(t)
}

// evictLocked offers the deletes of all objects. The informer's lock is held.
func (t *tap) evictLocked(i *informer) {
	if i.mu.synced {
		for o := range i.mu.store.all() {
			t.offer(evicted(o))
		}
	}
	t.evictSeenLocked(i)
	t.disinheritLocked()
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

// part leaves a tap only its pending deletes, and the marks after them.
func (s *Subscription) part(t *tap) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if t.removed {
		return
	}
	if s.taps[t.lease] == t {
		delete(s.taps, t.lease)
	}
	t.parted = true
	if !t.replayed {
		t.replayed = true
		close(t.changed)
	}
	s.queue = slices.DeleteFunc(s.queue, func(it item) bool {
		if it.tap != t || it.mark != nil {
			return false
		}
		p := s.pending[it]
		if p == nil || p.isEmpty() {
			delete(s.pending, it)
			return true
		}
		return false
	})
	s.clearLocked()
}
