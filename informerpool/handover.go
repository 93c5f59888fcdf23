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

// handOver is what riders got other informers for, and what is left to do
// without the pool's lock.
type handOver struct {
	pool   *Pool
	from   *informer
	to     []*informer // started for the riders
	asked  []*informer // those that lack an object which a rider's user was shown
	unused []*informer // removed from the pool
}

// retireLocked ends an informer that has no lease of its own any more.
func (p *Pool) retireLocked(i *informer) handOver {
	h := p.handOverLocked(i)
	p.unlinkLocked(i)
	h.unused = append(h.unused, i)

	return h
}

// handOverLocked moves every rider to another informer. The pool's lock is
// held; finish does the rest without it.
func (p *Pool) handOverLocked(i *informer) handOver {
	h := handOver{pool: p, from: i}
	if p.mu.closed {
		return h
	}
	for l := range i.holders.leases {
		if l.Key() != i.key {
			h.moveLocked(l)
		}
	}
	return h
}

// finish copies the indexes that were being filled, and stops the informers
// that nothing uses any more.
func (h *handOver) finish() {
	for _, to := range h.to {
		h.pool.options.Logger.V(1).Info("Informer continues a wider one",
			"informer", to.key.String(), "wider", h.from.key.String())
		to.copyIndexes(h.from)
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
	p.mu.Lock()
	var h handOver
	if p.mu.informers[i.key] == i {
		h = p.handOverLocked(i)
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

	if to := h.pool.findLocked(from.key, from.informer); to != nil && to.reachesLocked(from) {
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

	from := l.at.Load()
	if l.replaceLocked(from, &place{key: from.key, informer: by, selector: newSelector(by.key, from.key)}) {
		h.asked = append(h.asked, by)
	}
}

// reachesLocked reports whether the informer has shown all that a rider's has
// shown. Only versions of one history can be compared, and one that has shown
// none may be behind. The lock of the rider's informer is held.
func (i *informer) reachesLocked(from *place) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()

	other := from.informer
	switch {
	case !other.mu.synced:
		return true
	case !i.mu.synced:
		return false
	case i.mu.epoch != other.mu.epoch || other.mu.doubt != nil:
		return true // the newer list is right
	case i.mu.history != other.mu.history:
		return i.mu.history > other.mu.history
	case ordering.Behind(i.mu.rv, other.mu.shownAt()),
		ordering.Versionless(i.mu.rv) && ordering.Ordered(other.mu.shownAt()):
		return false
	case i.mu.refused.Len() == 0 && i.mu.refused.All() == nil:
		return true
	}
	return !slices.ContainsFunc(from.selectedLocked(), func(o *Object) bool { // handlers must not receive a delete
		return i.mu.refused.Has(store.ViewOf(o)) && !other.mu.refused.Has(store.ViewOf(o))
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

// replaceLocked replaces the lease's place and moves its listeners along. It
// reports whether a seen object requires an audit of the new informer. The
// locks of both informers and of the pool are held.
func (l *Lease) replaceLocked(from, to *place) (ask bool) {
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
	ask = to.informer.mu.seen.take(from.informer, to.key)
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
	all := p.informer.mu.store
	if name, one := p.selector.Name(); one && (p.key.Namespace != "" || all.CountIn("") == all.Count) {
		if o := all.Get(p.key.Namespace, name); o != nil && p.selector.Match(o) {
			out = append(out, o)
		}
		return out
	}
	for o := range all.In(p.selector.Namespace) {
		if p.selector.Empty() || p.selector.Match(o) {
			out = append(out, o)
		}
	}
	return out
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
	from := l.at.Load()
	i := p.findLocked(key, nil)
	if i == nil {
		i = p.startLocked(key)
	}
	i.holders.stay()
	ask := l.retargetLocked(from, &place{key: key, informer: i, selector: newSelector(i.key, key)})
	var h handOver
	if was := from.informer; !was.holders.owned(was.key) && was.holders.linger == nil {
		h = p.retireLocked(was)
	}
	p.mu.Unlock()

	i.copyIndexes(from.informer)
	h.finish()
	if ask {
		p.audits.seen(i)
	}

	return nil
}

// retargetLocked moves the lease even if the new informer is behind. It reports
// whether a seen object requires an audit of that one. The pool's lock is held.
func (l *Lease) retargetLocked(from, to *place) (ask bool) {
	from.informer.mu.Lock()
	defer from.informer.mu.Unlock()
	if to.informer != from.informer {
		to.informer.mu.Lock()
		defer to.informer.mu.Unlock()
	}
	return l.replaceLocked(from, to)
}
