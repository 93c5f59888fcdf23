// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Status is a snapshot of one informer.
type Status struct {
	Key   Key   `json:"key"`
	State State `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Synced reports whether the first list is complete, so that reads are
	// served. Whether they may be taken for the server's state is another
	// question, which [Lease.Trust] answers.
	Synced bool `json:"synced"`
	// ResourceVersion is the version the cache has reached, and Epoch the
	// history it belongs to.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Epoch           Epoch  `json:"epoch,omitempty"`
	// History numbers the resource's own histories within the epoch.
	// ResourceVersions can be compared if both Epoch and History are equal.
	History int `json:"history,omitempty"`
	// LastEvent is when the last change of an object arrived, LastSeen when
	// anything last did, bookmarks included. While the informer follows no
	// watch, other responses of the server do not count as proof.
	LastEvent time.Time `json:"lastEvent,omitzero"`
	LastSeen  time.Time `json:"lastSeen,omitzero"`
	// LastError is what interrupted the informer; nil once it makes progress
	// again. A refusal that stands, see [Lease.Trust], comes first, also if the
	// last attempt failed in another way. In JSON it is a string.
	LastError error `json:"-"`
	// Objects is the number of cached objects, and Bytes the approximate memory
	// they take. SeenBytes is the part of Bytes that does not count against the
	// cluster's budget: the memory of objects that only reads have shown.
	Objects   int   `json:"objects"`
	Bytes     int64 `json:"bytes"`
	SeenBytes int64 `json:"seenBytes,omitempty"`
	// Leases is the number of leases held, and Owners the names they were
	// acquired for, sorted.
	Leases int      `json:"leases"`
	Owners []string `json:"owners,omitempty"`
	// Lists and Watches count requests; a streamed list counts as a watch.
	// Resumes counts watches that continued an earlier one, Resyncs lists after
	// the first, Stalls streams that were cut because nothing arrived, Rejected
	// objects that were refused as broken.
	Lists    int64 `json:"lists"`
	Watches  int64 `json:"watches"`
	Resumes  int64 `json:"resumes"`
	Resyncs  int64 `json:"resyncs"`
	Stalls   int64 `json:"stalls"`
	Rejected int64 `json:"rejected"`
	// Unknown is the number of objects whose state is unknown because it was
	// refused. AllUnknown reports whether any object may be one of them.
	// LastRefusal is why the last one was refused.
	Unknown     int    `json:"unknown,omitempty"`
	AllUnknown  bool   `json:"allUnknown,omitempty"`
	LastRefusal string `json:"lastRefusal,omitempty"`
	// Rollbacks counts how often the server turned out to have another history.
	Rollbacks int64 `json:"rollbacks"`
	// Polling reports that the resource can be listed but not watched, or that
	// it is Unversioned, so it is listed again every Options.PollInterval.
	Polling bool `json:"polling,omitempty"`
	// Unversioned reports that lists have no resourceVersion, and neither have
	// objects in them: changes are what two lists show differently.
	Unversioned bool `json:"unversioned,omitempty"`
}

// MarshalJSON implements json.Marshaler: the key and the error become strings.
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	out := struct {
		plain

		Key       string `json:"key"`
		LastError string `json:"lastError,omitempty"`
	}{plain: plain(s), Key: s.Key.String()}
	if s.LastError != nil {
		out.LastError = s.LastError.Error()
	}
	return json.Marshal(out)
}

// Status returns the status of the informer that serves the lease. Key is that
// of the informer, which may cover more than the lease's.
func (l *Lease) Status() Status { return l.pool.status(l.at.informer()) }

// Status returns the status of all informers, sorted by key. It waits only for
// locks that are held briefly.
func (p *Pool) Status() []Status {
	p.mu.Lock()
	informers := slices.Collect(maps.Values(p.mu.informers))
	p.mu.Unlock()
	return p.statuses(informers)
}

// ClusterStatus returns the status of one cluster's informers, sorted by key.
func (p *Pool) ClusterStatus(cluster types.NamespacedName) []Status {
	return p.statuses(p.of(cluster))
}

func (p *Pool) statuses(informers []*informer) []Status {
	out := make([]Status, 0, len(informers))
	for _, i := range informers {
		out = append(out, p.status(i))
	}
	slices.SortFunc(out, func(a, b Status) int { return compareKeys(a.Key, b.Key) })
	return out
}

func (p *Pool) status(i *informer) Status {
	counted := i.counts.totals()
	s := Status{
		Key:       i.key,
		LastEvent: p.clock.At(i.signs.event.Load()),
		Lists:     counted.Lists,
		Watches:   counted.Watches,
		Resumes:   counted.Resumes,
		Resyncs:   counted.Resyncs,
		Stalls:    counted.Stalls,
		Rejected:  counted.Rejected,
		Rollbacks: counted.Rollbacks,
	}
	p.mu.Lock()
	s.Leases = len(i.holders.leases)
	for l := range i.holders.leases {
		if l.owner != "" {
			s.Owners = append(s.Owners, l.owner)
		}
	}
	p.mu.Unlock()

	slices.Sort(s.Owners)
	s.Owners = slices.Compact(s.Owners)
	i.mu.RLock()
	defer i.mu.RUnlock()

	s.State, s.Since, s.Synced, s.ResourceVersion, s.Epoch = i.mu.state, i.mu.since, i.mu.synced, i.mu.rv, i.mu.epoch
	s.History, s.LastSeen = i.mu.history, i.provenLocked()
	s.Unknown, s.AllUnknown = i.mu.refused.Len(), i.mu.refused.All() != nil
	if s.Unknown > 0 || s.AllUnknown {
		s.LastRefusal = i.mu.refused.Last().Error()
	}
	s.LastError, s.Objects = i.mu.fault(), i.mu.store.Count
	s.Bytes, s.SeenBytes = i.sizeLocked(), i.mu.seen.bytes
	s.Polling, s.Unversioned = i.mu.polling, i.mu.unversioned

	return s
}

// Position is the point that an informer has reached in the history of its
// resource.
type Position struct {
	// Synced reports whether reads are served.
	Synced bool
	// ResourceVersion is the version the cache has reached, and Epoch the
	// history it belongs to. History numbers the resource's own histories
	// within the epoch.
	ResourceVersion string
	Epoch           Epoch
	History         int
}

// Position returns the position of the lease's informer. Within one history it
// never moves backwards.
func (l *Lease) Position() Position {
	i := l.at.rlock().informer
	defer i.mu.RUnlock()

	return Position{
		Synced:          l.readableLocked() == nil,
		ResourceVersion: i.mu.rv,
		Epoch:           i.mu.epoch,
		History:         i.mu.history,
	}
}
