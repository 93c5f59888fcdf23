// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// maxSeen is how many objects an informer remembers that its users saw by other
// ways, and maxSeenBytes how much memory those of a cluster take, beside its
// budget: what is remembered must not keep an informer out of that. Beyond it
// users do not hear of the deletes of more.
const (
	maxSeen      = 10_000
	maxSeenBytes = 8 << 20
)

// seenAuditPace is how long after one audit that a seen object asked for the
// next one begins at the earliest.
const seenAuditPace = time.Minute

// seen is an object that was shown by another way than the informer's.
type seen struct {
	*Object

	looks  int  // how often the informer had begun to look at its server before
	asked  bool // an audit was asked for, since the stream contradicts it
	passed bool // handlers have been told what there is to tell
	// adrift is since when the server's history is another one than that in
	// which it may have been seen; zero if it is not.
	adrift time.Time
}

// incomparable reports whether the version of what was seen says nothing about
// the server's history any more. It does for a while, since it may have been
// seen in that one, on a server that was ahead.
func (s *seen) incomparable() bool { return !s.adrift.IsZero() && time.Since(s.adrift) >= auditLag }

// Seen notes that the lease's user was shown an object by another way than the
// lease, as by a live read before the first list. If a list that is no older
// lacks the object, it was deleted unseen: handlers are told of a delete with
// an unknown final state, though they were not told of the object before.
// Without it, a user that acted on the object would never hear that it is gone.
// A stream that gets beyond that state without the object proves nothing, since
// it may be that of a history which is over: the informer is compared with its
// server at once then. If the object is there in an earlier state, or another
// one of its name, as where etcd was restored after the read, handlers are told
// of that once more, marked as a resync. Objects that the lease does not select
// are ignored, and those beyond the first 10,000 that wait, or 8 MiB of a
// cluster's. They are not a part of the cluster's budget.
func (l *Lease) Seen(u *unstructured.Unstructured) {
	key := l.Key()
	if !localFields(key.FieldSelector) {
		return
	}
	codec := l.pool.codec
	gvk := u.GroupVersionKind()
	o, err := codec.PackUnstructured(codec.Kind(schema.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}), u)
	if err != nil || !newFilter(Key{}, key).match(o) {
		return
	}
	e := l.lock().entry
	ask := l.gone() == nil && e.noteSeenLocked(o)
	e.mu.Unlock()
	if ask {
		l.pool.auditSeen(e)
	}
}

// SeenObjects is Seen of objects that another lease on the same resource has
// returned. While the lease has no handler they are ignored: a later one is not
// told of what was before it.
func (l *Lease) SeenObjects(objects ...*Object) {
	key := l.Key()
	if !localFields(key.FieldSelector) {
		return
	}
	selected := newFilter(Key{}, key)
	e := l.lock().entry
	ask := false
	if l.gone() == nil && len(e.taps) > 0 {
		for _, o := range objects {
			s := e.seen[nameOf(o)]
			again := s != nil && s.Object == o && !e.synced // reads may repeat as fast as they like
			if !again && selected.match(o) {
				ask = e.noteSeenLocked(o) || ask
			}
		}
	}
	e.mu.Unlock()
	if ask {
		l.pool.auditSeen(e)
	}
}

func (e *entry) noteSeenLocked(o *Object) (ask bool) {
	name, size := nameOf(o), int64(o.Size())
	if now := e.store.get(name.Namespace, name.Name); passes(now, o) {
		e.laterLocked(o, now)
		return false
	}
	switch before := e.seen[name]; {
	case before != nil && older(o, before.Object):
		return false
	case before != nil:
		e.dropSeenLocked(name)
	}
	if len(e.seen) >= maxSeen || e.account.seen.Load()+size > maxSeenBytes {
		return false
	}
	if e.seen == nil {
		e.seen = map[types.NamespacedName]*seen{}
	}
	e.seen[name] = &seen{Object: o, looks: e.looks}
	e.weighSeenLocked(e.seenBytes + size)
	return e.synced && e.settleSeenLocked()
}

// passes reports whether a state of the store is that which was seen under its
// name, or a later one. Two objects never have one version in one history.
func passes(now, seen *Object) bool {
	return now != nil && !older(now, seen) && (older(seen, now) || now.GetUID() == seen.GetUID() || !isOrdered(seen))
}

