// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/callback"
)

// Subscription delivers the events of any number of leases to one handler, one
// event at a time. It keeps at most one merged event for each object, so the
// memory that a slow handler costs is bounded by the number of objects, and no
// informer waits for it. It has a goroutine only while there is something to
// deliver.
//
//	informer ──change──► listener ──► mu.queue, in order ──deliver──► Handler
//	                     of a lease   mu.pending: one merged change
//	                                  of each object
type Subscription struct {
	pool    *Pool
	handler Handler
	panics  atomic.Int64

	wantsBrief bool // it is a BriefHandler

	// mu is taken with an informer's lock held, never the other way round.
	mu struct {
		sync.Mutex

		listeners map[*Lease]*listener
		queue     []item
		stale     int // pending changes that were dropped and whose places are still in queue
		pending   map[item]*delta.Pending
		brief     int       // objects that pending changes keep for a BriefHandler
		running   bool      // a goroutine is delivering
		rest      remainder // events that the previous goroutine left undelivered
		current   *listener // the one whose event the handler is processing
		worker    uint64    // the delivering goroutine
		paused    bool
		closed    bool
		idle      waiters // for the handler to return
	}
}

// item is a place in the queue: an object of a listener, a barrier, or, without
// a name, the end of the listener's replay.
type item struct {
	listener        *listener
	namespace, name string
	barrier         *barrier
}

// object reports whether the item is the place of an object.
func (it item) object() bool { return it.barrier == nil && it.name != "" }

// Subscribe returns a subscription without leases. If the pool is closed, so is
// the subscription. If the handler is nil, no lease can be added.
func (p *Pool) Subscribe(h Handler) *Subscription {
	s := &Subscription{pool: p, handler: h, wantsBrief: wantsBrief(h)}
	s.mu.listeners, s.mu.pending = map[*Lease]*listener{}, map[item]*delta.Pending{}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		s.mu.closed = true
	} else {
		p.mu.subscriptions[s] = struct{}{}
	}
	return s
}

// Add makes the subscription deliver a lease's events: first every existing
// object, marked as initial, then changes, with no gap in between. Adding a
// lease again changes nothing. Add does not block.
//
// With narrower keys, only objects that at least one of them selects are
// delivered; their Cluster and Resource are ignored, and so is their Namespace
// for objects that have none. An object that begins to be selected is delivered
// as added, one that stops being selected as deleted, with its newest state as
// Old. The only fields that can be selected by here are metadata.name and
// metadata.namespace; for others the error is a [*KeyError]. If the handler is
// nil, it is an [*OptionError].
func (s *Subscription) Add(l *Lease, narrower ...Key) error {
	if s.handler == nil {
		return &OptionError{Field: "Handler", Err: errNilHandler}
	}
	wants, err := newFilter(l, narrower)
	if err != nil {
		return err
	}
	ln := &listener{
		sub:    s,
		lease:  l,
		filter: wants,
		synced: make(chan struct{}),
	}
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	if s.mu.listeners[l] != nil {
		s.mu.Unlock()
		return nil
	}
	s.mu.listeners[l] = ln
	s.mu.Unlock()

	if !ln.attach() {
		s.Remove(l)
		return l.gone()
	}

	return nil
}

// newFilter returns the filter for the objects of a lease that the keys select.
// The error is a *KeyError for a selector that only the server can evaluate.
func newFilter(l *Lease, narrower []Key) (selector.Filter, error) {
	key := l.Key()
	s := selector.Filter{Lease: l.at.Load().selector}
	for _, k := range narrower {
		k.Cluster, k.Resource, k.Kind = key.Cluster, key.Resource, key.Kind
		k, err := k.Canonical()
		if err != nil {
			return s, err
		}
		if k.FieldSelector != key.FieldSelector && !selector.Local(k.FieldSelector) {
			return s, &KeyError{Key: k, Field: "FieldSelector", Err: errServerOnly}
		}
		f := newSelector(Key{}, k)
		if k.FieldSelector == key.FieldSelector {
			f.Fields = nil // the server has evaluated it
		}
		s.Any = append(s.Any, f)
	}

	return s, nil
}

