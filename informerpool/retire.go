// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "slices"

// Retire gives the lease up because its cluster is gone. Handlers are told of
// the deletes of all its objects as their turn comes, marked as evicted, also
// after a pause. The informer stops at once, without the linger, unless another
// lease is held: only what those deletes carry is kept. Like [Lease.Release] it
// is idempotent and does not wait.
func (l *Lease) Retire() {
	l.once.Do(func() {
		// Before the taps are looked at: one that is attached later sees it.
		close(l.released)
		for _, t := range l.attached() {
			l.part(t)
		}
		l.pool.release(l, 0)
	})
}

// part takes a tap from the lease. What it was told of is deleted for it,
// whether the informer has forgotten that already or not.
func (l *Lease) part(t *tap) {
	e := l.lock().entry
	i := slices.Index(e.taps, t)
	if i >= 0 {
		e.taps = slices.Delete(e.taps, i, i+1)
		t.evictLocked(e)
	}
	e.mu.Unlock()
	l.mu.Lock()
	l.taps = slices.DeleteFunc(l.taps, func(x *tap) bool { return x == t })
	l.mu.Unlock()
	t.sub.part(t)
}

// evictLocked offers the deletes of everything that there is. The entry's lock
// is held.
func (t *tap) evictLocked(e *entry) {
	if e.synced {
		for o := range e.store.all() {
			t.offer(evicted(o))
		}
	}
	t.evictSeenLocked(e)
	t.disinheritLocked()
}

// evicted is the end of an object whose cluster was taken away.
func evicted(o *Object) change { return change{old: o, final: o, unknown: true, evicted: true} }

// part leaves a tap nothing but the deletes that wait for the handler, and the
// marks behind them.
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
