// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
)

// ReadMode selects where reads are answered from. It is an option of the whole
// cache, and of each Get and List.
//
// A read is answered as follows, depending on the mode and on the state of the
// cluster and of the kind:
//
//	                             PreferCache      CacheOnly               AutoWatch
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
//	... behind a write before,   waits, then      waits, then             waits, then
//	    with ReadYourWrites      API server       ErrStale                API server
//
// Reads in mode LiveOnly are answered like reads in mode PreferCache of a kind
// that is not watched.
//
// An informer is not current if its right to list or watch was withdrawn, if
// its resource is no longer served, or if it has not followed a watch for
// longer than Options.StaleAfter. ErrStale then wraps the cause. A greater
// MaxStaleness accepts an interruption of that length, but no refusal. Only a
// list or watch that the API server accepts ends a refusal. Later failures of
// another kind, such as 503, a broken connection or the cluster's loss, do not.
//
// Where several informers cover a read, the most advanced one answers. If it
// cannot, or was released, another one answers once it has everything that was
// shown.
//
// After a cluster was replaced or its history rolled back, its informers count
// as not synced until they have listed again: no answer mixes two histories.
type ReadMode uint8

// Modes of reading.
const (
	// PreferCache reads from the cache where an informer covers the read, and
	// from the API server otherwise.
	PreferCache ReadMode = iota
	// CacheOnly reads never send a request.
	CacheOnly
	// AutoWatch reads are PreferCache reads that also start an informer of the
	// kind. It stops when no read has used it for Options.IdleTimeout. Beware
	// of large kinds.
	AutoWatch
	// LiveOnly reads are always answered by the API server.
	LiveOnly
)

// readOption is an option of reads that controller-runtime does not define.
type readOption interface{ applyToRead(*readOptions) }

type readOptions struct {
	mode    ReadMode
	maxAge  time.Duration // 0 means any
	atLeast string        // resourceVersion
	origin  *Origin

	forApply bool
	share    bool            // the objects are not changed
	written  *writes.Pending // what has to be shown; nil: nothing
}

var (
	_ client.GetOption  = PreferCache
	_ client.ListOption = PreferCache
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
	case PreferCache:
		return "PreferCache"
	case CacheOnly:
		return "CacheOnly"
	case AutoWatch:
		return "AutoWatch"
	case LiveOnly:
		return "LiveOnly"
	}

	return "unknown"
}

// MaxStaleness is the longest time since the informer's last sign of life that
// a read accepts. With it, a read in mode CacheOnly may be answered while the
// cluster is not connected; [Origin] reports that. A healthy informer without
// changes has a sign of life once a minute, so a shorter MaxStaleness sends
// some reads in mode PreferCache to the API server. Zero means any.
type MaxStaleness time.Duration

// ApplyToGet implements client.GetOption.
func (MaxStaleness) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (MaxStaleness) ApplyToList(*client.ListOptions) {}

func (d MaxStaleness) applyToRead(o *readOptions) { o.maxAge = time.Duration(d) }

// NotOlderThan is the oldest resourceVersion that may answer the read, for
// example the one that a write returned. A read does not wait for it: where the
// informer has not reached it, the read goes to the API server (PreferCache,
// AutoWatch) or fails with [ErrStale] (CacheOnly). [Watch.WaitForVersion]
// waits. Empty means any.
type NotOlderThan string

// ApplyToGet implements client.GetOption.
func (NotOlderThan) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (NotOlderThan) ApplyToList(*client.ListOptions) {}

func (v NotOlderThan) applyToRead(o *readOptions) { o.atLeast = string(v) }

// Origin describes where a read was answered from. Pass it as an option; the
// read fills it in.
type Origin struct {
	// Cached is false if the API server answered.
	Cached bool
	// Connected reports whether the cluster was connected.
	Connected bool
	// Epoch is the history that the answer belongs to; resourceVersions of
	// different epochs cannot be compared. It is the Epoch of Status, with a
	// number after a dot if only the resource was rolled back, or if the
	// cluster is not yet known to have been. A live read with an Origin queries
	// the server's identity once more after the answer, if it answers that.
	Epoch string
	// ResourceVersion is how far the cache had advanced.
	ResourceVersion string
	// LastSeen is the last sign of life of the informer that answered.
	LastSeen time.Time
}

// ApplyToGet implements client.GetOption.
func (*Origin) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (*Origin) ApplyToList(*client.ListOptions) {}

func (o *Origin) applyToRead(to *readOptions) { to.origin = o }

// ForApply is a read option for objects from which an apply configuration is
// extracted, as by client-go's ExtractConfigMap. Extraction needs
// managedFields: without them the result is empty, and applying it removes
// everything its manager owns from the remote object. If the cache leaves
// managedFields out (Informers.DropManagedFields), or may do so
// (Informers.Transforms of the resource), the read goes to the API server, and
// fails with [ErrUnsupported] in mode CacheOnly. Otherwise the option has no
// effect.
const ForApply forApply = true

type forApply bool

var (
	_ client.GetOption  = ForApply
	_ client.ListOption = ForApply
)

// ApplyToGet implements client.GetOption.
func (forApply) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (forApply) ApplyToList(*client.ListOptions) {}

func (f forApply) applyToRead(o *readOptions) { o.forApply = bool(f) }

var errNoManagedFields = errors.New("the cache leaves managedFields out")

// lacksManagedFields returns an error if an apply configuration must not be
// extracted from the cached objects of a want.
func (c *cluster) lacksManagedFields(want *watchset.Want) error {
	informers := &c.cc.options.Informers
	m := want.Mapping()
	if informers.DropManagedFields || m != nil && informers.TransformOf(m.Resource.GroupResource()) != nil {
		return fmt.Errorf("%w: ForApply: %w", ErrUnsupported, errNoManagedFields)
	}
	return nil
}

// toShow is a read option for what was written before.
type toShow struct{ *writes.Pending }

var (
	_ client.GetOption  = toShow{}
	_ client.ListOption = toShow{}
)

// ApplyToGet implements client.GetOption.
func (toShow) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (toShow) ApplyToList(*client.ListOptions) {}

func (w toShow) applyToRead(o *readOptions) { o.written = w.Pending }

var errBehind = fmt.Errorf("%w: the cache does not show an earlier write yet", ErrStale)

// catchUp waits, for as long as Options.ReadYourWrites allows, until the
// informer that is to answer a read shows what was written before.
func (c *cluster) catchUp(ctx context.Context, o *readOptions, covering watchset.Candidates) {
	if o.written.Unknown() || o.mode == LiveOnly {
		return
	}
	left := time.Until(o.written.Last().Add(c.cc.options.ReadYourWrites))
	if left <= 0 {
		return
	}
	for _, candidate := range covering.Rank() {
		if c.usable(&readOptions{mode: CacheOnly, maxAge: o.maxAge}, candidate.Want) != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, left)
		_ = candidate.Lease().WaitFor(ctx, func() bool { return !o.written.Behind(candidate.Want) })
		cancel()
		return
	}
}
