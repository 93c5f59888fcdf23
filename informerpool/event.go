// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"k8s.io/client-go/tools/cache"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
)

// EventType is the kind of change an [Event] describes.
type EventType string

// Types of an [Event].
const (
	Added   EventType = "Added"
	Updated EventType = "Updated"
	Deleted EventType = "Deleted"
)

// Event is one change of one object, as one subscription sees it. Changes that
// arrive while the handler is busy are merged into one event, which leads from
// the state the handler last received to the newest one.
type Event struct {
	// Key is the key of the lease the event came through.
	Key Key
	// Type determines which of Old and New are set.
	Type EventType
	// Old is, for Updated, the state the handler last received and, for
	// Deleted, the last known state.
	Old *Object
	// New is the current state; set for Added and Updated.
	New *Object
	// Initial marks objects that existed when the lease was added to the
	// subscription, or when its informer first synced.
	Initial bool
	// Resync marks an Updated event that was requested and carries no change.
	// It also marks the event for changes that were undone, for example by a
	// restore of etcd, if a read has returned the undone state, or may have
	// while the handler was busy.
	Resync bool
	// Requested reports that Resync or Trigger asked for the object since its
	// last event, or that the event was sent because changes were undone. If
	// Resync is false, the object has changed as well.
	Requested bool
	// Told is the state the handler last received. It is set for Deleted if Old
	// is a later state: the object changed before it was deleted.
	Told *Object
	// FinalStateUnknown marks a Deleted event that was concluded from the
	// object's absence: Old is the last state seen, and there may have been
	// later ones.
	FinalStateUnknown bool
	// Evicted marks a Deleted event that makes no statement about the object:
	// its cluster was removed by [Pool.Evict] or [Lease.Retire].
	Evicted bool
}

// Object returns the newest state the event carries.
func (e Event) Object() *Object {
	if e.New != nil {
		return e.New
	}
	return e.Old
}

// Handler receives the events of a subscription, one at a time. A slow handler
// delays no other subscription; changes of the same object are merged
// meanwhile. Handle may call anything in this package, and may release the
// lease whose events it receives. The objects are shared and read-only. A panic
// is counted, and delivery continues with the next event.
type Handler interface {
	Handle(e Event)
}

// HandlerFunc adapts a function to a [Handler].
type HandlerFunc func(e Event)

// Handle implements Handler.
func (f HandlerFunc) Handle(e Event) { f(e) }

// ResourceEventHandler returns a Handler that calls h, a handler written for
// client-go. h receives values of type [*Object], which implements
// controller-runtime's client.Object. A delete whose final state is unknown
// arrives as cache.DeletedFinalStateUnknown.
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

// change is one change of one object of one informer.
type change struct {
	old     *Object // the state before, nil if there was none
	new     *Object // the state after, nil if there is none
	final   *Object // of a delete: the state the object ended with
	unknown bool    // of a delete: concluded from the object's absence
	evicted bool    // of a delete: the cluster was removed
	initial bool
	resync  bool
	sight   store.Moment // from when on reads could see the change
}

// narrow returns the change as seen through a filter: an object that begins to
// match is added, one that stops matching is deleted. It reports false if
// neither state matches.
func (c change) narrow(f filter) (change, bool) {
	if f.empty() {
		return c, true
	}
	was, is := f.match(c.old), f.match(c.new)
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

// pending is the undelivered change of one object in a subscription: from the
// state the handler last received to the newest one.
type pending struct {
	change

	asked   bool    // by Resync or Trigger
	unheard bool    // old was only read: the handler did not receive it
	shown   *Object // a read returned it: its delete is delivered, though the object came and went

	brief []*Object // objects of the name that came and went, for a BriefHandler
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
		p.old, p.unheard = nil, false // the object exists, and the handler has not received it
	case p.isEmpty() && p.wasShown(c):
		p.old, p.unheard = p.shown, true
	case p.isEmpty():
		p.final = nil // nothing is delivered
	}
}

// wasShown reports whether an object that came and went was read meanwhile, and
// records its last state. A read of the informer may have returned it.
func (p *pending) wasShown(c change) bool {
	last := c.final
	if last == nil {
		last = c.old
	}
	if p.sight.Read() || p.shown != nil && last != nil && last.GetUID() == p.shown.GetUID() {
		p.shown = last
	}
	return p.shown != nil
}

// isEmpty reports whether there is nothing to deliver: the object came and
// went.
func (p *pending) isEmpty() bool { return p.old == nil && p.new == nil }

// isVoid reports whether no event is left to deliver.
func (p *pending) isVoid() bool { return p.isEmpty() && len(p.brief) == 0 }

// events returns the events that are left to deliver: none, one, or a delete
// and an add where one object took another's name.
func (p *pending) events(key Key) []Event {
	deleted := Event{
		Key:               key,
		Type:              Deleted,
		Old:               p.old,
		FinalStateUnknown: p.unknown,
		Evicted:           p.evicted,
		Requested:         p.asked,
	}
	switch {
	case p.final == nil || p.old == nil || p.final.GetUID() != p.old.GetUID():
		deleted.FinalStateUnknown = true
	case p.final != p.old:
		deleted.Old, deleted.Told = p.final, p.old
	}

	added := Event{
		Key:       key,
		Type:      Added,
		New:       p.new,
		Initial:   p.initial,
		Requested: p.asked,
	}
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

	return []Event{{
		Key:       key,
		Type:      Updated,
		Old:       p.old,
		New:       p.new,
		Resync:    p.resync || p.old == p.new,
		Requested: p.asked,
	}}
}

// ReplayHandler is a [Handler] that is notified where the initial objects of a
// lease end and its changes begin.
type ReplayHandler interface {
	Handler
	// Replayed is called once for each lease that was added, after Handle has
	// returned for the last initial object; calls of both never overlap. It is
	// not called for a lease that was removed before.
	Replayed(key Key)
}
