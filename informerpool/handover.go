// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/informerpool/internal/backoff"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// A lease may be served by a wider informer than its own key selects. Such an
// informer has two kinds of leases: its own, and riders. Riders stay only while
// it also has leases of its own and the server lets it run. After that each
// rider gets an informer of its own, which continues the wider one:
//
//	wider    list ── v1 ── v2 ── v3            released, or refused
//	                              │ the objects that the rider selects
//	rider's                       └── watch from v3 ── v4 ──
//
// The rider is moved at once, and nothing is listed. The new informer lists
// only if the objects are not known to be those of one version, or if the
// server does not know that version any more.

// forsakenAfter is how long an informer may be degraded, although its server
// answers, before narrower leases stop relying on it.
const forsakenAfter = time.Minute

// handOver moves leases from an informer to others. The pool's lock is held;
// finish does the rest without it.
type handOver struct {
	pool   *Pool
	from   *informer
	to     []*informer // started for the riders
	asked  []*informer // those that lack an object which a lease's user was shown
	unused []*informer // removed from the pool
}

// retireLocked ends an informer that has no lease of its own any more.
func (h *handOver) retireLocked() {
	h.ridersLocked()
	h.pool.unlinkLocked(h.from)
	h.unused = append(h.unused, h.from)
}

// ridersLocked moves every rider to another informer.
func (h *handOver) ridersLocked() {
	if h.pool.mu.closed {
		return
	}
	for l := range h.from.holders.leases {
		if l.Key() != h.from.key {
			h.moveLocked(l)
		}
	}
}

// finish copies the indexes that were being filled, and stops the informers
// that nothing uses any more.
func (h *handOver) finish() {
	for _, to := range h.to {
		h.pool.options.Logger.V(1).Info("Informer continues a wider one",
			"informer", to.key.String(), "wider", h.from.key.String())
		to.indexes().copyFrom(h.from.indexes())
		to.siblings.relistEarlier(to, false) // a later history may have been entered before it was a member
	}
	for _, i := range h.asked {
		h.pool.audits.seen(i)
	}
	for _, i := range h.unused {
		h.pool.options.Logger.V(1).Info("Informer stopped", "informer", i.key.String())
		i.stop(ErrReleased)
	}
}

// forsake hands over the riders of an informer whose attempt failed, if it was
// refused, or has been degraded for long: informers of their own may be
// allowed, or may work. While the whole cluster is away they would not.
// answers reports that the server has accepted a request of the attempt.
func (p *Pool) forsake(i *informer, err error, answers bool) {
	now := i.relation()
	degraded := now.state == StateDegraded && time.Since(now.since) > forsakenAfter
	alone := degraded && (answers || slices.ContainsFunc(p.of(i.key.Cluster), func(other *informer) bool {
		now := other.relation()
		return now.follows()
	}))
	if !permanent(err) && !alone {
		return
	}
	h := handOver{pool: p, from: i}
	p.mu.Lock()
	if p.mu.informers[i.key] == i {
		h.ridersLocked()
	}
	p.mu.Unlock()

	h.finish()
}

// moveLocked moves a rider to an informer that covers it and has shown all that
// the rider's has. If there is none, a new one continues the rider's, also for
// the leases of the informer of that key that is behind. The pool's lock is
// held, so the locks of two informers are never taken in different orders.
func (h *handOver) moveLocked(l *Lease) {
	from := l.at.Load()
	from.informer.mu.Lock()
	defer from.informer.mu.Unlock()

	if to := h.pool.findLocked(from.key, from.informer); to != nil && from.reachedLocked(to) {
		h.placeLocked(l, to)
		return
	}
	behind := h.pool.mu.informers[from.key]
	if behind != nil {
		h.pool.unlinkLocked(behind)
		behind.holders.stay()
		h.unused = append(h.unused, behind)
	}
	to := h.continueLocked(from)
	h.to = append(h.to, to)
	h.placeLocked(l, to)
	if behind == nil {
		return
	}

	behind.mu.Lock()
	defer behind.mu.Unlock()
	for other := range behind.holders.leases {
		h.placeLocked(other, to)
	}
}

// placeLocked makes an informer serve a lease. The lock of the one that serves
// it now is held.
func (h *handOver) placeLocked(l *Lease, by *informer) {
	by.mu.Lock()
	defer by.mu.Unlock()
	h.replaceLocked(l, newPlace(l.Key(), by))
}

// reachedLocked reports whether another informer has shown all that the place's
// has shown. Only versions of one history can be compared, and one that has
// shown none may be behind. The lock of the place's informer is held.
func (p *place) reachedLocked(by *informer) bool {
	by.mu.RLock()
	defer by.mu.RUnlock()

	i := p.informer
	switch {
	case !i.mu.synced:
		return true
	case !by.mu.synced:
		return false
	case by.mu.epoch != i.mu.epoch || i.mu.doubt != nil:
		return true // the newer list is right
	case by.mu.history != i.mu.history:
		return by.mu.history > i.mu.history
	case ordering.Behind(by.mu.rv, i.mu.shownAt()),
		ordering.Versionless(by.mu.rv) && ordering.Ordered(i.mu.shownAt()):
		return false
	case by.mu.refused.Len() == 0 && by.mu.refused.All() == nil:
		return true
	}
	return !slices.ContainsFunc(p.selectedLocked(), func(o *Object) bool { // handlers must not receive a delete
		return by.mu.refused.Has(store.ViewOf(o)) && !i.mu.refused.Has(store.ViewOf(o))
	})
}

