// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Totals returns the totals of all clusters together.
func (p *Pool) Totals() Totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.records.totals()
}

// ClusterTotals returns the totals of one cluster; zero if it has had no
// informer, or none since it was forgotten.
func (p *Pool) ClusterTotals(cluster types.NamespacedName) Totals {
	p.mu.Lock()
	c := p.mu.records.of[cluster]
	p.mu.Unlock()

	if c == nil {
		return Totals{}
	}
	return c.counts.totals()
}

// Forget drops the pool's records of a cluster once the last of its informers
// has ended. Their work then counts only in the totals of the pool. An informer
// acquired later starts from zero. Call it for removed clusters, whose records
// would otherwise accumulate.
func (p *Pool) Forget(cluster types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.mu.records.of[cluster]; c != nil {
		c.leaving = true
		p.mu.records.fold(cluster, c)
	}
}

// Summary summarizes the running informers of one cluster, lingering ones
// included.
type Summary struct {
	// Informers is their number, Synced the number of those that serve reads,
	// and Leases the number of leases held on them.
	Informers, Synced, Leases int
	// Refuted is the number of those that [Lease.Trust] distrusts whatever the
	// time, since the server refuses them, for example. Synced leaves them out.
	// Refutation is the cause of the first of them, by key.
	Refuted    int
	Refutation error
	// Objects is the number of cached objects, and Bytes the approximate memory
	// they take. SeenBytes is the part of Bytes that does not count against the
	// cluster's budget: the memory of objects that only reads have shown.
	Objects   int
	Bytes     int64
	SeenBytes int64
	// LastEvent is when the last change of an object arrived on any of them.
	LastEvent time.Time
	// OldestSeen is the earliest last sign of life among those that have synced,
	// refuted ones included; zero if none has.
	OldestSeen time.Time
	// Totals are those of the cluster.
	Totals Totals
}

// ClusterSummary summarizes the informers of one cluster. It costs less than
// ClusterStatus, and waits only for locks that are held briefly.
func (p *Pool) ClusterSummary(cluster types.NamespacedName) Summary {
	return p.summarize(cluster, func(*informer) bool { return true })
}

// ClusterSummaryIn is ClusterSummary, except that Synced counts only those that
// have listed in the given epoch, and that [Lease.Trust] trusts with that grace.
func (p *Pool) ClusterSummaryIn(cluster types.NamespacedName, epoch Epoch, grace time.Duration) Summary {
	return p.summarize(cluster, func(i *informer) bool {
		return i.mu.epoch == epoch && i.distrustLocked(grace) == nil
	})
}

// summarize summarizes the informers of one cluster. counts reports whether one
// that has synced is to be counted as such; it is called with the informer's
// lock held.
func (p *Pool) summarize(cluster types.NamespacedName, counts func(*informer) bool) Summary {
	var buffer [32]*informer // most clusters have no more, and need no allocation then
	informers := buffer[:0]
	var s Summary
	p.mu.Lock()
	c := p.mu.records.of[cluster]
	if c == nil {
		p.mu.Unlock()
		return s
	}
	for i := range c.informers {
		informers = append(informers, i)
		s.Leases += len(i.holders.leases)
	}
	p.mu.Unlock()

	s.Informers, s.Totals = len(informers), c.counts.totals()
	var lastEvent int64
	var first *informer // of the refuted ones
	// Without the pool's lock: an informer that replaces its store holds its
	// own for a while.
	for _, i := range informers {
		lastEvent = max(lastEvent, i.signs.event.Load())
		i.mu.RLock()
		synced, proof, refuted := i.mu.synced, i.provenLocked(), i.refutedLocked()
		counted := synced && refuted == nil && counts(i)
		s.Objects += i.mu.store.Count
		s.Bytes += i.sizeLocked()
		s.SeenBytes += i.mu.seen.bytes
		i.mu.RUnlock()

		switch {
		case refuted != nil:
			s.Refuted++
			if first == nil || compareKeys(i.key, first.key) < 0 {
				first, s.Refutation = i, refuted
			}
		case counted:
			s.Synced++
		}
		if synced && (s.OldestSeen.IsZero() || proof.Before(s.OldestSeen)) {
			s.OldestSeen = proof
		}
	}

	s.LastEvent = p.clock.At(lastEvent)

	return s
}
