// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Totals count what the informers of a cluster, or of the pool, have done since
// the pool was created, including informers that have ended. They never
// decrease. Fields that [Status] has, too, have the same meaning.
type Totals struct {
	Lists, Watches, Resumes, Resyncs, Stalls, Rejected, Rollbacks int64

	// Audits counts audits that found no difference, AuditDifferences those
	// that found the cache to differ from the server, and AuditFailures those
	// that could not be completed.
	Audits, AuditDifferences, AuditFailures int64
}

func (t *Totals) add(other Totals) {
	t.Lists += other.Lists
	t.Watches += other.Watches
	t.Resumes += other.Resumes
	t.Resyncs += other.Resyncs
	t.Stalls += other.Stalls
	t.Rejected += other.Rejected
	t.Rollbacks += other.Rollbacks
	t.Audits += other.Audits
	t.AuditDifferences += other.AuditDifferences
	t.AuditFailures += other.AuditFailures
}

// Totals returns the totals of all clusters together.
func (p *Pool) Totals() Totals {
	p.mu.Lock()
	defer p.mu.Unlock()

	sum := p.past
	for _, a := range p.accounts {
		sum.add(a.totals())
	}
	return sum
}

// ClusterTotals returns the totals of one cluster; zero if it has had no
// informer, or none since it was forgotten.
func (p *Pool) ClusterTotals(cluster types.NamespacedName) Totals {
	p.mu.Lock()
	a := p.accounts[cluster]
	p.mu.Unlock()

	if a == nil {
		return Totals{}
	}
	return a.totals()
}

// Forget drops the pool's records of a cluster once the last of its informers
// has ended. Their work then counts only in the totals of the pool. An informer
// acquired later starts from zero. Call it for removed clusters, whose records
// would otherwise accumulate.
func (p *Pool) Forget(cluster types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.accounts[cluster]; a != nil {
		a.leaving = true
		p.settleLocked(cluster, a)
	}
}

// settleLocked closes the account of a cluster that is to be forgotten and has
// no informers. An informer that is still stopping may count a little more,
// which is lost.
func (p *Pool) settleLocked(cluster types.NamespacedName, a *account) {
	if a.leaving && len(a.informers) == 0 {
		p.past.add(a.totals())
		delete(p.accounts, cluster)
	}
}

// Summary summarizes the running informers of one cluster, lingering ones
// included.
type Summary struct {
	// Informers is their number, Synced the number of those that serve reads,
	// and Leases the number of leases held on them.
	Informers, Synced, Leases int
	// Objects is the number of cached objects, and Bytes the approximate memory
	// they take. SeenBytes is the part of Bytes that does not count against the
	// cluster's budget: the memory of objects that only reads have shown.
	Objects   int
	Bytes     int64
	SeenBytes int64
	// LastEvent is when the last change of an object arrived on any of them.
	LastEvent time.Time
	// OldestProof is the earliest last sign of life among the synced ones; zero
	// if none is synced.
	OldestProof time.Time
	// Totals are those of the cluster.
	Totals Totals
}

// ClusterSummary summarizes the informers of one cluster. It costs less than
// ClusterStatus, and waits only for locks that are held briefly.
func (p *Pool) ClusterSummary(cluster types.NamespacedName) Summary {
	var buffer [32]*informer // most clusters have no more, and need no allocation then
	informers := buffer[:0]
	var s Summary
	p.mu.Lock()
	a := p.accounts[cluster]
	if a != nil {
		for i := range a.informers {
			informers = append(informers, i)
			s.Leases += len(i.holders.leases)
		}
	}

	p.mu.Unlock()

	if a == nil {
		return s
	}
	s.Informers, s.Totals = len(informers), a.totals()
	var lastEvent int64
	for _, i := range informers { // without the pool's lock: an informer that replaces its store holds its own for a while
		lastEvent = max(lastEvent, i.signs.event.Load())
		i.mu.RLock()
		synced, proof := i.mu.synced, i.provenLocked()
		s.Objects += i.mu.store.count
		s.Bytes += i.sizeLocked()
		s.SeenBytes += i.mu.seen.bytes
		i.mu.RUnlock()

		if !synced {
			continue
		}
		s.Synced++
		if s.Synced == 1 || proof.Before(s.OldestProof) {
			s.OldestProof = proof
		}
	}

	s.LastEvent = p.clock.at(lastEvent)

	return s
}

// account holds the shared state of one cluster's informers.
type account struct {
	bytes     atomic.Int64           // memory they hold
	seen      atomic.Int64           // memory for objects that users saw in other ways
	informers map[*informer]struct{} // those in the pool; protected by its lock
	leaving   bool                   // to be closed with its last informer; protected by the pool's lock

	lists, watches, resumes, resyncs, stalls, rejected, rollbacks atomic.Int64
	audits, differences, unaudited                                atomic.Int64

	pagedGroups

	lineages lineages
}

func (a *account) totals() Totals {
	return Totals{
		Lists:            a.lists.Load(),
		Watches:          a.watches.Load(),
		Resumes:          a.resumes.Load(),
		Resyncs:          a.resyncs.Load(),
		Stalls:           a.stalls.Load(),
		Rejected:         a.rejected.Load(),
		Rollbacks:        a.rollbacks.Load(),
		Audits:           a.audits.Load(),
		AuditDifferences: a.differences.Load(),
		AuditFailures:    a.unaudited.Load(),
	}
}

// accountLocked returns the account of a cluster. The pool's lock is held.
func (p *Pool) accountLocked(cluster types.NamespacedName) *account {
	a := p.accounts[cluster]
	if a == nil {
		a = &account{informers: map[*informer]struct{}{}}
		p.accounts[cluster] = a
	}
	a.leaving = false
	return a
}

// counters are an informer's own, each paired with that of its cluster.
type counters struct {
	lists, watches, resumes, resyncs, stalls, rejected, rollbacks counter
	audits, differences, unaudited                                counter
}

func newCounters(a *account) counters {
	return counters{
		lists:       counter{total: &a.lists},
		watches:     counter{total: &a.watches},
		resumes:     counter{total: &a.resumes},
		resyncs:     counter{total: &a.resyncs},
		stalls:      counter{total: &a.stalls},
		rejected:    counter{total: &a.rejected},
		rollbacks:   counter{total: &a.rollbacks},
		audits:      counter{total: &a.audits},
		differences: counter{total: &a.differences},
		unaudited:   counter{total: &a.unaudited},
	}
}

// counter counts for an informer and for its cluster.
type counter struct {
	own   atomic.Int64
	total *atomic.Int64
}

func (c *counter) inc() {
	c.own.Add(1)
	c.total.Add(1)
}

func (c *counter) load() int64 { return c.own.Load() }
