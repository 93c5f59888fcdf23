// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"iter"
	"slices"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/calls"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/packed"
)

// Snapshots keeps states of informers for the next process, which begins with
// them instead of a list. It is called from many goroutines, and must not block
// for longer than it takes to read.
type Snapshots interface {
	// Load returns the last state of a key that was kept, or nil if there is
	// none, or none of the history that the epoch identifies. It is called
	// after the source's Ready has returned the epoch.
	Load(ctx context.Context, key Key, epoch Epoch) *Snapshot
	// Drop ends the use of what is kept for a key, since it has turned out to
	// be wrong, or useless. It only takes note.
	Drop(key Key, why error)
	// DropCluster is Drop for all keys of a cluster.
	DropCluster(cluster types.NamespacedName, why error)
}

// Snapshot is the complete state of an informer at a resourceVersion.
type Snapshot struct {
	// Kind is the kind of the objects; it may be empty if there are none.
	Kind string
	// ResourceVersion is the version at which the server had this state.
	ResourceVersion string
	// Listed is when the informer's last complete list was made.
	Listed time.Time
	// Definition is that of the Capture.
	Definition string
	// Dictionaries are those that the objects need.
	Dictionaries []Dictionary
	// Objects yields each object as the informer stored it, after transforms, in
	// the form of AppendStored. It is valid until the next one. After an error
	// the snapshot is not used.
	Objects iter.Seq2[[]byte, error]
}

// Dictionary is a dictionary of objects that an earlier process has stored.
type Dictionary = packed.StoredDictionary

// kept are the states of informers that Options.Snapshots keeps.
type kept struct {
	snapshots Snapshots // nil if nothing is kept
	calls     *calls.Caller
}

// load returns the state that was kept for a key, or nil.
func (k *kept) load(ctx context.Context, key Key, epoch Epoch) (saved *Snapshot) {
	if k.snapshots != nil {
		k.calls.Tell("Snapshots", &key, func() { saved = k.snapshots.Load(ctx, key, epoch) })
	}
	return saved
}

// drop ends the use of the state that was kept for a key.
func (k *kept) drop(key Key, why error) {
	if k.snapshots != nil {
		k.calls.Tell("Snapshots", &key, func() { k.snapshots.Drop(key, why) })
	}
}

// dropCluster is drop for all keys of a cluster.
func (k *kept) dropCluster(cluster types.NamespacedName, why error) {
	if k.snapshots != nil {
		k.calls.Tell("Snapshots", cluster, func() { k.snapshots.DropCluster(cluster, why) })
	}
}

// Capture is the state of an informer at one moment.
type Capture struct {
	// Epoch is the epoch of the objects.
	Epoch Epoch
	// Kind is the kind of the objects; empty if there are none and the key has
	// no kind.
	Kind string
	// ResourceVersion is the version at which the server had this state.
	ResourceVersion string
	// Proven is when the server last gave a sign of life on the stream, and so
	// of this state being current.
	Proven time.Time
	// Listed is when the last complete list was made, be it in an earlier
	// process.
	Listed time.Time
	// Definition identifies the CustomResourceDefinition of the objects, and its
	// schema, under which a server may show other content in the same version.
	// It is empty if it is not known, and for resources that can have none.
	Definition string
	// Unchanged reports that the objects are those of the mark.
	Unchanged bool
	// Objects are the objects, in no order; nil if Unchanged.
	Objects []*Object
	// Mark identifies the state.
	Mark Mark
}

// Mark identifies a state of an informer. Marks are comparable.
type Mark struct {
	informer weak.Pointer[informer]
	changes  uint64
	rv       string
	epoch    Epoch
}

// Capture returns the state of the informer of a canonical key. It returns
// false if there is no such informer, or its objects are not known to be
// exactly those that the server had at one version: before the first list,
// while the state of an object is unknown, when a list broke midway, or on a
// server without versions. Objects are left out if they are those of the mark
// since. It does no I/O.
func (p *Pool) Capture(key Key, since Mark) (Capture, bool) {
	p.mu.Lock()
	i := p.mu.informers[key]
	p.mu.Unlock()

	if i == nil {
		return Capture{}, false
	}
	i.mu.RLock()
	defer i.mu.RUnlock()

	if !i.exactLocked() {
		return Capture{}, false
	}
	c := Capture{
		Epoch:           i.mu.epoch,
		Kind:            key.Kind,
		ResourceVersion: i.mu.rv,
		Proven:          i.provenLocked(),
		Listed:          i.mu.listed,
		Definition:      i.mu.defined.String(),
		Mark: Mark{
			informer: weak.Make(i),
			changes:  i.mu.store.Changes,
			rv:       i.mu.rv,
			epoch:    i.mu.epoch,
		},
	}
	c.Unchanged = c.Mark.informer == since.informer && c.Mark.changes == since.changes && c.Mark.epoch == since.epoch
	if !c.Unchanged {
		c.Objects = slices.AppendSeq(make([]*Object, 0, i.mu.store.Count), i.mu.store.All())
	}
	if len(c.Objects) > 0 {
		c.Kind = c.Objects[0].Kind().GVK().Kind
	}

	return c, true
}

// exactLocked reports whether the objects are those that the server had at
// mu.rv, as far as is known.
func (i *informer) exactLocked() bool {
	return i.mu.synced && !i.mu.unserved && !i.mu.vague && !i.mu.dubious && i.mu.partial == "" &&
		i.mu.doubt == nil && i.mu.attempt.finding == nil &&
		!i.mu.refused.In("") && ordering.Ordered(i.mu.rv)
}

// doubtState keeps the informer's state from being captured until the next
// complete list.
func (i *informer) doubtState() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.dubious = true
}
