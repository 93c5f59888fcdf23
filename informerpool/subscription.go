// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/goroutine"
)

// Subscription delivers the events of any number of leases to one handler, one
// event at a time. It keeps at most one merged event for each object, so the
// memory that a slow handler costs is bounded by the number of objects, and no
// informer waits for it. It has a goroutine only while there is something to
// deliver.
type Subscription struct {
	pool    *Pool
	handler Handler
	panics  atomic.Int64

	mu      sync.Mutex // protects the fields below; taken with an informer's lock held, never the other way round
	taps    map[*Lease]*tap
	queue   []item
	stale   int // pending changes that were dropped and whose places are still in queue
	pending map[item]*pending
	running bool      // a goroutine is delivering
	rest    remainder // events that the previous goroutine left undelivered
	current *tap      // the tap whose event the handler is processing
	worker  uint64    // the delivering goroutine
	paused  bool
	closed  bool
	idle    chan struct{} // made by a goroutine that waits for the handler; closed when it returns
}

// item is a place in the queue: an object of a tap, a mark, or, without a name,
// the end of the tap's replay.
type item struct {
	tap             *tap
	namespace, name string
	mark            *mark
}

// object reports whether the item is the place of an object.
func (it item) object() bool { return it.mark == nil && it.name != "" }

// tap carries one lease's events to one subscription.
type tap struct {
	sub   *Subscription
	lease *Lease

	// wants, inherited and alias are protected by the lock of the informer that
	// serves the lease. inherited holds the objects that the handler received
	// through another informer, until this informer has synced; nil if there
	// was none. alias maps an object of this informer to the equal one that the
	// handler received through another informer: the old state in an event is
	// always the object that the handler last received.
	wants     sieve
	inherited map[types.NamespacedName]*Object
	alias     map[*Object]*Object

	// removed, parted and replayed are protected by the subscription's lock. A
	// parted tap has no lease any more; its pending changes are still
	// delivered.
	removed  bool
	parted   bool
	replayed bool
	changed  chan struct{} // closed when the replay was delivered
}

// Subscribe returns a subscription without leases. If the pool is closed, so is
// the subscription.
func (p *Pool) Subscribe(h Handler) *Subscription {
	s := &Subscription{
		pool:    p,
		handler: h,
		taps:    map[*Lease]*tap{},
		pending: map[item]*pending{},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		s.closed = true
	} else {
		p.subs[s] = struct{}{}
	}
	return s
}

// Add makes the subscription deliver a lease's events: first every existing
// object, marked as initial, then changes, with no gap in between. Adding a
// lease again changes nothing. Add does not block.
//
// With narrower keys, only objects that at least one of them selects are
// delivered; their Cluster and Resource are ignored. An object that begins to
// be selected is delivered as added, one that stops being selected as deleted,
// with its newest state as Old. The only fields that can be selected by here
// are metadata.name and metadata.namespace; for others the error is a
// [*KeyError].
func (s *Subscription) Add(l *Lease, narrower ...Key) error {
	wants, err := newSieve(l, narrower)
	if err != nil {
		return err
	}
	t := &tap{
		sub:     s,
		lease:   l,
		wants:   wants,
		changed: make(chan struct{}),
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	if s.taps[l] != nil {
		s.mu.Unlock()
		return nil
	}
	s.taps[l] = t
	s.mu.Unlock()

	if !l.attach(t) {
		s.Remove(l)
		return l.gone()
	}

	return nil
}

// Remove ends the delivery of a lease's events. It does not wait: a running
// call of the handler continues. After Remove returned no call begins, unless
// the delivering goroutine had already picked its event; [Lease.Close] waits
// for that.
func (s *Subscription) Remove(l *Lease) {
	s.mu.Lock()
	t := s.taps[l]
	delete(s.taps, l)
	if t != nil {
		s.dropLocked(t)
	}
	s.mu.Unlock()

	if t != nil {
		l.detach(t)
	}
}

func (s *Subscription) dropLocked(t *tap) {
	t.removed = true
	if !t.replayed {
		t.replayed = true
		close(t.changed)
	}
	for it := range s.pending {
		if it.tap == t {
			delete(s.pending, it)
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(it item) bool { return it.tap == t })
	s.clearLocked()
}

// HasSynced reports whether the handler has received every object that existed
// when the lease was added.
func (s *Subscription) HasSynced(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.taps[l]
	return t != nil && t.replayed
}

// WaitForSync waits until the handler has received every object that existed
// when the lease was added. Otherwise it returns the errors of
// [Lease.WaitForSync].
func (s *Subscription) WaitForSync(ctx context.Context, l *Lease) error {
	if err := l.WaitForSync(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	t := s.taps[l]
	s.mu.Unlock()

	if t == nil {
		return ErrReleased
	}
	select {
	case <-t.changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.removed || t.parted {
		return ErrReleased
	}
	return nil
}

// Resync delivers every object of the lease once more, marked as a resync. It
// does not wait for the handler.
func (s *Subscription) Resync(l *Lease) {
	s.trigger(l, func(st *store) iter.Seq[*Object] { return st.in(l.at.Load().filter.namespace) })
}

// Trigger delivers one object of the lease once more, marked as a resync, if
// the object exists. It does not wait for the handler.
func (s *Subscription) Trigger(l *Lease, namespace, name string) {
	s.trigger(l, func(st *store) iter.Seq[*Object] {
		return func(yield func(*Object) bool) {
			if o := st.get(namespace, name); o != nil {
				yield(o)
			}
		}
	})
}

func (s *Subscription) trigger(l *Lease, objects func(*store) iter.Seq[*Object]) {
	s.mu.Lock()
	t := s.taps[l]
	s.mu.Unlock()

	if t == nil {
		return
	}
	i := l.rlock().informer // so that no change is offered between reading the object and offering its old state
	defer i.mu.RUnlock()
	if !i.mu.synced {
		return
	}
	for o := range objects(i.mu.store) {
		t.offer(change{old: o, new: o, resync: true})
	}
}

// Pause stops the delivery after the event that the handler is processing;
// changes are merged meanwhile. Continue ends the pause.
func (s *Subscription) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
}

// Continue ends a pause.
func (s *Subscription) Continue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	s.deliverLocked()
}

// Panics returns how often the handler has panicked.
func (s *Subscription) Panics() int64 { return s.panics.Load() }

// Pending returns how many events wait for the handler.
func (s *Subscription) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) - s.stale
}

