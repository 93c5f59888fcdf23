// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "slices"

// offer queues a change, merged with the pending change of the same object. The
// informer's lock is held, so changes are queued in order.
func (t *tap) offer(c change) {
	if c, relevant := c.narrow(t.wants); relevant {
		t.offerAll(c)
	}
}

// offerAll is offer for a change that is known to be selected.
func (t *tap) offerAll(c change) {
	if told, ok := t.alias[c.old]; ok {
		delete(t.alias, c.old)
		if c.final == c.old {
			c.final = told
		}
		c.old = told
	}

	o := c.new
	if o == nil {
		o = c.old
	}
	it := item{tap: t, namespace: o.GetNamespace(), name: o.GetName()}
	s := t.sub
	s.mu.Lock()
	defer s.mu.Unlock()

	if t.removed {
		return
	}

	if p := s.pending[it]; p != nil {
		p.merge(c)
		t.returnedLocked(p)
		if p.isEmpty() {
			s.voidLocked(it)
		}
		return
	}

	s.pending[it] = &pending{change: c, asked: c.resync}
	s.pushLocked(it)
}

// returnedLocked handles an object that is back in the state the handler last
// received: changes were undone while the handler was busy, as when another
// cluster took the place or etcd was restored. It leaves no change pending.
// Since reads may have returned the states between, the object is delivered
// once more, as if it had been requested. The restored state is another object
// in memory, for which the one the handler has received stands in. The locks of
// the informer and the subscription are held.
func (t *tap) returnedLocked(p *pending) {
	told, is := p.old, p.new
	if told == nil || is == nil || told == is || told.GetUID() != is.GetUID() || !sameState(told, is) {
		return
	}
	if t.alias == nil {
		t.alias = map[*Object]*Object{}
	}
	t.alias[is] = told
	p.new, p.asked = told, true
}

// voidLocked drops the pending change of an object that came and went: a slow
// handler need not receive it. Its place in the queue is cleared later.
func (s *Subscription) voidLocked(it item) {
	delete(s.pending, it)
	if s.stale++; s.stale > len(s.queue)/2+32 {
		s.clearLocked()
	}
}

// clearLocked removes the places from the queue that have no pending change.
func (s *Subscription) clearLocked() {
	var seen map[item]struct{}
	if s.stale > 0 { // an object may have been re-created, and have more than one
		seen = make(map[item]struct{}, len(s.pending))
	}
	s.queue = slices.DeleteFunc(s.queue, func(it item) bool {
		if !it.object() {
			return false
		}
		_, again := seen[it]
		if seen != nil {
			seen[it] = struct{}{}
		}
		return again || s.pending[it] == nil
	})
	s.queue, s.stale = slices.Clone(s.queue), 0 // a burst must not keep its memory
}

func (s *Subscription) pushLocked(it item) {
	s.queue = append(s.queue, it)
	s.deliverLocked()
}

// deliverLocked starts the delivering goroutine if there is work for it.
// Pool.Close stops every subscription before it waits for the goroutines, so
// none is added to those it waits for.
func (s *Subscription) deliverLocked() {
	if s.running || s.paused || s.closed || len(s.queue) == 0 && s.rest.tap == nil {
		return
	}
	s.running = true
	s.pool.running.Go(s.deliver)
}