// continueLocked starts an informer for a rider's key that continues the
// rider's informer, whose lock is held.
func (h *handOver) continueLocked(from *place) *informer {
	p := h.pool
	if !from.informer.mu.synced {
		return p.startLocked(from.key)
	}
	r := newReflector(newInformer(p, from.key), backoff.Backoff{Limit: p.options.MaxBackoff})
	r.continues(from)
	if source, counts := p.options.Source.(interface{ continues(from, to Key) }); counts {
		source.continues(from.informer.key, from.key)
	}
	p.runLocked(&r)
	p.audits.likeLocked(r.informer, from.informer)

	return r.informer
}

// continues makes the reflector of a new informer, which is not running yet,
// continue another informer: with the objects that a place selects, at the same
// version, and as much to be trusted. The lock of the other one is held.
func (r *reflector) continues(from *place) {
	i, other := r.informer, &from.informer.mu
	objects := from.selectedLocked()
	i.mu.store = other.store.Part(objects)
	i.mu.refused, i.mu.synced, i.mu.unserved = other.refused.Clone(), true, other.unserved
	i.mu.position, i.mu.trust = other.position, other.trust
	i.mu.dubious = other.dubious || other.attempt.finding != nil
	if i.mu.trial = nil; other.trial.pending() {
		i.mu.standing = other.trial.before
	}
	followed := i.mu.follows() && !i.mu.polling
	signs := &from.informer.signs
	i.signs.event.Store(signs.event.Load())
	i.signs.proof.Store(signs.proof.Load())
	i.signs.expired.Store(signs.expired.Load())
	i.mu.detach(i.pool.clock.At(signs.proof.Load()), i.pool.options.StallTimeout)
	i.published.listed.Store(from.informer.published.listed.Load())
	i.published.definition.Store(from.informer.published.definition.Load())
	i.chargeLocked()
	i.changedLocked()
	i.siblings.inherit(i, from.informer)

	r.server.epoch = i.mu.epoch
	r.at.replace, r.at.over = i.mu.doubt != nil, i.mu.era()
	if ordering.Ordered(i.mu.rv) {
		r.at.reach = i.mu.rv
	}
	if from.informer.exactLocked() && !i.mu.polling {
		r.at.resume = i.mu.rv
	}
	if len(objects) > 0 {
		r.kind.packed = objects[0].Kind()
	}
	if apierrors.IsNotFound(i.mu.verdict.refusal) {
		r.server.missed = time.Now()
	}
	// If the server does not know the version any more, nothing has failed.
	r.session.quieted, r.session.proven = true, followed
	r.failures.away = !followed
}

// replaceLocked replaces the place of a lease and moves its listeners along.
// The locks of both informers and of the pool are held.
func (h *handOver) replaceLocked(l *Lease, to *place) {
	from := l.at.Load()
	delete(from.informer.holders.leases, l)
	to.informer.holders.leases[l] = struct{}{}
	var shown []*Object
	listeners := from.informer.mu.listeners[:0:0]
	for _, ln := range from.informer.mu.listeners {
		if ln.lease != l {
			listeners = append(listeners, ln)
			continue
		}
		if from.informer.mu.synced {
			if shown == nil {
				shown = from.selectedLocked()
			}
			ln.inherited = ln.delivered(shown)
		}
		ln.filter.Lease = to.selector
		to.informer.mu.listeners = append(to.informer.mu.listeners, ln)
		if to.informer.mu.synced {
			ln.catchUpLocked(to.informer.mu.store)
		}
	}

	from.informer.mu.listeners = listeners
	if to.informer.mu.seen.take(from.informer, to.key) {
		h.asked = append(h.asked, to.informer)
	}
	l.at.Store(to)
	from.informer.mu.waiters.wake()
	if !h.pool.mu.closed {
		h.pool.notices.add(to.key, true)
	}
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
	h := handOver{pool: p, from: l.at.informer()}
	i := p.findLocked(key, nil)
	if i == nil {
		i = p.startLocked(key)
	}
	i.holders.stay()
	h.retargetLocked(l, newPlace(key, i))
	if !h.from.holders.owned(h.from.key) && h.from.holders.linger == nil {
		h.retireLocked()
	}
	p.mu.Unlock()

	i.indexes().copyFrom(h.from.indexes())
	h.finish()

	return nil
}

// retargetLocked moves a lease even if the new informer is behind.
func (h *handOver) retargetLocked(l *Lease, to *place) {
	h.from.mu.Lock()
	defer h.from.mu.Unlock()
	if to.informer != h.from {
		to.informer.mu.Lock()
		defer to.informer.mu.Unlock()
	}
	h.replaceLocked(l, to)
}
