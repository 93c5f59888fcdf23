// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"cmp"

	"k8s.io/client-go/tools/cache"

	"github.com/fleetcache/fleetcache/informerpool/internal/delta"
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
	// LastDelivered is the state the handler last received. It is set for
	// Deleted if Old is a later state: the object changed before it was
	// deleted.
	LastDelivered *Object
	// FinalStateUnknown marks a Deleted event that was concluded from the
	// object's absence: Old is the last state seen, and there may have been
	// later ones.
	FinalStateUnknown bool
	// Evicted marks a Deleted event that makes no statement about the object:
	// its cluster was removed by [Pool.Evict] or [Lease.Retire].
	Evicted bool
}

// eventOf returns the event of a step.
func eventOf(key *Key, s delta.Step) Event {
	e := Event{
		Key:               *key,
		Type:              Updated,
		Old:               s.Old,
		New:               s.New,
		Initial:           s.Initial,
		Resync:            s.Resync,
		Requested:         s.Requested,
		LastDelivered:     s.LastDelivered,
		FinalStateUnknown: s.FinalStateUnknown,
		Evicted:           s.Evicted,
	}
	switch {
	case s.New == nil:
		e.Type = Deleted
	case s.Old == nil:
		e.Type = Added
	}

	return e
}

// Object returns the newest state the event carries.
func (e Event) Object() *Object { return cmp.Or(e.New, e.Old) }

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
// arrives as cache.DeletedFinalStateUnknown. It panics if h is nil.
func ResourceEventHandler(h cache.ResourceEventHandler) Handler {
	if h == nil {
		panic("informerpool: ResourceEventHandler: h is required")
	}
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

// ReplayHandler is a [Handler] that is notified where the initial objects of a
// lease end and its changes begin.
type ReplayHandler interface {
	Handler
	// Replayed is called once for each lease that was added, after Handle has
	// returned for the last initial object; calls of both never overlap. It is
	// not called for a lease that was removed before.
	Replayed(key Key)
}

// BriefHandler is a [Handler] that can receive the deletes of objects that came
// and went while it was busy, as handlers of client-go's informers do. Other
// handlers receive no event of an object that neither they nor a read have
// seen.
type BriefHandler interface {
	Handler
	// Brief reports whether to deliver these deletes; up to 10,000 wait for the
	// handler. It is called once, by Subscribe.
	Brief() bool
}

// wantsBrief reports whether a handler receives objects that came and went.
func wantsBrief(h Handler) bool {
	b, ok := h.(BriefHandler)
	return ok && b.Brief()
}
