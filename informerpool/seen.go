// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/selector"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// maxSeen is how many objects an informer remembers that its users saw in other
// ways, and maxSeenBytes the memory for those of a cluster. That memory is not
// part of the cluster's budget: otherwise it could keep an informer from its
// share. Users do not receive the deletes of objects beyond these limits.
const (
	maxSeen      = 10_000
	maxSeenBytes = 8 << 20
)

// seenAuditPace is the shortest time between two audits that seen objects
// request.
const seenAuditPace = time.Minute

// seen is an object that was shown in another way than by the informer.
type seen struct {
	*Object

	looks  int  // how many looks at its server the informer had begun before
	asked  bool // an audit was requested, since the stream contradicts the object
	passed bool // handlers have received everything there is to deliver
	// adrift is when the server's history became another one than that in which
	// the object may have been seen; zero if it did not.
	adrift time.Time
}

// seenObjects are the objects that users were shown in other ways, and that are
// not in the store yet. informer.mu protects them.
type seenObjects struct {
	informer *informer

	objects map[types.NamespacedName]*seen
	bytes   int64     // their memory
	looks   int       // lists and audits that have begun
	audited time.Time // when an audit was last requested because of one
}

// incomparable reports whether the version of the seen object says nothing
// about the server's history any more. For a while it still does, since the
// object may have been seen in the new history, on a server that was ahead.
func (s *seen) incomparable() bool { return !s.adrift.IsZero() && time.Since(s.adrift) >= auditLag }

// Seen records that the lease's user was shown an object in another way than
// through the lease, for example by a live read before the first list. If a
// list that is no older lacks the object, it was deleted unseen: handlers
// receive a delete with an unknown final state, although they did not receive
// the object before. Otherwise a user that acted on the object would never
// learn that it is gone. A stream that passes that state without the object
// proves nothing, since it may belong to a history that is over: the informer
// is then compared with its server at once. If the object exists in an earlier
// state, or another object has its name, as when etcd was restored after the
// read, handlers receive that object once more, marked as a resync. Seen
// ignores objects that the lease does not select, and objects beyond the first
// 10,000 pending ones or 8 MiB of a cluster's. They are not part of the
// cluster's budget.
func (l *Lease) Seen(u *unstructured.Unstructured) {
	key := l.Key()
	if !selector.Local(key.FieldSelector) {
		return
	}
	codec := l.pool.codec
	o, err := codec.PackApart(codec.Kind(u.GroupVersionKind()), u)
	if err != nil || !newSelector(Key{}, key).Match(o) {
		return
	}
	i := l.at.lock().informer
	ask := l.gone() == nil && i.mu.seen.note(o)
	i.mu.Unlock()

	if ask {
		l.pool.audits.seen(i)
	}
}

// noteShown is Seen for objects that another informer of the resource has shown.
// While the informer has no handler they are ignored: a later handler does not
// receive the deletes of earlier objects.
func (i *informer) noteShown(objects []*Object) (ask bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.mu.listeners) == 0 || i.ctx.Err() != nil {
		return false
	}
	for _, o := range objects {
		s := i.mu.seen.objects[store.ViewOf(o)]
		if again := s != nil && s.Object == o && !i.mu.synced; !again { // reads may repeat as fast as they like
			ask = i.mu.seen.note(o) || ask
		}
	}
	return ask
}

func (s *seenObjects) note(o *Object) (ask bool) {
	name, size := store.NameOf(o), int64(o.Size())
	if now := s.informer.mu.store.Get(name.Namespace, name.Name); passes(now, o) {
		s.later(o, now)
		return false
	}
	switch before := s.objects[name]; {
	case before != nil && ordering.Older(o, before.Object):
		return false
	case before != nil:
		s.drop(name)
	}

	if len(s.objects) >= maxSeen || s.informer.cluster.seenBytes.Load()+size > maxSeenBytes {
		return false
	}
	if s.objects == nil {
		s.objects = map[types.NamespacedName]*seen{}
	}
	s.objects[name] = &seen{Object: o, looks: s.looks}
	s.weigh(s.bytes + size)

	return s.informer.mu.synced && s.settle()
}

