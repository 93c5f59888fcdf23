// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/fleetcache/fleetcache/informerpool/internal/loudness"
	"github.com/fleetcache/fleetcache/informerpool/internal/width"
)

// records are what the pool keeps about its clusters. The pool's lock protects
// them.
type records struct {
	of        map[types.NamespacedName]*clusterStats // kept until Forget
	forgotten counts                                 // of clusters that were forgotten
}

// open returns the records of a cluster, which gets an informer.
func (r *records) open(cluster types.NamespacedName) *clusterStats {
	c := r.of[cluster]
	if c == nil {
		c = &clusterStats{informers: map[*informer]struct{}{}, siblings: map[schema.GroupResource]*siblings{}}
		c.streamAgain()
		r.of[cluster] = c
	}
	c.leaving = false
	return c
}

// fold drops the records of a cluster that is to be forgotten and has no
// informers. An informer that is still stopping may count a little more, which
// is lost.
func (r *records) fold(cluster types.NamespacedName, c *clusterStats) {
	if c.leaving && len(c.informers) == 0 {
		r.forgotten.add(&c.counts)
		delete(r.of, cluster)
	}
}

// totals returns the totals of all clusters together.
func (r *records) totals() Totals {
	var sum counts
	sum.add(&r.forgotten)
	for _, c := range r.of {
		sum.add(&c.counts)
	}
	return sum.totals()
}

// clusterStats is what one cluster's informers share.
type clusterStats struct {
	bytes       atomic.Int64           // memory they hold
	seenBytes   atomic.Int64           // memory for objects that users saw in other ways
	informers   map[*informer]struct{} // those in the pool; protected by its lock
	refused     atomic.Int64           // those whose last attempt was forbidden
	leaving     bool                   // to be closed with its last informer; protected by the pool's lock
	counts      counts
	paged       atomic.Pointer[cache.Expiring]     // the groups whose server does not stream lists
	definitions definitions                        // that its informers have asked for
	causes      loudness.Shared                    // of what interrupts them
	width       width.Gate                         // of their lists
	siblings    map[schema.GroupResource]*siblings // its informers by resource; protected by the pool's lock
	testimony   testimony                          // of the storage that Kubernetes' own resources share
}

// reserve adds to the memory that the informers hold, unless it would exceed
// the limit then.
func (c *clusterStats) reserve(growth, limit int64) bool {
	for {
		taken := c.bytes.Load()
		if taken+growth > limit {
			return false
		}
		if c.bytes.CompareAndSwap(taken, taken+growth) {
			return true
		}
	}
}

// streamAgain has lists of all groups streamed: another server may answer now.
func (c *clusterStats) streamAgain() { c.paged.Store(cache.NewExpiring()) }

// pages reports whether lists of a group are paged, since its server was lately
// found not to stream them: a group may have a server of its own.
func (c *clusterStats) pages(group string) bool {
	_, found := c.paged.Load().Get(group)
	return found
}

// siblingsLocked returns the informers of a resource. The pool's lock is held.
func (c *clusterStats) siblingsLocked(resource schema.GroupResource) *siblings {
	if c.siblings[resource] == nil {
		c.siblings[resource] = newSiblings()
	}
	return c.siblings[resource]
}

// Totals count what the informers of a cluster, or of the pool, have done since
// the pool was created, including informers that have ended. They never
// decrease. Fields that [Status] has, too, have the same meaning.
type Totals struct {
	Lists, Watches, Resumes, Resyncs, Stalls, Rejected, Rollbacks int64

	// Restores counts informers that began with a state that Options.Snapshots
	// had kept, instead of a list.
	Restores int64

	// Audits counts audits that found no difference, AuditDifferences those
	// that found the cache to differ from the server, and AuditFailures those
	// that could not be completed.
	Audits, AuditDifferences, AuditFailures int64
}

// counted is what is counted, for an informer and for its cluster.
type counted int

const (
	countLists counted = iota
	countWatches
	countResumes
	countRestores
	countResyncs
	countStalls
	countRejected
	countRollbacks
	countAudits
	countAuditDifferences
	countAuditFailures
	allCounted
)

// counts are the numbers of what was counted.
type counts [allCounted]atomic.Int64

func (c *counts) add(other *counts) {
	for what := range other {
		c[what].Add(other[what].Load())
	}
}

// totals returns the counts by name.
func (c *counts) totals() Totals {
	return Totals{
		Lists:            c[countLists].Load(),
		Watches:          c[countWatches].Load(),
		Resumes:          c[countResumes].Load(),
		Restores:         c[countRestores].Load(),
		Resyncs:          c[countResyncs].Load(),
		Stalls:           c[countStalls].Load(),
		Rejected:         c[countRejected].Load(),
		Rollbacks:        c[countRollbacks].Load(),
		Audits:           c[countAudits].Load(),
		AuditDifferences: c[countAuditDifferences].Load(),
		AuditFailures:    c[countAuditFailures].Load(),
	}
}
