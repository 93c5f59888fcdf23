// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/refusals"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// contents are the objects of an informer. informer.mu protects them.
type contents struct {
	store    *store.Store
	staged   *store.Store // objects of a list under way that store lacks
	refused  refusals.Set // objects whose state is not known
	charged  int64        // the informer's share of the cluster's budget
	synced   bool         // reads are served
	unserved bool         // the resource was proven not to exist any more
}

// shows reports whether reads may return an object.
func (c *contents) shows(o types.NamespacedName) bool { return c.store.Get(o.Namespace, o.Name) != nil }

// put stores a state of an object, unless it is no newer than the cached one,
// and offers the change to the listeners.
func (i *informer) put(o *Object) {
	values := i.indexes().lock(one(o)) // only the reflector replaces i.store, and this is the reflector's goroutine
	defer i.mu.Unlock()

	i.mu.refused.Forget(store.ViewOf(o), o.GetResourceVersion())
	i.touchLocked(o)
	old := i.mu.store.Of(o)
	if old != nil && !ordering.Newer(o, old) && !changed(old, o) {
		i.chargeLocked() // room was reserved for it
		return
	}
	i.mu.store.Put(old, o, values.of(o))
	i.chargeLocked()
	i.emitSeenLocked(delta.Change{Old: old, New: o}, o)
}

// remove removes an object from the store; final is its last state.
func (i *informer) remove(final *Object) {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.mu.refused.Forget(store.ViewOf(final), final.GetResourceVersion())
	i.touchLocked(final)
	old := i.mu.store.Of(final)
	switch {
	case old == nil && i.mu.seen.reaches(final):
		i.mu.seen.passed(store.NameOf(final), nil, nil)
		i.mu.seen.drop(store.NameOf(final))
		return
	case old == nil || ordering.Older(final, old):
		return
	}

	i.mu.store.Remove(old)
	i.chargeLocked()
	i.emitSeenLocked(delta.Change{Old: old, Final: final}, final)
}

// unknown changes the set of unknown objects.
func (i *informer) unknown(change func(*refusals.Set)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.mu.refused)
	i.changedLocked()
}

// removeNamed is remove for an object of which only the identity is known, or
// only the identity is usable: the last known state stands in for it. The
// unknown object may have been another object of the same name, whose creation
// was missed: then the last known one was deleted earlier.
func (i *informer) removeNamed(id wire.Identity) {
	i.mu.Lock()
	defer i.mu.Unlock()

	defer i.changedLocked()

	name := types.NamespacedName{Namespace: id.Namespace, Name: id.Name}
	unknown := i.mu.refused.Has(name)
	over := func(o *Object) bool { return ordering.Ends(id, o) || unknown && ordering.Succeeds(id, o) }
	i.mu.refused.Forget(name, id.ResourceVersion)
	old := i.mu.store.Get(id.Namespace, id.Name)
	if s := i.mu.seen.objects[name]; s != nil && over(s.Object) {
		i.mu.seen.passed(name, old, nil)
		defer i.mu.seen.found(name)
	}
	if old == nil || !over(old) {
		return
	}
	i.mu.store.Remove(old)
	i.chargeLocked()
	version, _ := strconv.ParseUint(id.ResourceVersion, 10, 64)
	i.siblings.leadLocked(i, delta.Vanished(old), version)
	i.emitLocked(delta.Vanished(old))
}

// touchLocked records a change that a stream brought. The store and the version
// it has reached change in one step, so that an audit finds them in agreement.
func (i *informer) touchLocked(o *Object) {
	i.mu.rv = ordering.Moved(i.mu.rv, o.GetResourceVersion())
	i.mu.touched.Note(o)
	i.siblings.reachLocked(i)
}

// vanish removes all objects: the resource does not exist any more.
func (i *informer) vanish() {
	i.mu.Lock()
	defer i.mu.Unlock()

	for name := range i.mu.seen.objects {
		i.mu.seen.passed(name, i.mu.store.Get(name.Namespace, name.Name), nil)
		defer i.mu.seen.found(name)
	}
	i.mu.unserved = true
	for _, o := range slices.Collect(i.mu.store.All()) {
		i.mu.store.Remove(o)
		i.emitLocked(delta.Vanished(o))
	}
	i.chargeLocked()
}

// emitSeenLocked is emitLocked for a state that the stream or a list has shown.
// Afterwards an earlier state that users saw need not be remembered.
func (i *informer) emitSeenLocked(c delta.Change, shown *Object) {
	reached := i.mu.seen.reaches(shown)
	if reached {
		i.mu.seen.passed(store.NameOf(shown), c.Old, c.New)
	}
	i.emitLocked(c)
	if reached {
		i.mu.seen.found(store.NameOf(shown))
	}
}

// emitLocked offers a change to every listener. Nothing is offered before the
// first list is complete: then the whole list is replayed, so that a handler
// that reads the store finds the objects it receives.
func (i *informer) emitLocked(c delta.Change) {
	if !i.mu.synced {
		return
	}
	i.siblings.leadLocked(i, c, 0)
	c.Sight = i.mu.store.Sight.Next()
	for _, ln := range i.mu.listeners {
		ln.offer(c)
	}
}

// sizeLocked returns the approximate memory of the informer, without a list
// under way.
func (i *informer) sizeLocked() int64 { return i.mu.store.Size() + i.mu.seen.bytes }

// scopeLocked publishes the scope of the store's objects, before handlers
// receive events, and read.
func (i *informer) scopeLocked() { i.published.scope.Store(int32(i.mu.store.Scope())) }

// chargeLocked updates the cluster's memory and the scope of the store's
// objects.
func (i *informer) chargeLocked() {
	i.scopeLocked()
	bytes := i.mu.store.Size()
	if i.mu.staged != nil {
		bytes += i.mu.staged.Bytes
	}
	i.cluster.bytes.Add(bytes - i.mu.charged)
	i.mu.charged = bytes
}

// reserve charges the cluster's budget for an object that is about to be stored
// in place of old. It fails if that exceeds the limit, before the object is
// stored: a server that is retried repeatedly must not get one more object in
// with each try. The informers of a cluster fill one budget concurrently:
// without the reservation each would find room that does not suffice for all of
// them.
func (i *informer) reserve(old, o *Object, limit int64) error {
	growth := int64(o.Size()) + store.EntryBytes
	if old != nil {
		growth -= int64(old.Size())
	}
	if limit <= 0 || growth <= 0 {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.cluster.reserve(growth, limit) {
		return fmt.Errorf("%s: cluster's informers take more than %d bytes: %w", i.key, limit, ErrBudget)
	}
	i.mu.charged += growth // until the exact size is known
	return nil
}

func (i *informer) syncedLocked(rv string) {
	i.chargeLocked()
	first := !i.mu.synced
	i.mu.synced, i.mu.unserved, i.mu.rv, i.mu.partial, i.mu.doubt = true, false, rv, "", nil
	i.mu.dubious = false
	i.mu.taken++
	i.mu.attach()
	i.mu.setState(StateSynced)
	if first {
		for _, ln := range i.mu.listeners {
			ln.catchUpLocked(i.mu.store)
		}
	}
	i.changedLocked()
}
