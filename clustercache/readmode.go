// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
)

// ReadMode selects where reads are answered from. It is an option of the whole
// cache, and of each Get and List. The cache answers if an informer covers the
// read, is synced, and has what other options require, such as [MaxStaleness].
// docs/reading.md has a table of who answers when, and with which error.
type ReadMode uint8

// Modes of reading.
const (
	// PreferCache reads from the cache where an informer covers the read, and
	// from the API server otherwise.
	PreferCache ReadMode = iota
	// CacheOnly reads never send a request. They fail with [ErrNotWatched],
	// [ErrNotSynced] or [ErrStale] where the cache does not answer.
	CacheOnly
	// AutoWatch reads are PreferCache reads that make the cluster known, and
	// start an informer of the kind, which stops when no read has used it for
	// Options.IdleTimeout. Beware of large kinds.
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
// a read accepts; a healthy informer has one a minute. With it, a read in mode
// CacheOnly may be answered while the cluster is not connected. Zero means any.
type MaxStaleness time.Duration

// ApplyToGet implements client.GetOption.
func (MaxStaleness) ApplyToGet(*client.GetOptions) {}

// ApplyToList implements client.ListOption.
func (MaxStaleness) ApplyToList(*client.ListOptions) {}

func (d MaxStaleness) applyToRead(o *readOptions) { o.maxAge = time.Duration(d) }

// NotOlderThan is the oldest resourceVersion that may answer the read, such as
// the one that a write returned. Where the informer has not reached it, the
// read goes to the API server or, in mode CacheOnly, fails with [ErrStale];
// [Watch.WaitForVersion] waits. Empty means any.
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
	// Epoch is the history that the answer belongs to, as in [status.Cluster],
	// with a number after a dot if only the resource was rolled back. Versions
	// of different epochs cannot be compared. To prove it, a live read with an
	// Origin queries the server's identity once more.
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
// extracted. Without managedFields that is empty, and applying it removes
// everything that its manager owns from the remote object. Where the cache may
// leave them out (Informers.DropManagedFields and Transforms), the read goes to
// the API server, or fails with [ErrUnsupported] in mode CacheOnly.
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
func (c *cluster) lacksManagedFields(want *wants.Want) error {
	informers := &c.cc.options.Informers
	m := want.Mapping()
	if informers.DropManagedFields || m != nil && informers.TransformOf(m.Resource.GroupResource()) != nil {
		return fmt.Errorf("%w: ForApply: %w", ErrUnsupported, errNoManagedFields)
	}
	return nil
}

// plain reports whether a read demands nothing of what answers it.
func (o *readOptions) plain() bool {
	return o.written == nil && o.maxAge == 0 && o.atLeast == "" && o.origin == nil
}

var errBehind = fmt.Errorf("%w: the cache does not show an earlier write yet", ErrStale)

// catchUp waits, for as long as Options.ReadYourWrites allows, until the
// informer that is to answer a read shows what was written before.
func (c *cluster) catchUp(ctx context.Context, o *readOptions, covering []*wants.Want) {
	if o.written.Unknown() || o.mode == LiveOnly {
		return
	}
	left := time.Until(o.written.Last().Add(c.cc.options.ReadYourWrites))
	if left <= 0 {
		return
	}
	covering = slices.DeleteFunc(covering, func(want *wants.Want) bool {
		return c.usable(&readOptions{mode: CacheOnly, maxAge: o.maxAge}, want) != nil
	})
	shows := func(want *wants.Want) bool { return !o.written.Behind(want) }
	if len(covering) == 0 || slices.ContainsFunc(covering, shows) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	_ = covering[0].Lease().WaitFor(ctx, func() bool { return shows(covering[0]) }) // the read checks it again
}
