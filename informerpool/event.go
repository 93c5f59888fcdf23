// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"k8s.io/client-go/tools/cache"
)

// EventType says what happened to an object.
type EventType string

// Types of an [Event].
const (
	Added   EventType = "Added"
	Updated EventType = "Updated"
	Deleted EventType = "Deleted"
)

// Event is one change of one object, as seen by one subscription: several
// changes that came while its handler was busy are one event from the last
// state it was told of to the newest.
type Event struct {
	// Key is the key of the lease the event came through.
	Key Key
	// Type says which of the objects are set.
	Type EventType
	// Old is the state the handler was told of last; set for Updated, and for
	// Deleted the last state known.
	Old *Object
	// New is the state now; set for Added and Updated.
	New *Object
	// Initial marks the objects that were there when the lease was added to the
	// subscription, or when its informer first synced.
	Initial bool
	// Resync marks an Updated event that was asked for and is no change. So are
	// changes told of that were undone while the handler was busy, as where
	// etcd was restored: reads may have shown them.
	Resync bool
	// Requested tells that the object was asked for, by Resync or Trigger,
	// since it was last told of, or that it is told of since changes were
	// undone. Without Resync there is news as well.
	Requested bool
	// Told is the state the handler was told of last, for Deleted, where that
	// is not Old: the object changed before it was deleted.
	Told *Object
	// FinalStateUnknown marks a Deleted event that was concluded from the
	// object's absence: Old is the last state seen, and there may have been
	// later ones.
	FinalStateUnknown bool
	// Evicted marks a Deleted event that says nothing about the object: its
	// cluster was taken away, by [Pool.Evict] or [Lease.Retire].
	Evicted bool
}

// Object returns the newest state the event carries.
func (e Event) Object() *Object {
	if e.New != nil {
		return e.New
	}
	return e.Old
}

// Handler receives the events of a subscription, one at a time. It may take its
// time: that delays nobody else, and changes of the same object are merged
// meanwhile. It may call anything of this package, and releasing what it
// listens to is fine. The objects are shared and read-only. A panic is counted,
// and the next event is delivered.
type Handler interface {
	Handle(e Event)
}

// HandlerFunc is a Handler.
type HandlerFunc func(e Event)

// Handle implements Handler.
func (f HandlerFunc) Handle(e Event) { f(e) }

// ResourceEventHandler returns a Handler that calls one written for client-go.
// It is given [*Object]s, which implement controller-runtime's client.Object; a
// delete whose final state is unknown arrives as
// cache.DeletedFinalStateUnknown.
func ResourceEventHandler(h cache.ResourceEventHandler) Handler {
	return HandlerFunc(func(e Event) {
		switch {
		case e.Type == Added:
			h.OnAdd(e.New, e.Initial)
		case e.Type == Updated:
			h.OnUpdate(e.Old, e.New)
		case e.FinalStateUnknown:
			key, _ := cache.MetaNamespaceKeyFunc(e.Old)
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: key, Obj: e.Old})
		default:
			h.OnDelete(e.Old)
		}
	})
}

// change is what happened to one object of one informer.
type change struct {
	old     *Object // the state before, nil if there was none
	new     *Object // the state after, nil if there is none
	final   *Object // of a delete: the state it ended with
	unknown bool    // of a delete: it was concluded from absence
	evicted bool    // of a delete: the cluster was taken away
	initial bool
	resync  bool
	sight   moment // from when on reads could see it
}

// narrow returns the change as seen through a sieve: an object that comes to
// match is new, one that ceases to is gone.
func (c change) narrow(s sieve) (change, bool) {
	if s.empty() {
		return c, true
	}
	was, is := s.match(c.old), s.match(c.new)
	switch {
	case was && is:
	case is:
		c.old = nil
	case was:
		if c.final == nil {
			c.final = c.new
		}
		c.new = nil
	default:
		return c, false
	}
	return c, true
}

// pending is what a subscription still has to tell of one object: from the
// state it told of last to the newest.
type pending struct {
	change

	asked   bool    // by Resync or Trigger
	unheard bool    // old was only seen: the handler was not told of it
	shown   *Object // it was seen: its delete is told, though it came and went
}

// merge adds a later change.
func (p *pending) merge(c change) {
	p.resync = p.resync && c.resync
	p.asked = p.asked || c.resync
	if p.isEmpty() {
		p.sight = c.sight
	}
	if p.new = c.new; c.new == nil {
		p.final, p.unknown, p.evicted = c.final, c.unknown, c.evicted
	}
	switch {
	case p.unheard && c.new != nil && p.old.GetUID() == c.new.GetUID():
		p.shown = p.old
		p.old, p.unheard = nil, false // it is there, and was not told of
	case p.isEmpty() && p.wasShown(c):
		p.old, p.unheard = p.shown, true
	case p.isEmpty():
		p.final = nil // nothing is told of it
	}
}

// wasShown reports whether an object that came and went was seen meanwhile, and
// notes the last state of it. A read of the informer may have seen it.
func (p *pending) wasShown(c change) bool {
	last := c.final
	if last == nil {
		last = c.old
	}
	if p.sight.read() || p.shown != nil && last != nil && last.GetUID() == p.shown.GetUID() {
		p.shown = last
	}
	return p.shown != nil
}

// isEmpty reports whether there is nothing to tell: it came and went.
func (p *pending) isEmpty() bool { return p.old == nil && p.new == nil }

// events returns what is left to tell: nothing, one event, or a delete and an
// add where one object took another's name.
func (p *pending) events(key Key) []Event {
	deleted := Event{Key: key, Type: Deleted, Old: p.old, FinalStateUnknown: p.unknown, Evicted: p.evicted, Requested: p.asked}
	switch {
	case p.final == nil || p.old == nil || p.final.GetUID() != p.old.GetUID():
		deleted.FinalStateUnknown = true
	case p.final != p.old:
		deleted.Old, deleted.Told = p.final, p.old
	}
	added := Event{Key: key, Type: Added, New: p.new, Initial: p.initial, Requested: p.asked}
	switch {
	case p.isEmpty():
		return nil // before its turn
	case p.old == nil:
		return []Event{added}
	case p.new == nil:
		return []Event{deleted}
	case p.old.GetUID() != p.new.GetUID():
		return []Event{deleted, added}
	case p.old == p.new && !p.asked:
		return nil
	}
	return []Event{{Key: key, Type: Updated, Old: p.old, New: p.new, Resync: p.resync || p.old == p.new, Requested: p.asked}}
}