// Stop ends the subscription without waiting for a running call of its handler.
func (s *Subscription) Stop() {
	s.mu.Lock()
	taps := s.taps
	s.taps = map[*Lease]*tap{}
	s.closed, s.queue, s.stale = true, nil, 0
	clear(s.pending)
	for _, t := range taps {
		s.dropLocked(t)
	}
	s.mu.Unlock()

	for l, t := range taps {
		l.detach(t)
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	delete(s.pool.subs, s)
}

// Close ends the subscription and waits for a running call of its handler, or
// for ctx. If the handler itself calls Close, it does not wait. After Close
// returned nil no call begins.
func (s *Subscription) Close(ctx context.Context) error {
	s.Stop()
	return s.drain(ctx, nil)
}

// drain waits until the handler is not processing an event of the tap or, if t
// is nil, any event.
func (s *Subscription) drain(ctx context.Context, t *tap) error {
	for {
		s.mu.Lock()
		if s.current == nil || (t != nil && s.current != t) || s.worker == goroutine.ID() {
			s.mu.Unlock()
			return nil
		}
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()

		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// replayLocked offers every object of the store, and then marks the end of the
// replay. The informer's lock is held.
func (t *tap) replayLocked(s *store) {
	now := s.sight.next()
	for o := range s.in(t.wants.lease.namespace) {
		t.offer(change{new: o, initial: true, sight: now})
	}
	t.sub.mu.Lock()
	defer t.sub.mu.Unlock()
	if !t.removed && !t.replayed {
		t.sub.pushLocked(item{tap: t})
	}
}

// remainder holds the events that are still to be delivered after the handler
// ended the goroutine amid several.
type remainder struct {
	tap    *tap
	events []Event
}

// deliver calls the handler until the queue is empty. If the handler ends the
// goroutine, another goroutine continues.
func (s *Subscription) deliver() {
	id := goroutine.ID()
	s.mu.Lock()
	defer s.mu.Unlock()

	defer s.stopLocked()
	s.worker = id
	if left := s.rest; left.tap != nil {
		s.tellLocked(left.tap, left.events, true)
	}

	for !s.paused && !s.closed && len(s.queue) > 0 {
		it := s.queue[0]
		s.queue[0] = item{}
		if s.queue = s.queue[1:]; len(s.queue) == 0 {
			s.queue = nil // a burst must not keep its memory
		}

		switch {
		case it.mark != nil:
			s.reachMarkLocked(it)
			continue
		case it.name == "":
			s.endReplayLocked(it.tap)
			continue
		}

		p := s.pending[it]
		if p == nil {
			s.stale--
			continue
		}
		delete(s.pending, it)
		s.tellLocked(it.tap, p.events(it.tap.lease.Key()), false)
	}
}

// stopLocked records that the delivering goroutine ends. If a user's function
// ended it, there may be more to deliver.
func (s *Subscription) stopLocked() {
	s.running, s.worker = false, 0
	if len(s.pending) == 0 {
		s.pending = map[item]*pending{}
	}
	s.deliverLocked()
}

// tellLocked calls the handler with the pending events of one object, unless
// the handler removes the tap or closes the subscription in between. It
// releases the lock meanwhile.
func (s *Subscription) tellLocked(t *tap, events []Event, begun bool) {
	for i, e := range events {
		if (i > 0 || begun) && (t.removed || s.closed) {
			break
		}
		s.rest = remainder{tap: t, events: events[i+1:]}
		s.outsideLocked(t, func() { s.call(e) })
	}

	s.rest = remainder{}
}

// outsideLocked calls f, which calls a user's function, without the lock. It
// takes the lock again even if that function ends the goroutine.
func (s *Subscription) outsideLocked(t *tap, f func()) {
	s.current = t
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		s.doneLocked()
	}()
	f()
}

func (s *Subscription) call(e Event) {
	s.guard("Handler", e.Key, string(e.Type), func() { s.handler.Handle(e) })
}

// guard calls a user's function. A panic is counted and logged, and has no
// other effect.
func (s *Subscription) guard(name string, key Key, event string, f func()) {
	returned := false
	defer func() {
		if !returned {
			s.panics.Add(1)
		}
	}()
	_ = s.pool.call(name, key, func() error {
		f()
		returned = true
		return nil
	}, "event", event)
}
