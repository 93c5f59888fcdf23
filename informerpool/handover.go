// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// A lease may be served by a wider informer than its own key selects. Such an
// informer has two kinds of leases: its own, and riders. Riders stay only while
// it also has leases of its own and the server lets it run. After that each
// rider gets an informer of its own. The wider one serves it until the new one
// has synced and is not behind; then the lease is moved, and its handlers
// receive the difference, if there is one.

// forsakenAfter is how long an informer may be degraded before narrower leases
// stop relying on it.
const forsakenAfter = time.Minute

// move is a lease on its way to another informer.
type move struct{ from, to *informer }

// handOverLocked finds another informer for every rider. The pool's lock is
// held; begin does the rest without it.
func (p *Pool) handOverLocked(i *informer) []move {
	if p.mu.closed {
		return nil
	}
	var moves []move
	for l := range i.holders.leases {
		key := l.Key()
		if key == i.key || l.next != nil {
			continue
		}
		to := p.findLocked(key, i)
		if to == nil {
			to = p.startLocked(key)
		}
		l.next = to
		to.holders.heirs[l] = struct{}{}
		to.holders.moving.Add(1)
		i.holders.moving.Add(1)
		moves = append(moves, move{from: i, to: to})
	}

	return moves
}

// begin copies the leases' indexes to the new informers, and moves the leases
// whose new informer has synced already.
func (p *Pool) begin(moves []move) {
	for _, m := range moves {
		m.to.copyIndexes(m.from)
		p.takeOver(m.to)
	}
}

// successor returns the informer that a lease is on its way to, or nil.
func (p *Pool) successor(l *Lease) *informer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.next
}

// unhandLocked cancels the move of a lease. It returns the informer that is no
// longer needed, if any, removed from the pool.
func (p *Pool) unhandLocked(l *Lease) []*informer {
	to := l.next
	if to == nil {
		return nil
	}
	l.next = nil
	delete(to.holders.heirs, l)
	to.holders.moving.Add(-1)
	l.informer().holders.moving.Add(-1)

	return p.unlinkUnusedLocked(to)
}

// forsake hands over the riders of an informer that was refused, or that has
// been degraded for long: informers of their own may be allowed, or may work.
func (p *Pool) forsake(i *informer, err error) {
	if !permanent(err) && !i.degradedFor(forsakenAfter) {
		return
	}
	p.mu.Lock()
	var moves []move
	if p.mu.informers[i.key] == i {
		moves = p.handOverLocked(i)
	}
	p.mu.Unlock()

	p.begin(moves)
}

// takeOver moves the waiting leases to an informer that has made progress, and
// cancels the moves away from it if there is no reason for them any more.
func (p *Pool) takeOver(i *informer) {
	if i.holders.moving.Load() == 0 {
		return
	}
	var unused []*informer
	ask := false
	p.mu.Lock()
	for l := range i.holders.heirs {
		from := l.informer()
		if from.holders.owned(from.key) && from.healthy() {
			unused = append(unused, p.unhandLocked(l)...)
		} else if moved, lacks := l.moveLocked(i); moved {
			ask = ask || lacks
			unused = append(unused, p.unlinkUnusedLocked(from)...)
		}
	}

	if i.holders.owned(i.key) && i.healthy() {
		for l := range i.holders.leases {
			unused = append(unused, p.unhandLocked(l)...)
		}
	}
	p.mu.Unlock()

	p.stopUnused(unused)
	if ask {
		p.auditSeen(i)
	}
}

// moveLocked makes i serve the lease unless i is behind the informer that
// serves it now. It also reports whether a seen object that the lease takes
// along requires an audit of i. The pool's lock is held, so the locks of two
// informers are never taken in different orders.
func (l *Lease) moveLocked(i *informer) (moved, ask bool) {
	from := l.at.Load()
	to := &place{key: from.key, informer: i, selector: newSelector(i.key, from.key)}
	from.informer.mu.Lock()
	defer from.informer.mu.Unlock()

	i.mu.Lock()
	defer i.mu.Unlock()

	if !i.mu.synced || to.behindLocked(from) {
		return false, false
	}
	l.next = nil
	delete(i.holders.heirs, l)
	i.holders.moving.Add(-1)
	from.informer.holders.moving.Add(-1)

	return true, l.replaceLocked(from, to)
}