// passes reports whether a state of the store is the one that was seen under
// its name, or a later one. Two objects of one history never have the same
// version.
func passes(now, seen *Object) bool {
	_, ordered := seen.Version()
	return now != nil && !ordering.Older(now, seen) &&
		(ordering.Older(seen, now) || now.GetUID() == seen.GetUID() || !ordered)
}

// later handles an object of which the store has a later state than was shown.
// Handlers have received that state, or are about to. A handler that selects the
// state that was shown and not the current one receives a delete.
func (s *seenObjects) later(o, now *Object) {
	s.drop(store.NameOf(o))
	for _, ln := range s.informer.mu.listeners {
		if ln.filter.Match(o) && !ln.filter.Match(now) {
			ln.lose(o, false)
		}
	}
	s.shown(o)
}

// take takes over the objects that the user of a lease was shown while another
// informer served it: that informer may not have known them either. It reports
// whether to request an audit: a list that has passed them may have been
// complete before, and proves nothing then. The locks of both informers are
// held.
func (s *seenObjects) take(from *informer, key Key) (ask bool) {
	if from == s.informer || !selector.Local(key.FieldSelector) {
		return false
	}
	selected := newSelector(Key{}, key)
	for name, saw := range from.mu.seen.objects {
		if s.objects[name] != nil || !selected.Match(saw.Object) {
			continue
		}
		ask = s.note(saw.Object) || ask
		if taken := s.objects[name]; taken != nil {
			taken.adrift = saw.adrift
		}
	}

	return ask
}

func (s *seenObjects) drop(name types.NamespacedName) {
	saw := s.objects[name]
	if saw == nil {
		return
	}
	delete(s.objects, name)
	s.weigh(s.bytes - int64(saw.Size()))
}

// weigh records the memory that seen objects take.
func (s *seenObjects) weigh(bytes int64) {
	s.informer.cluster.seenBytes.Add(bytes - s.bytes)
	s.bytes = bytes
}

// look numbers a list, or an audit, that begins.
func (s *seenObjects) look() int {
	s.looks++
	return s.looks
}

// loosen records that the server's history is another one from now on, and may
// differ from the one in which objects were seen. The current look at the server
// began before.
func (s *seenObjects) loosen() {
	for _, o := range s.objects {
		if o.adrift.IsZero() {
			o.adrift, o.looks, o.asked = time.Now(), s.looks, false
		}
	}
}

// settle drops the objects that the store has in the state that was seen, or a
// later one: handlers receive the changes of those as of all others. It reports
// whether to request an audit, since the stream has passed a state without
// bringing it.
func (s *seenObjects) settle() (ask bool) {
	if len(s.objects) == 0 {
		return false
	}
	pause := time.Since(s.audited) < seenAuditPace
	for name, o := range s.objects {
		now := s.informer.mu.store.Get(name.Namespace, name.Name)
		switch {
		case passes(now, o.Object):
			s.passed(name, now, now)
			s.found(name)
		case o.asked, pause, s.informer.mu.refused.Has(name),
			ordering.Behind(s.informer.mu.rv, o.GetResourceVersion()) && !o.incomparable():
		default:
			o.asked, ask = true, true
		}
	}

	if ask {
		s.audited = time.Now()
	}
	return ask
}

// missed settles seen objects by a list of the server: now returns the list's
// object of a name. Objects seen at a later version than rv are left alone,
// unless rv is empty. The first list may have begun before an object was seen.
// Any other list must have begun afterwards, since it may be of a history that
// was left meanwhile. The store is still the one before the list. The caller
// must pass the returned names to found once the changes are delivered.
func (s *seenObjects) missed(
	look int, rv string, first bool, now func(types.NamespacedName) *Object,
) (found []types.NamespacedName) {
	for name, o := range s.objects {
		is := now(name)
		early := !first && o.looks >= look || ordering.Behind(rv, o.GetResourceVersion()) && !o.incomparable()
		if s.informer.mu.refused.Has(name) || early && (is == nil || ordering.Older(is, o.Object)) {
			continue
		}
		s.passed(name, s.informer.mu.store.Get(name.Namespace, name.Name), is)
		found = append(found, name)
	}

	return found
}

