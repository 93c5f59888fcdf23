// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/refusals"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// draft is what a list under way has brought to an informer: the objects that
// its store lacks are staged beside it. For readers and handlers it becomes the
// store's content in one step, as a whole (commit), without what did not fit
// (commitTrimmed, giveUp), or as far as it came (commitPart).
type draft struct {
	informer *informer

	seen    map[*Object]struct{} // cached objects that the list has, too, unchanged
	refused refusals.Set         // of the list
	look    int                  // number of the list among the informer's looks at its server
	history int                  // number of the history that it shows, once it is known
	another bool                 // whether that is another history than the store's
	listed  time.Time            // when the list was made that a snapshot began with; zero if this is a list itself
	defined *definition          // the one of a snapshot; nil if this is a list
}

// beginDraft prepares for the objects of a list.
func beginDraft(i *informer) draft {
	i.mu.Lock()
	defer i.mu.Unlock()

	if i.mu.synced {
		i.count(countResyncs)
	}
	i.mu.staged = i.mu.store.Stage()

	return draft{informer: i, seen: map[*Object]struct{}{}, look: i.mu.seen.look()}
}

// restart drops everything that the list has brought so far.
func (d *draft) restart() {
	d.replace(d.informer.mu.store.Stage()) // only the reflector, whose goroutine this is, changes the store
	*d = draft{informer: d.informer, seen: map[*Object]struct{}{}, look: d.look}
}

// replace replaces what is staged; by nothing if staged is nil.
func (d *draft) replace(staged *store.Store) {
	d.informer.mu.Lock()
	defer d.informer.mu.Unlock()
	d.informer.mu.staged = staged
	d.informer.chargeLocked()
}

// change changes what is staged.
func (d *draft) change(by func(staged *store.Store)) {
	d.informer.mu.Lock()
	defer d.informer.mu.Unlock()
	by(d.informer.mu.staged)
	d.informer.chargeLocked()
}

// shows returns the complete list's object of a name, or nil. The informer's
// lock is held.
func (d *draft) shows(name types.NamespacedName) *Object {
	if o := d.informer.mu.staged.Get(name.Namespace, name.Name); o != nil {
		return o
	}
	o := d.informer.mu.store.Get(name.Namespace, name.Name)
	if _, kept := d.seen[o]; kept {
		return o
	}
	return nil
}

// commit makes the complete list the informer's state: staged objects are
// stored, and objects that the list lacks are removed. For readers and handlers
// this is one step. The first list makes the store readable. An object that the list
// refused exists, or may exist, and keeps its last known state. commit reports
// whether a seen object requires an audit, and whether the list has a state
// that the store lacked although it had come further.
func (d *draft) commit(rv string, epoch Epoch) (ask, lacked bool) {
	i := d.informer
	values := i.indexes().lock(i.mu.staged.All())
	defer i.mu.Unlock()

	lacked = i.mu.synced && i.mu.epoch == epoch && !d.another && d.lacksLocked()
	i.mu.refused = d.refused
	i.published.listed.Store(&epoch) // before handlers receive events, and read; reads wait for the lock
	found := i.mu.seen.missed(d.look, rv, !i.mu.synced, d.shows)
	d.sweepLocked(rv)
	d.mergeLocked(values)
	i.mu.epoch, i.mu.history = epoch, d.history
	i.syncedLocked(rv)
	if i.mu.listed = d.listed; d.listed.IsZero() {
		i.mu.listed = time.Now()
	}
	i.mu.defined = cmp.Or(d.defined, i.published.definition.Load())
	for _, name := range found {
		i.mu.seen.found(name)
	}
	if d.another {
		i.mu.seen.loosen()
	}

	return i.mu.seen.settle(), lacked
}

// lacksLocked reports whether the list has an object with a version that the
// store has passed, and not that version of it.
func (d *draft) lacksLocked() bool {
	i := d.informer
	if i.mu.refused.All() != nil {
		return false
	}
	for o := range i.mu.staged.All() {
		old, rv := i.mu.store.Of(o), o.GetResourceVersion()
		passed := ordering.Ordered(rv) && ordering.Reaches(i.mu.rv, rv) && !i.mu.refused.Has(store.ViewOf(o))
		if passed && (old == nil || old.GetResourceVersion() != rv) {
			return true
		}
	}
	return false
}

// sweepLocked removes the objects that a complete list at a version lacks.
func (d *draft) sweepLocked(rv string) {
	i := d.informer
	at, _ := strconv.ParseUint(rv, 10, 64)
	for _, o := range slices.Collect(i.mu.store.All()) {
		_, kept := d.seen[o]
		staged := i.mu.staged != nil && i.mu.staged.Of(o) != nil
		if kept || staged || i.mu.refused.Has(store.ViewOf(o)) {
			continue
		}
		i.mu.store.Remove(o)
		i.scopeLocked()
		i.siblings.leadLocked(i, delta.Vanished(o), at)
		i.emitLocked(delta.Vanished(o))
	}
}

// commitTrimmed is commit for a list that did not fit as a whole, and why. Any
// object may be one that was skipped, so the state of all is unknown.
func (d *draft) commitTrimmed(rv string, cramped error) {
	i := d.informer
	values := i.indexes().lock(i.mu.staged.All())
	defer i.mu.Unlock()

	i.mu.refused = d.refused
	d.sweepLocked(rv)
	d.mergeLocked(values)
	i.mu.refused.AddAll(cramped)
	i.mu.partial = rv
	i.siblings.reachLocked(i)
	i.chargeLocked()
}

// commitPart stores the objects that a broken list had brought, and removes
// none.
func (d *draft) commitPart() {
	i := d.informer
	values := i.indexes().lock(i.mu.staged.All())
	defer i.mu.Unlock()

	for o := range i.mu.staged.All() {
		if rv := o.GetResourceVersion(); i.mu.partial == "" || ordering.Behind(i.mu.partial, rv) {
			i.mu.partial = rv
		}
	}
	d.mergeLocked(values)
	i.siblings.reachLocked(i)
	i.chargeLocked()
}

// giveUp is commitTrimmed for a list of another history. Of the store's own
// history only the objects remain that the list has, too, in whatever state.
func (d *draft) giveUp(cramped error) {
	i := d.informer
	i.mu.Lock()
	defer i.mu.Unlock()

	i.mu.refused = d.refused
	for o := range i.mu.staged.All() {
		if old := i.mu.store.Of(o); old != nil && old.GetUID() == o.GetUID() {
			d.seen[old] = struct{}{}
		}
	}
	i.mu.staged = nil
	d.sweepLocked("")
	i.mu.refused.AddAll(cramped)
	i.chargeLocked()
}

func (d *draft) mergeLocked(values indexed) {
	i := d.informer
	for o := range i.mu.staged.All() {
		old := i.mu.store.Of(o)
		i.mu.store.Put(old, o, values.of(o))
		i.scopeLocked()
		i.mu.refused.Forget(store.ViewOf(o), o.GetResourceVersion())
		i.emitSeenLocked(delta.Change{Old: old, New: o}, o)
	}

	i.mu.staged = nil
}