// Remove ends the delivery of a lease's events. It does not wait: a running
// call of the handler continues. After Remove returned no call begins, unless
// the delivering goroutine had already picked its event; [Lease.Close] waits
// for that.
func (s *Subscription) Remove(l *Lease) {
	s.mu.Lock()
	ln := s.mu.listeners[l]
	delete(s.mu.listeners, l)
	if ln != nil {
		s.dropLocked(ln)
	}
	s.mu.Unlock()

	if ln != nil {
		ln.detach(func(*informer) {})
	}
}

func (s *Subscription) dropLocked(ln *listener) {
	ln.removed = true
	ln.endReplayLocked()
	for it := range s.mu.pending {
		if it.listener == ln {
			s.takeLocked(it)
		}
	}
	s.mu.queue = slices.DeleteFunc(s.mu.queue, func(it item) bool { return it.listener == ln })
	s.clearLocked()
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
	ln.endReplayLocked()
	s.mu.queue = slices.DeleteFunc(s.mu.queue, func(it item) bool {
		if it.listener != ln || it.barrier != nil {
			return false
		}
		p := s.mu.pending[it]
		if p == nil || p.IsVoid() {
			delete(s.mu.pending, it)
			return true
		}
		return false
	})
	s.clearLocked()
}

// HasSynced reports whether the handler has received every object that existed
// when the lease was added.
func (s *Subscription) HasSynced(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := s.mu.listeners[l]
	return ln != nil && ln.replayed
}

// WaitForSync waits until the handler has received every object that existed
// when the lease was added. Otherwise it returns the errors of
// [Lease.WaitForSync].
func (s *Subscription) WaitForSync(ctx context.Context, l *Lease) error {
	if err := l.WaitForSync(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	ln := s.mu.listeners[l]
	s.mu.Unlock()

	if ln == nil {
		return ErrReleased
	}
	select {
	case <-ln.synced:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ln.removed || ln.parted {
		return ErrReleased
	}
	return nil
}

// Resync delivers every object of the lease once more, marked as a resync. It
// does not wait for the handler.
func (s *Subscription) Resync(l *Lease) {
	s.trigger(l, func(st *store.Store) iter.Seq[*Object] { return st.In(l.at.Load().selector.Namespace) })
}

// Trigger delivers one object of the lease once more, marked as a resync, if
// the object exists. It does not wait for the handler.
func (s *Subscription) Trigger(l *Lease, namespace, name string) {
	s.trigger(l, func(st *store.Store) iter.Seq[*Object] {
		return func(yield func(*Object) bool) {
			if o := st.Get(namespace, name); o != nil {
				yield(o)
			}
		}
	})
}

func (s *Subscription) trigger(l *Lease, objects func(*store.Store) iter.Seq[*Object]) {
	s.mu.Lock()
	ln := s.mu.listeners[l]
	s.mu.Unlock()

	if ln == nil {
		return
	}
	i := l.at.rlock().informer // so that no change is offered between reading the object and offering its old state
	defer i.mu.RUnlock()
	if !i.mu.synced {
		return
	}
	for o := range objects(i.mu.store) {
		ln.offer(delta.Resync(o))
	}
}

// Pause stops the delivery after the event that the handler is processing;
// changes are merged meanwhile. Continue ends the pause.
func (s *Subscription) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paused = true
}

// Continue ends a pause.
func (s *Subscription) Continue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paused = false
	s.deliverLocked()
}

// Panics returns how often the handler has panicked.
func (s *Subscription) Panics() int64 { return s.panics.Load() }

// Pending returns how many events wait for the handler.
func (s *Subscription) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.queue) - s.mu.stale
}

