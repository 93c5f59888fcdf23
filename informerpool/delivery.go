// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"slices"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/internal/callback"
)

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
			s.reachBarrierLocked(it)
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

// reachBarrierLocked calls the function of a barrier. It releases the lock
// meanwhile.
func (s *Subscription) reachBarrierLocked(it item) {
	s.outsideLocked(it.listener, func() { s.guard("After", it.listener.key(), "After", it.barrier.then) })
}
