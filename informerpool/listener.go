// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// listener carries one lease's events to one subscription.
type listener struct {
	sub   *Subscription
	lease *Lease

	// INVARIANT: the lock of the informer that serves the lease protects
	// filter, inherited and alias.
	filter filter
	// inherited are the objects that the handler received through another
	// informer, until this one has synced; nil if there was none.
	inherited map[types.NamespacedName]*Object
	// alias maps an object of this informer to the equal one that the handler
	// received through another informer: the old state in an event is always
	// the object that the handler last received.
	alias map[*Object]*Object

	// INVARIANT: the subscription's lock protects removed, parted and replayed.
	removed  bool
	parted   bool // it has no lease any more; pending changes are still delivered
	replayed bool
	synced   chan struct{} // closed with replayed
}

// replayLocked offers every object of the store, and then marks the end of the
// replay. The informer's lock is held.
func (ln *listener) replayLocked(s *store.Store) {
	now := s.Sight.Next()
	for o := range s.In(ln.filter.lease.namespace) {
		ln.offer(change{new: o, initial: true, sight: now})
	}
	ln.sub.mu.Lock()
	defer ln.sub.mu.Unlock()
	if !ln.removed && !ln.replayed {
		ln.sub.pushLocked(item{listener: ln})
	}
}

// offer queues a change, merged with the pending change of the same object. The
// informer's lock is held, so changes are queued in order.
func (ln *listener) offer(c change) {
	if c, relevant := c.narrow(ln.filter); relevant {
		ln.offerAll(c)
	}
}

// offerAll is offer for a change that is known to be selected.
func (ln *listener) offerAll(c change) {
	if received, ok := ln.alias[c.old]; ok {
		delete(ln.alias, c.old)
		if c.final == c.old {
			c.final = received
		}
		c.old = received
	}

	o := c.new
	if o == nil {
		o = c.old
	}
	it := item{listener: ln, namespace: o.GetNamespace(), name: o.GetName()}
	s := ln.sub
	s.mu.Lock()
	defer s.mu.Unlock()

	if ln.removed {
		return
	}

	if p := s.mu.pending[it]; p != nil {
		before := p.new
		p.merge(c)
		s.keepBriefLocked(p, before, c)
		ln.returnedLocked(p)
		if p.isVoid() {
			s.voidLocked(it)
		}
		return
	}

	s.mu.pending[it] = &pending{change: c, asked: c.resync}
	s.pushLocked(it)
}

// returnedLocked handles an object that is back in the state the handler last
// received: changes were undone while the handler was busy, as when another
// cluster took the place or etcd was restored. It leaves no change pending.
// Since reads may have returned the states between, the object is delivered
// once more, as if it had been requested. The restored state is another object
// in memory, for which the one the handler has received stands in. The locks of
// the informer and the subscription are held.
func (ln *listener) returnedLocked(p *pending) {
	received, is := p.old, p.new
	if received == nil || is == nil || received == is || received.GetUID() != is.GetUID() || !ordering.SameState(received, is) {
		return
	}
	if ln.alias == nil {
		ln.alias = map[*Object]*Object{}
	}
	ln.alias[is] = received
	p.new, p.asked = received, true
}

// lose queues the delete of an object that the handler did not receive. An
// object that came and went while the handler was busy is delivered all the
// same. The informer's lock is held.
func (ln *listener) lose(o *Object, evicted bool) {
	s := ln.sub
	it := item{listener: ln, namespace: o.GetNamespace(), name: o.GetName()}
	s.mu.Lock()
	defer s.mu.Unlock()

	if p := s.mu.pending[it]; p != nil && p.old == nil && !ln.removed && (p.new == nil || p.new.GetUID() != o.GetUID()) {
		p.old, p.final, p.unheard, p.unknown, p.evicted = o, o, true, true, evicted
		return
	}
	if ln.removed || s.mu.pending[it] != nil {
		return // a newer change is about to be delivered
	}
	s.mu.pending[it] = &pending{change: change{
		old:     o,
		final:   o,
		unknown: true,
		evicted: evicted,
	}, unheard: true}
	s.pushLocked(it)
}

// delivered returns the objects that the subscription selects, keyed by name,
// each in the state that the handler has received.
func (ln *listener) delivered(objects []*Object) map[types.NamespacedName]*Object {
	out := make(map[types.NamespacedName]*Object, len(objects))
	for _, o := range objects {
		if !ln.filter.empty() && !ln.filter.match(o) {
			continue
		}
		if received, ok := ln.alias[o]; ok {
			o = received
		}
		out[store.NameOf(o)] = o
	}

	ln.alias = nil
	return out
}

// catchUpLocked begins a listener at an informer that has synced. It offers
// every object, or the difference if the listener came from another informer.
// The informer's lock is held.
func (ln *listener) catchUpLocked(s *store.Store) {
	was := ln.inherited
	ln.inherited = nil
	if was == nil {
		ln.replayLocked(s)
		return
	}
	known, now := make(map[*Object]struct{}, len(was)), s.Sight.Next()
	for _, old := range was {
		o := s.Get(old.GetNamespace(), old.GetName())
		switch {
		case o == nil || !ln.filter.empty() && !ln.filter.match(o):
			ln.offerAll(change{
				old:     old,
				final:   old,
				unknown: true,
				sight:   now,
			})
			continue
		case o.GetUID() != old.GetUID() || !ordering.SameState(old, o):
			ln.offerAll(change{old: old, new: o, sight: now})
		case o != old:
			if ln.alias == nil {
				ln.alias = map[*Object]*Object{}
			}
			ln.alias[o] = old
		}

		known[o] = struct{}{}
	}

	for o := range s.In(ln.filter.lease.namespace) {
		if _, ok := known[o]; !ok {
			ln.offer(change{new: o, sight: now})
		}
	}
}

// disinheritLocked offers the deletes of the objects inherited from another
// informer: the cluster is gone.
func (ln *listener) disinheritLocked() {
	for _, o := range ln.inherited {
		ln.offerAll(evicted(o))
	}
	ln.inherited = nil
}

// evictLocked offers the deletes of all objects. The informer's lock is held.
func (ln *listener) evictLocked(i *informer) {
	if i.mu.synced {
		for o := range i.mu.store.All() {
			ln.offer(evicted(o))
		}
	}
	ln.evictSeenLocked(i)
	ln.disinheritLocked()
}