// replaceLocked replaces the lease's place and moves its listeners along. It
// reports whether a seen object requires an audit of the new informer. The
// locks of both informers and of the pool are held.
func (l *Lease) replaceLocked(from, to *place) (ask bool) {
	delete(from.informer.holders.leases, l)
	to.informer.holders.leases[l] = struct{}{}
	var shown []*Object
	if from.informer.mu.synced {
		shown = from.selectedLocked()
	}
	listeners := from.informer.mu.listeners[:0:0]
	for _, ln := range from.informer.mu.listeners {
		if ln.lease != l {
			listeners = append(listeners, ln)
			continue
		}
		if shown != nil {
			ln.inherited = ln.delivered(shown)
		}
		ln.filter.Lease = to.selector
		to.informer.mu.listeners = append(to.informer.mu.listeners, ln)
		if to.informer.mu.synced {
			ln.catchUpLocked(to.informer.mu.store)
		}
	}

	from.informer.mu.listeners = listeners
	ask = to.informer.takeSeenLocked(from.informer, to.key)
	l.at.Store(to)
	from.informer.mu.waiters.wake()
	if !l.pool.mu.closed {
		l.pool.notices.add(l.pool, to.key, true)
	}

	return ask
}

// selectedLocked returns the objects of the place's informer that pass its
// selector.
func (p *place) selectedLocked() []*Object {
	out := []*Object{}
	for o := range p.informer.mu.store.In(p.selector.Namespace) {
		if p.selector.Empty() || p.selector.Match(o) {
			out = append(out, o)
		}
	}
	return out
}

// behindLocked reports whether the place lacks a change that the other one has
// shown. Only versions of one history can be compared: between histories, the
// newer list is right.
func (p *place) behindLocked(other *place) bool {
	a, b := p.informer, other.informer
	if !b.mu.synced || a.mu.epoch != b.mu.epoch || b.mu.doubt != nil {
		return false
	}
	for _, o := range other.selectedLocked() {
		if a.mu.refused.Has(store.ViewOf(o)) {
			return true // it refused the object: handlers must not receive a delete
		}
	}
	if !ordering.Behind(a.mu.rv, b.mu.rv) {
		return false
	}
	for _, o := range other.selectedLocked() {
		n := a.mu.store.Of(o)
		if n == nil && !atMost(o, a.mu.rv) || n != nil && ordering.Older(n, o) {
			return true
		}
	}

	for _, n := range p.selectedLocked() {
		o := b.mu.store.Of(n)
		if (o == nil || !other.selector.Empty() && !other.selector.Match(o)) && atMost(n, b.mu.rv) {
			return true // it was deleted, or left the selection, since
		}
	}

	return false
}

// atMost reports whether an object's state is no later than a version.
func atMost(o *Object, rv string) bool {
	return ordering.Reaches(rv, o.GetResourceVersion())
}

// Retarget moves the lease to another key of its cluster, for example when a
// kind turns out to be served by another resource. It returns at once. Until
// the informer of that key has listed, reads fail with [ErrNotSynced]; then
// handlers receive the difference as deletes, additions and updates. The error
// is a [*KeyError], [ErrReleased] or [ErrClosed].
func (l *Lease) Retarget(ctx context.Context, key Key) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	key, err := key.Canonical()
	if err != nil {
		return err
	}
	if l.Key() == key {
		return nil
	}
	p := l.pool
	p.mu.Lock()
	if err := l.gone(); err != nil {
		p.mu.Unlock()
		return fmt.Errorf("%s: %w", key, err)
	}
	unused := p.unhandLocked(l)
	from := l.at.Load()
	i := p.findLocked(key, nil)
	if i == nil {
		i = p.startLocked(key)
	}
	i.holders.stay()
	ask := l.retargetLocked(from, &place{key: key, informer: i, selector: newSelector(i.key, key)})
	var moves []move
	if !from.informer.holders.owned(from.informer.key) {
		unused = append(unused, p.unlinkUnusedLocked(from.informer)...)
		moves = p.handOverLocked(from.informer)
	}
	p.mu.Unlock()

	i.copyIndexes(from.informer)
	p.stopUnused(unused)
	p.begin(moves)
	if ask {
		p.auditSeen(i)
	}

	return nil
}

// retargetLocked moves the lease even if the new informer is behind. It reports
// whether a seen object requires an audit of that one. The pool's lock is held.
func (l *Lease) retargetLocked(from, to *place) (ask bool) {
	if from.informer == to.informer {
		from.informer.mu.Lock()
		defer from.informer.mu.Unlock()
		return l.replaceLocked(from, to)
	}

	from.informer.mu.Lock()
	defer from.informer.mu.Unlock()

	to.informer.mu.Lock()
	defer to.informer.mu.Unlock()

	return l.replaceLocked(from, to)
}
