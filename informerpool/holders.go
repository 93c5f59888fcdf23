// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"time"

	"github.com/fleetcache/fleetcache/informerpool/internal/backoff"
)

// holders decide how long an informer lives. The pool's lock protects them.
//
// INVARIANT: an informer in the pool's map has a lease on its own key, or
// lingers.
type holders struct {
	leases map[*Lease]struct{}
	linger *time.Timer
}

// idle reports whether no lease needs the informer.
func (h *holders) idle() bool { return len(h.leases) == 0 }

// stay ends the linger. A timer that has fired finds the new lease.
func (h *holders) stay() {
	if h.linger != nil {
		h.linger.Stop()
		h.linger = nil
	}
}

// owned reports whether any lease is held on exactly the informer's key.
func (h *holders) owned(key Key) bool {
	for l := range h.leases {
		if l.Key() == key {
			return true
		}
	}
	return false
}

// startLocked starts an informer. The caller has checked p.closed under the
// same lock, so Close waits for every informer there can be.
func (p *Pool) startLocked(key Key) *informer {
	r := newReflector(newInformer(p, key), backoff.Backoff{Limit: p.options.MaxBackoff})
	p.runLocked(&r)
	return r.informer
}

// runLocked starts the informer of a reflector.
func (p *Pool) runLocked(r *reflector) {
	i := r.informer
	p.mu.informers[i.key] = i
	p.audits.scheduleLocked(i)
	if p.options.PermissionInterval > 0 {
		p.rights.Join(&i.right.round)
	}
	i.cluster.informers[i] = struct{}{}
	i.siblings.add(i)
	p.running.Go(func() { i.run(r) })
}

// findLocked returns the informer for key, or one other than except that covers
// it. A covering informer must be held by leases of its own key, since it ends
// with those, and synced: one that cannot sync may be refused where one for the
// narrower key is not. Informers in the map are alive: they are
// removed from it before they are stopped.
func (p *Pool) findLocked(key Key, except *informer) *informer {
	if i := p.mu.informers[key]; i != nil {
		return i
	}
	for _, wider := range key.wider() {
		i := p.mu.informers[wider]
		if i != nil && i != except && i.holders.owned(i.key) && i.relation().state == StateSynced {
			return i
		}
	}
	return nil
}

// release takes back a lease. The last lease of the informer's own key starts
// the linger, or ends the informer if it is not to linger.
func (p *Pool) release(l *Lease, linger time.Duration) {
	p.mu.Lock()
	i := l.at.informer() // stays the same while the pool's lock is held
	delete(i.holders.leases, l)
	h := handOver{pool: p, from: i}
	switch {
	case i.holders.owned(i.key) || p.mu.informers[i.key] != i || !i.holders.idle() && i.holders.linger != nil:
	case linger > 0:
		var t *time.Timer
		t = time.AfterFunc(linger, func() { p.expire(i, &t) })
		i.holders.linger = t
	default:
		h.retireLocked()
	}
	p.mu.Unlock()

	h.finish()
}

// unused reports whether nothing uses an informer any more.
func (p *Pool) unused(i *informer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return i.holders.idle()
}

// expire ends an informer whose linger is over, unless it was acquired at the
// moment the timer fired.
func (p *Pool) expire(i *informer, timer **time.Timer) {
	h := handOver{pool: p, from: i}
	p.mu.Lock()
	// The timer of an earlier linger may get here after the informer was
	// acquired and released again: linger is another timer then. Reading
	// *timer under the lock orders the read after its assignment.
	if !i.holders.owned(i.key) && p.mu.informers[i.key] == i && i.holders.linger == *timer {
		i.holders.linger = nil
		h.retireLocked()
	}
	p.mu.Unlock()

	h.finish()
}

// unlinkLocked takes an informer out of the pool, so that it is not found any
// more.
func (p *Pool) unlinkLocked(i *informer) {
	delete(p.mu.informers, i.key)
	p.audits.due.Remove(&i.plan.next)
	p.rights.Leave(&i.right.round)
	delete(i.cluster.informers, i)
	i.siblings.remove(i)
	p.mu.records.fold(i.key.Cluster, i.cluster)
}