// isOrdered reports whether an object's version is a number.
func isOrdered(o *Object) bool {
	_, ordered := o.Version()
	return ordered
}

// laterLocked is for an object of which the store has a later state than was
// shown. Handlers have been told of that, or hear of it: one that selects what
// was shown and not what is there hears that it is gone.
func (e *entry) laterLocked(o, now *Object) {
	e.dropSeenLocked(nameOf(o))
	for _, t := range e.taps {
		if !t.wants.empty() && t.wants.match(o) && !t.wants.match(now) {
			t.lose(o, false)
		}
	}
	e.shownLocked(o)
}

// takeSeenLocked remembers what a lease that came from another entry was shown:
// that one may have known as little of it. The locks of both are held.
func (e *entry) takeSeenLocked(from *entry, key Key) {
	if from == e || !localFields(key.FieldSelector) {
		return
	}
	selected := newFilter(Key{}, key)
	for name, s := range from.seen {
		if e.seen[name] != nil || !selected.match(s.Object) {
			continue
		}
		e.noteSeenLocked(s.Object)
		if taken := e.seen[name]; taken != nil {
			taken.adrift = s.adrift
		}
	}
}

func (e *entry) dropSeenLocked(name types.NamespacedName) {
	s := e.seen[name]
	if s == nil {
		return
	}
	delete(e.seen, name)
	e.weighSeenLocked(e.seenBytes - int64(s.Size()))
}

// weighSeenLocked notes what the objects take that were seen.
func (e *entry) weighSeenLocked(bytes int64) {
	e.account.seen.Add(bytes - e.seenBytes)
	e.seenBytes = bytes
}

// lookLocked numbers a list, or an audit, that begins.
func (e *entry) lookLocked() int {
	e.looks++
	return e.looks
}

// loosenSeenLocked notes that the server's history is another one from now on,
// and may be another one than that in which what was seen was seen. The look
// under way began before.
func (e *entry) loosenSeenLocked() {
	for _, o := range e.seen {
		if o.adrift.IsZero() {
			o.adrift, o.looks, o.asked = time.Now(), e.looks, false
		}
	}
}

func (e *entry) loosenSeen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loosenSeenLocked()
}

// settleSeenLocked forgets the objects that the store has in the state that was
// seen, or a later one: of those handlers hear as of all others. It reports
// whether an audit is to be asked for, since the stream passed a state and has
// not told of it.
func (e *entry) settleSeenLocked() (ask bool) {
	if len(e.seen) == 0 {
		return false
	}
	pause := time.Since(e.seenAudit) < seenAuditPace
	for name, o := range e.seen {
		now := e.store.get(name.Namespace, name.Name)
		switch {
		case passes(now, o.Object):
			e.passedLocked(name, now, now)
			e.foundLocked(name)
		case o.asked, pause, e.refused.has(name), behind(e.rv, o.GetResourceVersion()) && !o.incomparable():
		default:
			o.asked, ask = true, true
		}
	}
	if ask {
		e.seenAudit = time.Now()
	}
	return ask
}

// missedLocked settles what was seen by a list of the server, which is at a
// version: now returns what it shows of a name. The first list may have begun
// before the object was seen. Any other has to have begun afterwards: it may be
// of a history that was left meanwhile. The store is still what it was before.
// Who calls it calls foundLocked with what it returns, once the change is told.
func (e *entry) missedLocked(look int, rv string, first bool, now func(types.NamespacedName) *Object) (found []types.NamespacedName) {
	for name, o := range e.seen {
		is := now(name)
		early := !first && o.looks >= look || behind(rv, o.GetResourceVersion()) && !o.incomparable()
		if e.refused.has(name) || early && (is == nil || older(is, o.Object)) {
			continue
		}
		e.passedLocked(name, e.store.get(name.Namespace, name.Name), is)
		found = append(found, name)
	}
	return found
}

