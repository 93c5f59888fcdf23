// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/informerpool"
)

// ObjectFeed says which objects' events are wanted.
type ObjectFeed struct {
	// Kinds are the kinds, each as a typed object, an unstructured one or [Kind], and all narrowed by Options. Without Kinds
	// and Selections every kind that is watched is meant.
	Kinds []client.Object
	// Selections are further kinds, each narrowed by options of its own. A kind may be there more than once. An object that
	// several watches cover is delivered by each of them.
	Selections []Selection
	// Clusters selects clusters. Nil means all. It must be quick and always give the same answer for a cluster.
	Clusters func(cluster client.ObjectKey) bool
	// Watch makes the feed hold a watch of each of the Kinds and Selections in each selected cluster that is known, now and
	// later, and has its events from these watches alone. Without it the feed has the events of what others watch.
	Watch bool
	// Options narrow the Kinds: client.InNamespace, MatchingLabels, MatchingFields. With Watch the server selects. Without it
	// the objects that others watch are selected here, by what they were and what they are: one whose labels cease to match is told
	// as deleted. Of fields, only metadata.name and metadata.namespace can be selected by then.
	Options []client.ListOption
	// Predicates let an event pass if all of them do: those of controller-runtime work. They are given the cached objects, of
	// which they read the metadata without decoding. An object that was asked for once more, by Trigger or a resync, is a
	// generic event to them, so that predicates that look for changes let it pass.
	Predicates []predicate.Predicate
	// ResyncInterval is the time after which all objects are delivered once more, marked as Resync. Each is up to a fifth
	// shorter, at random. Zero means never.
	ResyncInterval time.Duration
}

// Selection is a kind, narrowed.
type Selection struct {
	// Kind is a typed object, an unstructured one or [Kind]. Required.
	Kind client.Object
	// Options narrow it, as ObjectFeed.Options do.
	Options []client.ListOption
}

// ObjectEvent is one change of one object in one cluster.
type ObjectEvent struct {
	// Cluster is where the object is.
	Cluster client.ObjectKey
	// GVK is the object's kind.
	GVK schema.GroupVersionKind
	// Event has the objects, which are shared and read-only. DeepCopyObject returns an unstructured object of one's own, and Into decodes.
	informerpool.Event
}

// ObjectEvents yields an event for every object there is, marked as Initial, and then what happens to them, until ctx
// ends, the loop is left, or the ClusterCache stops. While the loop is busy, events of an object are merged: it holds back nobody. Each
// range over it is a subscription of its own. The error is that of a kind or selector that cannot be, or an [*OptionError].
func (cc *ClusterCache) ObjectEvents(ctx context.Context, spec ObjectFeed) (iter.Seq[ObjectEvent], error) {
	if _, err := cc.selected(spec); err != nil {
		return nil, err
	}
	return func(yield func(ObjectEvent) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		events := make(chan ObjectEvent)
		f, err := cc.newFeed(spec, func(e ObjectEvent) {
			select {
			case events <- e:
			case <-ctx.Done():
			case <-cc.ctx.Done():
			}
		})
		if err != nil {
			return // it was checked; only the end of the cache is left
		}
		defer f.stop()
		f.start()
		for {
			select {
			case e := <-events:
				if !yield(e) {
					return
				}
			case <-ctx.Done():
				return
			case <-cc.ctx.Done():
				return
			}
		}
	}, nil
}

// passes tells whether predicates let an event pass. What was asked for passes as what happened or as a generic event.
func passes(predicates []predicate.Predicate, e informerpool.Event) bool {
	all := func(each func(p predicate.Predicate) bool) bool {
		for _, p := range predicates {
			if !each(p) {
				return false
			}
		}
		return true
	}
	if e.Requested && all(func(p predicate.Predicate) bool { return p.Generic(event.GenericEvent{Object: e.Object()}) }) {
		return true
	}
	return all(func(p predicate.Predicate) bool {
		switch e.Type {
		case informerpool.Added:
			return p.Create(event.CreateEvent{Object: e.New, IsInInitialList: e.Initial})
		case informerpool.Deleted:
			return p.Delete(event.DeleteEvent{Object: e.Old, DeleteStateUnknown: e.FinalStateUnknown})
		}
		return !e.Resync && p.Update(event.UpdateEvent{ObjectOld: e.Old, ObjectNew: e.New})
	})
}