// passed is called before a change from old to now is delivered, now being no
// earlier than the object that was seen under the name. A handler that receives
// the seen object in neither of the two states receives its delete here: it was
// another object of that name, or was selected only in between. A handler that
// has received another object of the name receives the delete of that one: if it
// received the seen one first, its own object would end under another uid, or
// end twice.
//
// The object that a handler has received may stay unchanged and be earlier than
// the seen one: the seen one is then of a history that is over. Its delete
// would leave the handler without an object that exists, so the handler
// receives that object once more instead.
func (s *seenObjects) passed(name types.NamespacedName, old, now *Object) {
	saw := s.objects[name]
	if saw == nil || saw.passed {
		return
	}
	saw.passed = true // a list passes it, and then the change that it makes
	for _, ln := range s.informer.mu.listeners {
		known := ln.knows(name, old)
		switch {
		case known != nil && !ln.stays(known, now): // the change is delivered
		case known != nil && !passes(known, saw.Object):
			ln.offerAll(delta.Resync(known))
		case known == nil && ln.misses(saw.Object, old, now):
			ln.lose(saw.Object, false)
		}
	}
}

// knows returns the object that the handler has received under a name, or is
// about to receive, or nil. That is the informer's object or, until the
// informer has listed, the one received through another informer.
func (ln *listener) knows(name types.NamespacedName, cached *Object) *Object {
	if ln.inherited != nil {
		return ln.inherited[name]
	}
	if ln.filter.Match(cached) {
		return cached
	}
	return nil
}

// stays reports whether the handler receives no change between the object it
// knows and the current one.
func (ln *listener) stays(known, now *Object) bool {
	if ln.inherited == nil {
		return known == now
	}
	return ln.filter.Match(now) && known.GetUID() == now.GetUID() && ordering.SameState(known, now)
}

// misses reports whether the handler selects a seen object and receives it in
// none of the informer's states.
func (ln *listener) misses(seen *Object, states ...*Object) bool {
	return ln.filter.Match(seen) && !slices.ContainsFunc(states, func(o *Object) bool {
		return o != nil && o.GetUID() == seen.GetUID() && ln.filter.Match(o)
	})
}

// reaches reports whether a state that the stream shows is no earlier than the
// object that was seen under its name.
func (s *seenObjects) reaches(o *Object) bool {
	saw := s.objects[store.ViewOf(o)]
	return saw != nil && passes(o, saw.Object)
}

// found drops a seen object that the store has had by now. As long as a
// handler has not received it, its delete is still to be delivered.
func (s *seenObjects) found(name types.NamespacedName) {
	saw := s.objects[name]
	if saw == nil {
		return
	}
	s.drop(name)
	s.shown(saw.Object)
}

// shown records that an object was shown which handlers are about to receive.
func (s *seenObjects) shown(o *Object) {
	for _, ln := range s.informer.mu.listeners {
		ln.sub.mu.Lock()
		if p := ln.sub.mu.pending[item{listener: ln, namespace: o.GetNamespace(), name: o.GetName()}]; p != nil {
			p.Show(o)
		}
		ln.sub.mu.Unlock()
	}
}

// forget delivers the deletes of all seen objects, because the cluster is gone.
// Objects that the store has, too, are deleted with the store.
func (s *seenObjects) forget() {
	for _, ln := range s.informer.mu.listeners {
		ln.evictSeenLocked(s.informer)
	}
	s.objects = nil
	s.weigh(0)
}

func (ln *listener) evictSeenLocked(i *informer) {
	for name, o := range i.mu.seen.objects {
		now := i.mu.store.Get(name.Namespace, name.Name)
		if ln.knows(name, now) == nil && ln.misses(o.Object, now) {
			ln.lose(o.Object, true)
		}
	}
}