// passedLocked is called before a change from one state to another is told, the
// later one being no earlier than what was seen under the name. A handler that
// is told of that object in neither of them hears here that it is gone: it was
// another one of its name, or was selected in between alone. A handler that
// knows another object of the name is told of the end of that: were it told of
// this one first, its own would end under another uid, or end twice.
//
// What a handler knows may stay as it is and be earlier than what was seen:
// that is of a history that is over. Its delete would leave the handler without
// an object that there is, which it is told of once more instead.
func (e *entry) passedLocked(name types.NamespacedName, old, now *Object) {
	s := e.seen[name]
	if s == nil || s.passed {
		return
	}
	s.passed = true // a list passes it, and then the change that it makes
	for _, t := range e.taps {
		known := t.knows(name, old)
		switch {
		case known != nil && !t.stays(known, now): // what becomes of it is told
		case known != nil && !passes(known, s.Object):
			t.offerAll(change{old: known, new: known, resync: true})
		case known == nil && t.misses(s.Object, old, now):
			t.lose(s.Object, false)
		}
	}
}

// knows returns what the handler has been told of under a name, or is about to
// be, or nil: what the informer has, or, until it has listed, what another one
// had.
func (t *tap) knows(name types.NamespacedName, cached *Object) *Object {
	if t.inherited != nil {
		return t.inherited[name]
	}
	if t.selects(cached) {
		return cached
	}
	return nil
}

// stays reports whether the handler is told of no change from what it knows to
// what there is now.
func (t *tap) stays(known, now *Object) bool {
	if t.inherited == nil {
		return known == now
	}
	return t.selects(now) && known.GetUID() == now.GetUID() && sameState(known, now)
}

// misses reports whether the handler is told of an object that was seen in none
// of the states that the informer has it in.
func (t *tap) misses(seen *Object, states ...*Object) bool {
	return t.selects(seen) && !slices.ContainsFunc(states, func(o *Object) bool {
		return o != nil && o.GetUID() == seen.GetUID() && t.selects(o)
	})
}

// selects reports whether there is an object, and the handler is told of it.
func (t *tap) selects(o *Object) bool { return o != nil && (t.wants.empty() || t.wants.match(o)) }

// reachesSeenLocked reports whether a state that the stream shows is no earlier
// than what was seen under its name.
func (e *entry) reachesSeenLocked(o *Object) bool {
	s := e.seen[nameOf(o)]
	return s != nil && passes(o, s.Object)
}

// foundLocked forgets an object that the store has had by now. While a handler
// has not been told of it, its delete is to be told all the same.
func (e *entry) foundLocked(name types.NamespacedName) {
	s := e.seen[name]
	if s == nil {
		return
	}
	e.dropSeenLocked(name)
	e.shownLocked(s.Object)
}

// shownLocked notes that an object was shown which handlers are about to be
// told of.
func (e *entry) shownLocked(o *Object) {
	for _, t := range e.taps {
		t.sub.mu.Lock()
		if p := t.sub.pending[item{tap: t, namespace: o.GetNamespace(), name: o.GetName()}]; p != nil {
			p.shown = o
		}
		t.sub.mu.Unlock()
	}
}

// forgetSeenLocked tells of all of them: the cluster is gone. What the store
// has of them is told by its own end.
func (e *entry) forgetSeenLocked() {
	for _, t := range e.taps {
		t.evictSeenLocked(e)
	}
	e.seen = nil
	e.weighSeenLocked(0)
}

func (t *tap) evictSeenLocked(e *entry) {
	for name, o := range e.seen {
		now := e.store.get(name.Namespace, name.Name)
		if t.knows(name, now) == nil && t.misses(o.Object, now) {
			t.lose(o.Object, true)
		}
	}
}

// lose queues the delete of an object that was not told of. One that came and
// went while the handler was busy is told of all the same. The entry's lock is
// held.
func (t *tap) lose(o *Object, evicted bool) {
	s := t.sub
	it := item{tap: t, namespace: o.GetNamespace(), name: o.GetName()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pending[it]; p != nil && p.old == nil && !t.removed && (p.new == nil || p.new.GetUID() != o.GetUID()) {
		p.old, p.final, p.unheard, p.unknown, p.evicted = o, o, true, true, evicted
		return
	}
	if t.removed || s.pending[it] != nil {
		return // it is about to be told of something newer
	}
	s.pending[it] = &pending{change: change{old: o, final: o, unknown: true, evicted: evicted}, unheard: true}
	s.pushLocked(it)
}
