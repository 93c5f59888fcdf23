// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// maxSeen is how many objects an informer remembers that its users saw by other
// ways. Beyond it they are not told of the deletes of more.
const maxSeen = 10_000

// seenAuditPace is how long after one audit that a seen object asked for the
// next one begins at the earliest.
const seenAuditPace = time.Minute

// seen is an object that was shown by another way than the informer's.
type seen struct {
	*Object

	looks int  // how often the informer had begun to look at its server before
	asked bool // an audit was asked for, since the stream contradicts it
}

// Seen notes that the lease's user was shown an object by another way than the
// lease, as by a live read before the first list. If a list that is no older
// lacks the object, it was deleted unseen: handlers are told of a delete with an
// unknown final state, though they were not told of the object before. Without
// it, a user that acted on the object would never hear that it is gone. A stream
// that gets beyond that state without the object proves nothing, since it may be
// that of a history which is over: the informer is compared with its server at
// once then. Objects that the lease does not select are ignored, and those
// beyond the first 10,000 that wait.
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

func (e *entry) noteSeenLocked(o *Object) (ask bool) {
	if len(e.seen) >= maxSeen {
		return false
	}
	if e.seen == nil {
		e.seen = map[types.NamespacedName]*seen{}
	}
	e.seen[nameOf(o)] = &seen{Object: o, looks: e.looks}
	return e.synced && e.settleSeenLocked()
}

// takeSeenLocked remembers what a lease that came from another entry was shown:
// that one may have known as little of it. The locks of both are held.
func (e *entry) takeSeenLocked(from *entry, key Key) {
	if from == e || !localFields(key.FieldSelector) {
		return
	}
	selected := newFilter(Key{}, key)
	for name, s := range from.seen {
		if e.seen[name] == nil && selected.match(s.Object) && e.store.get(name.Namespace, name.Name) == nil {
			e.noteSeenLocked(s.Object)
		}
	}
}

// lookLocked numbers a list, or an audit, that begins.
func (e *entry) lookLocked() int {
	e.looks++
	return e.looks
}

// settleSeenLocked forgets the objects that are in the store: of those handlers
// hear as of all others. It reports whether an audit is to be asked for, since
// the stream passed a state and has not told of the object.
func (e *entry) settleSeenLocked() (ask bool) {
	if len(e.seen) == 0 {
		return false
	}
	pause := time.Since(e.seenAudit) < seenAuditPace
	for name, o := range e.seen {
		switch {
		case e.store.get(name.Namespace, name.Name) != nil:
			e.foundLocked(name)
		case o.asked, pause, e.refused.has(name), behind(e.rv, o.GetResourceVersion()):
		default:
			o.asked, ask = true, true
		}
	}
	if ask {
		e.seenAudit = time.Now()
	}
	return ask
}

// missedLocked tells of the objects that a list of the server lacks, which is at
// a version. The first list may have begun before the object was seen. Any other
// has to have begun afterwards: it may be of a history that was left meanwhile.
func (e *entry) missedLocked(look int, rv string, first bool) {
	for name, o := range e.seen {
		switch {
		case e.store.get(name.Namespace, name.Name) != nil, e.refused.has(name):
		case !first && o.looks >= look, behind(rv, o.GetResourceVersion()):
		default:
			e.lostLocked(o.Object, false)
			delete(e.seen, name)
		}
	}
}

// broughtLocked notes that the stream told of an object that was seen. gone says
// that it told of the delete of one that the store lacks.
func (e *entry) broughtLocked(o *Object, gone bool) {
	name := nameOf(o)
	s := e.seen[name]
	if s == nil || older(o, s.Object) {
		return
	}
	if gone {
		e.lostLocked(s.Object, false)
		delete(e.seen, name)
		return
	}
	e.foundLocked(name)
}

// lostNamedLocked is broughtLocked for the delete of an object of which only the
// identity is known.
func (e *entry) lostNamedLocked(id wire.Identity) {
	name := types.NamespacedName{Namespace: id.Namespace, Name: id.Name}
	if s := e.seen[name]; s != nil && ends(id, s.Object) {
		e.lostLocked(s.Object, false)
		delete(e.seen, name)
	}
}

// foundLocked forgets an object that the store has by now. While a handler has
// not been told of it, its delete is to be told all the same. For a handler that
// selects what was seen, and not what is there, it is gone.
func (e *entry) foundLocked(name types.NamespacedName) {
	o, now := e.seen[name].Object, e.store.get(name.Namespace, name.Name)
	delete(e.seen, name)
	for _, t := range e.taps {
		if now != nil && !t.wants.empty() && t.wants.match(o) && !t.wants.match(now) {
			t.lose(o, false)
			continue
		}
		t.sub.mu.Lock()
		if p := t.sub.pending[item{tap: t, namespace: name.Namespace, name: name.Name}]; p != nil {
			p.shown = o
		}
		t.sub.mu.Unlock()
	}
}

// forgetSeenLocked tells of all of them: the cluster is gone.
func (e *entry) forgetSeenLocked() {
	for _, o := range e.seen {
		e.lostLocked(o.Object, true)
	}
	e.seen = nil
}

func (e *entry) lostLocked(o *Object, evicted bool) {
	for _, t := range e.taps {
		if t.wants.empty() || t.wants.match(o) {
			t.lose(o, evicted)
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
	if p := s.pending[it]; p != nil && p.old == nil && p.new == nil && !t.removed {
		p.old, p.unheard, p.unknown, p.evicted = o, true, true, evicted
		return
	}
	if t.removed || s.pending[it] != nil {
		return // it is about to be told of something newer
	}
	s.pending[it] = &pending{change: change{old: o, final: o, unknown: true, evicted: evicted}, unheard: true}
	s.pushLocked(it)
}