// Stop ends the subscription without waiting for a running call of its handler.
func (s *Subscription) Stop() {
	s.mu.Lock()
	listeners := s.mu.listeners
	s.mu.listeners = map[*Lease]*listener{}
	s.mu.closed, s.mu.queue, s.mu.stale = true, nil, 0
	clear(s.mu.pending)
	for _, ln := range listeners {
		s.dropLocked(ln)
	}
	s.mu.Unlock()

	for _, ln := range listeners {
		ln.detach(func(*informer) {})
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	delete(s.pool.mu.subscriptions, s)
}

// Close ends the subscription and waits for a running call of its handler, or
// for ctx. If the handler itself calls Close, it does not wait. After Close
// returned nil no call begins.
func (s *Subscription) Close(ctx context.Context) error {
	s.Stop()
	return s.drain(ctx, nil)
}

// remainder holds the events that are still to be delivered after the handler
// ended the goroutine amid several.
type remainder struct {
	listener *listener
	key      *Key
	steps    []delta.Step
}

// deliver calls the handler until the queue is empty. If the handler ends the
// goroutine, another goroutine continues.
func (s *Subscription) deliver() {
	id := callback.Goroutine()
	s.mu.Lock()
	defer s.mu.Unlock()

	defer s.stopLocked()
	s.mu.worker = id
	if left := s.mu.rest; left.listener != nil {
		s.handleLocked(left, true)
	}

	for !s.mu.paused && !s.mu.closed && len(s.mu.queue) > 0 {
		it := s.mu.queue[0]
		s.mu.queue[0] = item{}
		if s.mu.queue = s.mu.queue[1:]; len(s.mu.queue) == 0 {
			s.mu.queue = nil // a burst must not keep its memory
		}

		switch {
		case it.barrier != nil:
			s.outsideLocked(it.listener, func() { s.guard("After", it.listener.key(), "After", it.barrier.then) })
			continue
		case it.name == "":
			s.endReplayLocked(it.listener)
			continue
		}

		p := s.takeLocked(it)
		if p == nil {
			s.mu.stale--
			continue
		}
		s.handleLocked(remainder{listener: it.listener, key: it.listener.key(), steps: p.Steps()}, false)
	}
}

// stopLocked records that the delivering goroutine ends. If a user's function
// ended it, there may be more to deliver.
func (s *Subscription) stopLocked() {
	s.mu.running, s.mu.worker = false, 0
	if len(s.mu.pending) == 0 {
		s.mu.pending = map[item]*delta.Pending{}
	}
	s.deliverLocked()
}

// handleLocked calls the handler with the pending events of one object, unless
// the handler removes the listener or closes the subscription in between. It
// releases the lock meanwhile. begun reports whether some were delivered
// before.
func (s *Subscription) handleLocked(left remainder, begun bool) {
	for len(left.steps) > 0 && (!begun || !left.listener.removed && !s.mu.closed) {
		e := eventOf(left.key, left.steps[0])
		left.steps, begun = left.steps[1:], true
		s.mu.rest = left
		s.outsideLocked(left.listener, func() {
			s.guard("Handler", left.key, string(e.Type), func() { s.handler.Handle(e) })
		})
	}

	s.mu.rest = remainder{}
}

// outsideLocked calls f, which calls a user's function, without the lock. It
// takes the lock again even if that function ends the goroutine.
func (s *Subscription) outsideLocked(ln *listener, f func()) {
	s.mu.current = ln
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		s.mu.current = nil
		s.mu.idle.wake()
	}()
	f()
}

// guard calls a user's function. A panic is counted and logged, and has no
// other effect.
func (s *Subscription) guard(name string, key *Key, event string, f func()) {
	returned := false
	defer func() {
		if !returned {
			s.panics.Add(1)
		}
	}()
	_ = s.pool.calls.Here(name, key, func() error {
		f()
		returned = true
		return nil
	}, "event", event)
}

// drain waits until the handler is not processing an event of the listener or,
// if t is nil, any event.
func (s *Subscription) drain(ctx context.Context, ln *listener) error {
	for {
		s.mu.Lock()
		if s.mu.current == nil || (ln != nil && s.mu.current != ln) || s.mu.worker == callback.Goroutine() {
			s.mu.Unlock()
			return nil
		}
		idle := s.mu.idle.add()
		s.mu.Unlock()

		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// endReplayLocked notifies the handler, and waiting goroutines, that a lease's
// replay is over. It releases the lock meanwhile.
func (s *Subscription) endReplayLocked(ln *listener) {
	if ln.replayed {
		return
	}
	defer ln.endReplayLocked() // the handler may have removed the lease
	if h, ok := s.handler.(ReplayHandler); ok {
		s.outsideLocked(ln, func() {
			s.guard("Handler", ln.key(), "Replayed", func() { h.Replayed(*ln.key()) })
		})
	}
}

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
	i := l.at.lock().informer
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
