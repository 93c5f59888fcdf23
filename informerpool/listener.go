// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// listener carries one lease's events to one subscription.
type listener struct {
	sub   *Subscription
	lease *Lease

	// INVARIANT: the lock of the informer that serves the lease protects
	// filter, inherited and alias.
	filter selector.Filter
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

// attached are the listeners of a lease.
type attached struct {
	mu        sync.Mutex // protects listeners; never held while another lock is taken
	listeners []*listener
}

func (a *attached) add(ln *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = append(a.listeners, ln)
}

func (a *attached) remove(ln *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners = slices.DeleteFunc(a.listeners, func(x *listener) bool { return x == ln })
}

func (a *attached) all() []*listener {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.listeners)
}

// attach connects the listener to the informer that serves its lease, and
// replays the cached objects. It reports false if the lease was released.
func (ln *listener) attach() bool {
	l := ln.lease
	l.attached.add(ln)
	i := l.at.lock().informer
	defer i.mu.Unlock()

	// A Release that found the listener may already have detached it: it closed
	// released before that, so the check below sees it. A later Release
	// detaches what is attached here.
	if l.gone() != nil || i.mu.state == StateDying || i.mu.state == StateGone {
		return false
	}
	i.mu.listeners = append(i.mu.listeners, ln)
	if i.mu.synced {
		ln.replayLocked(i.mu.store)
	}

	return true
}

// detach disconnects the listener from its informer, and then calls last with
// the informer's lock, unless it was not connected.
func (ln *listener) detach(last func(*informer)) {
	i := ln.lease.at.lock().informer
	if at := slices.Index(i.mu.listeners, ln); at >= 0 {
		i.mu.listeners = slices.Delete(i.mu.listeners, at, at+1)
		last(i)
	}
	i.mu.Unlock()

	ln.lease.attached.remove(ln)
}

// remove ends the delivery at once.
func (ln *listener) remove() { ln.sub.Remove(ln.lease) }

// part separates the listener from its lease. It offers the deletes of the
// objects that it has delivered, whether or not the informer has already
// forgotten them.
func (ln *listener) part() {
	ln.detach(ln.evictLocked)
	ln.sub.part(ln)
}

// key returns the key of the lease.
func (ln *listener) key() *Key { return &ln.lease.at.Load().key }

// replayLocked offers every object of the store, and then marks the end of the
// replay. The informer's lock is held.
func (ln *listener) replayLocked(s *store.Store) {
	now := s.Sight.Next()
	for o := range s.In(ln.filter.Lease.Namespace) {
		ln.offer(delta.Change{New: o, Initial: true, Sight: now})
	}
	ln.sub.mu.Lock()
	defer ln.sub.mu.Unlock()
	if !ln.removed && !ln.replayed {
		ln.sub.pushLocked(item{listener: ln})
	}
}

// endReplayLocked records that the replay is over, or is not waited for any
// more. The subscription's lock is held.
func (ln *listener) endReplayLocked() {
	if !ln.replayed {
		ln.replayed = true
		close(ln.synced)
	}
}

// offer queues a change, merged with the pending change of the same object. The
// informer's lock is held, so changes are queued in order.
func (ln *listener) offer(c delta.Change) {
	if c, relevant := c.Narrow(ln.filter.Match); relevant {
		ln.offerAll(c)
	}
}

// offerAll is offer for a change that is known to be selected.
func (ln *listener) offerAll(c delta.Change) {
	if received, ok := ln.alias[c.Old]; ok {
		delete(ln.alias, c.Old)
		if c.Final == c.Old {
			c.Final = received
		}
		c.Old = received
	}

	o := cmp.Or(c.New, c.Old)
	it := item{listener: ln, namespace: o.GetNamespace(), name: o.GetName()}
	s := ln.sub
	s.mu.Lock()
	defer s.mu.Unlock()

	if ln.removed {
		return
	}

	p := s.mu.pending[it]
	if p == nil {
		s.mu.pending[it] = delta.New(c)
		s.pushLocked(it)
		return
	}
	if p.Merge(c, s.wantsBrief && s.mu.brief < maxBrief) {
		s.mu.brief++
	}
	if restored := p.Undo(); restored != nil {
		ln.rename(restored, p.Old)
	}
	if p.IsVoid() {
		s.voidLocked(it)
	}
}

// rename records that the handler has received an object of the informer as
// another one. The informer's lock is held.
func (ln *listener) rename(o, received *Object) {
	if ln.alias == nil {
		ln.alias = map[*Object]*Object{}
	}
	ln.alias[o] = received
}

// lose queues the delete of an object that the handler did not receive. An
// object that came and went while the handler was busy is delivered all the
// same. The informer's lock is held.
func (ln *listener) lose(o *Object, evicted bool) {
	s := ln.sub
	it := item{listener: ln, namespace: o.GetNamespace(), name: o.GetName()}
	s.mu.Lock()
	defer s.mu.Unlock()

	p := s.mu.pending[it]
	switch {
	case ln.removed:
	case p != nil:
		p.Lose(o, evicted)
	default:
		s.mu.pending[it] = delta.Lost(o, evicted)
		s.pushLocked(it)
	}
}

// delivered returns the objects that the subscription selects, keyed by name,
// each in the state that the handler has received.
func (ln *listener) delivered(objects []*Object) map[types.NamespacedName]*Object {
	out := make(map[types.NamespacedName]*Object, len(objects))
	for _, o := range objects {
		if !ln.filter.Match(o) {
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
		o := s.Of(old)
		switch {
		case !ln.filter.Match(o):
			gone := delta.Vanished(old)
			gone.Sight = now
			ln.offerAll(gone)
			continue
		case o.GetUID() != old.GetUID() || !ordering.SameState(old, o):
			ln.offerAll(delta.Change{Old: old, New: o, Sight: now})
		case o != old:
			ln.rename(o, old)
		}

		known[o] = struct{}{}
	}

	for o := range s.In(ln.filter.Lease.Namespace) {
		if _, ok := known[o]; !ok {
			ln.offer(delta.Change{New: o, Sight: now})
		}
	}
}

// disinheritLocked offers the deletes of the objects inherited from another
// informer: the cluster is gone.
func (ln *listener) disinheritLocked() {
	for _, o := range ln.inherited {
		ln.offerAll(delta.Evicted(o))
	}
	ln.inherited = nil
}

// evictLocked offers the deletes of all objects. The informer's lock is held.
func (ln *listener) evictLocked(i *informer) {
	if i.mu.synced {
		for o := range i.mu.store.All() {
			ln.offer(delta.Evicted(o))
		}
	}
	ln.evictSeenLocked(i)
	ln.disinheritLocked()
}
