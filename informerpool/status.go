// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Status is a snapshot of one informer.
type Status struct {
	Key   Key
	State State
	// Since is when the state began.
	Since time.Time
	// Synced tells whether reads are answered.
	Synced bool
	// ResourceVersion is how far the cache has come, and Epoch the history it belongs to.
	ResourceVersion string
	Epoch           Epoch
	// LastEvent is when an object's change last arrived, LastProof when anything did, bookmarks included.
	LastEvent, LastProof time.Time
	// LastError is what interrupted the informer; nil once it got further.
	LastError error
	// Objects is the number of cached objects, and Bytes about what they cost in memory.
	Objects int
	Bytes   int64
	// Leases is the number of leases held, and Owners the names they were acquired for, sorted.
	Leases int
	Owners []string
	// Lists and Watches count requests: a streamed list is a watch. Resumes counts watches that continued an earlier one,
	// Resyncs lists after the first, Stalls streams cut because nothing came, Rejected objects refused as broken.
	Lists, Watches, Resumes, Resyncs, Stalls, Rejected int64
}

// Status returns the lease's informer's status; Key is that of the informer, which may cover more than the lease's.
func (l *Lease) Status() Status { return l.entry.pool.status(l.entry) }

// Status returns the status of all informers, sorted by their keys' text. It waits for nothing but short locks.
func (p *Pool) Status() []Status {
	p.mu.Lock()
	entries := make([]*entry, 0, len(p.entries))
	for _, e := range p.entries {
		entries = append(entries, e)
	}
	p.mu.Unlock()
	return p.statuses(entries)
}

// ClusterStatus returns the status of one cluster's informers, sorted by their keys' text.
func (p *Pool) ClusterStatus(cluster types.NamespacedName) []Status {
	return p.statuses(p.of(cluster))
}

func (p *Pool) statuses(entries []*entry) []Status {
	out := make([]Status, 0, len(entries))
	for _, e := range entries {
		out = append(out, p.status(e))
	}
	slices.SortFunc(out, func(a, b Status) int { return compareKeys(a.Key, b.Key) })
	return out
}

func (p *Pool) status(e *entry) Status {
	s := Status{
		Key: e.key, LastEvent: unixTime(e.lastEvent.Load()), LastProof: unixTime(e.lastProof.Load()),
		Lists: e.counters.lists.load(), Watches: e.counters.watches.load(), Resumes: e.counters.resumes.load(),
		Resyncs: e.counters.resyncs.load(), Stalls: e.counters.stalls.load(), Rejected: e.counters.rejected.load(),
	}
	p.mu.Lock()
	s.Leases = len(e.leases)
	for l := range e.leases {
		if l.owner != "" {
			s.Owners = append(s.Owners, l.owner)
		}
	}
	p.mu.Unlock()
	slices.Sort(s.Owners)
	s.Owners = slices.Compact(s.Owners)
	e.mu.RLock()
	defer e.mu.RUnlock()
	s.State, s.Since, s.Synced, s.ResourceVersion, s.Epoch = e.state, e.since, e.synced, e.rv, e.epoch
	s.LastError, s.Objects, s.Bytes = e.lastErr, e.store.count, e.store.bytes
	return s
}

func unixTime(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

func compareKeys(a, b Key) int { return strings.Compare(a.String(), b.String()) }
