// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadMode says where reads are answered from. It is an option of the whole
// cache, and of each Get and List.
//
// What a read answers, by mode and by what holds for the cluster and for the
// kind:
//
//	                             Live             CacheOnly               AutoWatch
//	stopped                      ErrClosed        ErrClosed               ErrClosed
//	unknown or gone              ErrUnknownCluster ErrUnknownCluster      engaged, then ErrNotConnected
//	not connected                ErrNotConnected  ErrNotConnected;        ErrNotConnected
//	                                              with MaxStaleness the
//	                                              cache, or ErrStale
//	connected, not watched       API server       ErrNotWatched           API server, and an informer starts
//	connected, not synced        API server       ErrNotSynced            API server
//	connected, synced            cache            cache                   cache
//	... older than MaxStaleness  API server       ErrStale                API server
//	... before NotOlderThan      API server       ErrStale                API server
//	... but refused since, or    API server       ErrStale                API server
//	    degraded for StaleAfter
//	... behind what another      API server       ErrStale                API server
//	    watch showed
//
// An informer whose right to list or watch was taken away, whose resource is
// not served any more, or that has followed no watch for longer than
// Options.StaleAfter has an old answer, and no new one. ErrStale wraps the
// cause then. A greater MaxStaleness accepts as long an interruption, but no
// refusal.
//
// Where several informers cover a read, the one that has come furthest answers.
// If it cannot, or was released, another one answers once it has what was
// shown.
//
// Right after a cluster was replaced or its history rolled back, its informers
// count as not synced until they have listed anew: no answer mixes two
// histories.
type ReadMode uint8

// Modes of reading.
const (
	// Live reads from the cache where an informer covers the read, and from the
	// API server otherwise.
	Live ReadMode = iota
	// CacheOnly reads send no request.
	CacheOnly
	// AutoWatch reads are Live reads that start an informer of the kind, which
	// ends when reads do not ask for it any more (Options.IdleTimeout). Beware
	// of large kinds.
	AutoWatch
)

// readOption is an option of reads that controller-runtime does not know.
type readOption interface{ applyToRead(*readOptions) }

type readOptions struct {
	mode    ReadMode
	maxAge  time.Duration // 0: any
	atLeast string        // resourceVersion
	origin  *Origin

	forApply bool
}

var (
	_ client.GetOption  = Live
	_ client.ListOption = Live
	_ client.GetOption  = MaxStaleness(0)
	_ client.ListOption = MaxStaleness(0)
	_ client.GetOption  = NotOlderThan("")
	_ client.ListOption = NotOlderThan("")
	_ client.GetOption  = (*Origin)(nil)
	_ client.ListOption = (*Origin)(nil)
)

// ApplyToGet implements client.GetOption.
func (ReadMode) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (ReadMode) ApplyToList(*client.ListOptions) {}

func (m ReadMode) applyToRead(o *readOptions) { o.mode = m }

// String returns the mode's name.
func (m ReadMode) String() string {
	switch m {
	case Live:
		return "Live"
	case CacheOnly:
		return "CacheOnly"
	case AutoWatch:
		return "AutoWatch"
	}
	return "unknown"
}

// MaxStaleness is the longest time since the last sign of life of the informer
// that a read accepts. With it, a read in mode CacheOnly may be answered while
// the cluster is not connected: [Origin] tells. A healthy informer without
// changes has a sign of life once a minute, so less than that makes reads in
// mode Live go to the API server now and then. Zero means any.
type MaxStaleness time.Duration

// ApplyToGet implements client.GetOption.
func (MaxStaleness) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (MaxStaleness) ApplyToList(*client.ListOptions) {}

func (d MaxStaleness) applyToRead(o *readOptions) { o.maxAge = time.Duration(d) }

// NotOlderThan is the resourceVersion that a read must have seen, such as the
// one a write was answered with. A read does not wait for it: where the
// informer has not come so far, the API server is asked (Live, AutoWatch), or
// the read fails with [ErrStale] (CacheOnly). [Watch.WaitForVersion] waits.
// Empty means any.
type NotOlderThan string

// ApplyToGet implements client.GetOption.
func (NotOlderThan) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (NotOlderThan) ApplyToList(*client.ListOptions) {}

func (v NotOlderThan) applyToRead(o *readOptions) { o.atLeast = string(v) }

// Origin tells where a read was answered from. Given as an option, it is filled
// in by the read that it is given to.
type Origin struct {
	// Cached is false if the API server answered.
	Cached bool
	// Connected reports whether the cluster was connected.
	Connected bool
	// Epoch is the history the answer belongs to; resourceVersions of different
	// epochs cannot be compared. It is that of Status, with a number behind a
	// dot where the resource has gone back alone, or the cluster is not known
	// to have yet.
	Epoch string
	// ResourceVersion is how far the cache had come.
	ResourceVersion string
	// Proof is the last sign of life of the informer that answered.
	Proof time.Time
}

// ApplyToGet implements client.GetOption.
func (*Origin) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (*Origin) ApplyToList(*client.ListOptions) {}

func (o *Origin) applyToRead(to *readOptions) { to.origin = o }
