// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
)

// handlerSource delivers the events of objects to an event handler, which adds
// to the queue what it likes. It ends with its controller, and another
// controller can start it again.
type handlerSource struct {
	cc        *clustercache.ClusterCache
	selection events.Selection
	handler   handler.TypedEventHandler[client.Object, Request]
	kind      schema.GroupVersionKind // of requests that have none
}

// Start implements source.TypedSource. It does not block.
func (s *handlerSource) Start(ctx context.Context, queue ofAll) error {
	if !s.kind.Empty() {
		queue = newRequestQueue(queue, ofKind(s.kind))
	}
	selection := s.selection
	selection.Owned = true
	subscription, err := s.cc.Subscribe(selection, func(e events.Object) {
		if ctx.Err() == nil {
			s.handle(ctx, e, queue)
		}
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, subscription.Stop)
	subscription.Start()
	return nil
}

// String names the source and its kind in the controller's log.
func (s *handlerSource) String() string {
	return "fleetcache handler source" + kindsOf(s.cc, s.selection)
}

// handle is called by the subscription, which recovers from its panics. An
// object that is delivered once more, because its cluster was gained or a
// change was undone, is created as at the start of a controller: a handler
// that looks for changes would not request it otherwise.
func (s *handlerSource) handle(ctx context.Context, e events.Object, queue ofAll) {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, clusterKey{}, e.Cluster))
	defer cancel()
	last, before, after := s.view(e, e.LastDelivered), s.view(e, e.Old), s.view(e, e.New)
	if e.Type == informerpool.Deleted {
		if last != nil && before != nil && changed(last, before) {
			s.handler.Update(ctx, event.UpdateEvent{ObjectOld: last, ObjectNew: before}, queue)
		}
		if before != nil {
			s.handler.Delete(ctx, event.DeleteEvent{Object: before, DeleteStateUnknown: e.FinalStateUnknown}, queue)
		}
		return
	}

	switch {
	case after == nil:
	case before == nil || e.Resync:
		s.handler.Create(ctx, event.CreateEvent{Object: after, IsInInitialList: e.Initial || e.Resync}, queue)
	default:
		s.handler.Update(ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	}
}

// changed reports whether an object changed before it was deleted, by which it
// gets another version in any case.
func changed(before, deleted client.Object) bool {
	a, b := before.DeepCopyObject().(client.Object), deleted.DeepCopyObject().(client.Object)
	a.SetResourceVersion(b.GetResourceVersion())
	return !reflect.DeepEqual(a, b)
}

// view returns an object of an event as the handler receives it; nil if there
// is none, or if it does not fit the type.
func (s *handlerSource) view(e events.Object, o *informerpool.Object) client.Object {
	if o == nil {
		return nil
	}
	obj, err := e.As(events.AsGiven, o)
	if err != nil {
		return nil // As has logged it
	}
	return obj
}
