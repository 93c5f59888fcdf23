// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "slices"

// put stores a state of an object, unless it is no newer than the cached one,
// and offers the change to the taps.
func (e *entry) put(o *Object) {
	values := e.lockWith(one(o)) // only the feed replaces e.store, and this is the feed's goroutine
	defer e.mu.Unlock()

	e.refused.forget(nameOf(o))
	e.touchLocked(o)
	old := e.store.get(o.GetNamespace(), o.GetName())
	if old != nil && !newer(o, old) {
		e.chargeLocked() // room was reserved for it
		return
	}
	e.store.put(old, o, values.of(o))
	e.chargeLocked()
	e.emitSeenLocked(change{old: old, new: o}, o)
}

// remove removes an object from the store; final is its last state.
func (e *entry) remove(final *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.refused.forget(nameOf(final))
	e.touchLocked(final)
	old := e.store.get(final.GetNamespace(), final.GetName())
	switch {
	case old == nil && e.reachesSeenLocked(final):
		e.passedLocked(nameOf(final), nil, nil)
		e.dropSeenLocked(nameOf(final))
		return
	case old == nil || older(final, old):
		return
	}

	e.store.remove(old)
	e.chargeLocked()
	e.emitSeenLocked(change{old: old, final: final}, final)
}

// touchLocked records a change that a stream brought. The store and the version
// it has reached change in one step, so that an audit finds them in agreement.
func (e *entry) touchLocked(o *Object) {
	e.rv = further(e.rv, o.GetResourceVersion())
	e.touched.note(o)
}

// stage keeps an object of a list under way, in place of an earlier state that
// the same list brought.
func (e *entry) stage(earlier, o *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.staged.put(earlier, o, nil)
	e.chargeLocked()
}

// unstage drops an object of a list under way.
func (e *entry) unstage(o *Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.staged.remove(o)
	e.chargeLocked()
}

// discard drops a list under way.
func (e *entry) discard() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.discardLocked()
	e.chargeLocked()
}

func (e *entry) discardLocked() {
	if e.staged != nil {
		for o := range e.staged.all() {
			e.store.shared.Release(o)
		}
	}
	e.staged = nil
}

// commit makes a complete list the informer's state: staged objects are stored,
// and objects that the list lacks are removed. For readers and handlers this is
// one step. The first list makes the store readable. An object that the list
// refused exists, or may exist, and keeps its last known state. commit reports
// whether a seen object requires an audit.
func (e *entry) commit(l *listing, rv string, epoch Epoch) (ask bool) {
	values := e.lockWith(e.staged.all())
	defer e.mu.Unlock()

	e.refused = l.refused
	found := e.missedLocked(l.look, rv, !e.synced, l.shows)
	e.sweepLocked(l)
	e.mergeLocked(values)
	e.epoch, e.history = epoch, l.history
	e.syncedLocked(rv)
	e.listed.Store(&epoch)
	for _, name := range found {
		e.foundLocked(name)
	}
	if l.another {
		e.loosenSeenLocked()
	}

	return e.settleSeenLocked()
}

// sweepLocked removes the objects that a complete list lacks.
func (e *entry) sweepLocked(l *listing) {
	for _, o := range slices.Collect(e.store.all()) {
		_, kept := l.seen[o]
		if kept || e.refused.has(nameOf(o)) || e.staged != nil && e.staged.get(o.GetNamespace(), o.GetName()) != nil {
			continue
		}
		e.store.remove(o)
		e.emitLocked(change{old: o, final: o, unknown: true})
	}
}

// commitTrimmed is commit for a list that did not fit as a whole. Any object
// may be one that was skipped, so the state of all is unknown.
func (e *entry) commitTrimmed(l *listing, rv string) {
	values := e.lockWith(e.staged.all())
	defer e.mu.Unlock()

	e.refused = l.refused
	e.sweepLocked(l)
	e.mergeLocked(values)
	e.refused.addAll(l.cramped)
	e.partial = rv
	e.chargeLocked()
}

// giveUp is commitTrimmed for a list of another history. Of the store's own
// history only the objects remain that the list has, too, in whatever state.
func (e *entry) giveUp(l *listing) {
	e.mu.Lock()
	defer e.mu.Unlock()

	e.refused = l.refused
	for o := range e.staged.all() {
		if old := e.store.get(o.GetNamespace(), o.GetName()); old != nil && old.GetUID() == o.GetUID() {
			l.seen[old] = struct{}{}
		}
	}
	e.discardLocked()
	e.sweepLocked(l)
	e.refused.addAll(l.cramped)
	e.chargeLocked()
}

func (e *entry) mergeLocked(values indexed) {
	for o := range e.staged.all() {
		old := e.store.get(o.GetNamespace(), o.GetName())
		e.store.put(old, o, values.of(o))
		e.store.shared.Release(o) // the reference held by the staged store
		e.refused.forget(nameOf(o))
		e.emitSeenLocked(change{old: old, new: o}, o)
	}

	e.staged = nil
}

// vanish removes all objects: the resource does not exist any more.
func (e *entry) vanish() {
	e.mu.Lock()
	defer e.mu.Unlock()

	for name := range e.seen {
		e.passedLocked(name, e.store.get(name.Namespace, name.Name), nil)
		defer e.foundLocked(name)
	}
	for _, o := range slices.Collect(e.store.all()) {
		e.store.remove(o)
		e.emitLocked(change{old: o, final: o, unknown: true})
	}
	e.unserved = true
	e.chargeLocked()
}

// emitSeenLocked is emitLocked for a state that the stream or a list has shown.
// Afterwards an earlier state that users saw need not be remembered.
func (e *entry) emitSeenLocked(c change, shown *Object) {
	name, reached := nameOf(shown), e.reachesSeenLocked(shown)
	if reached {
		e.passedLocked(name, c.old, c.new)
	}
	e.emitLocked(c)
	if reached {
		e.foundLocked(name)
	}
}

// emitLocked offers a change to every tap. Nothing is offered before the first
// list is complete: then the whole list is replayed, so that a handler that
// reads the store finds the objects it receives.
func (e *entry) emitLocked(c change) {
	if !e.synced {
		return
	}
	c.sight = e.store.sight.next()
	for _, t := range e.taps {
		t.offer(c)
	}
}
