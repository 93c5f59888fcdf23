// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/informerpool"
)

// ObjectFeed says which objects' events are wanted.
type ObjectFeed struct {
	// Kinds are the kinds, each as a typed object, an unstructured one or
	// [Kind], and all narrowed by Options. Without Kinds and Selections every
	// kind that is watched is meant.
	Kinds []client.Object
	// Selections are further kinds, each narrowed by options of its own. A kind
	// may be there more than once. An object that several watches cover is
	// delivered by each of them.
	Selections []Selection
	// Clusters selects clusters. Nil means all. It must be quick and always
	// give the same answer for a cluster.
	Clusters func(cluster client.ObjectKey) bool
	// Watch makes the feed hold a watch of each of the Kinds and Selections in
	// each selected cluster that is known, now and later, and has its events
	// from these watches alone. Without it the feed has the events of what
	// others watch.
	Watch bool
	// Options narrow the Kinds: client.InNamespace, MatchingLabels,
	// MatchingFields. With Watch the server selects. Without it the objects
	// that others watch are selected here, by what they were and what they are:
	// one whose labels cease to match is told as deleted. Of fields, only
	// metadata.name and metadata.namespace can be selected by then.
	Options []client.ListOption
	// Predicates let an event pass if all of them do: those of
	// controller-runtime work, and those written for a Go type, too. They are
	// given objects in the Form. An object that was asked for once more, by
	// Trigger or a resync, is a generic event to them, so that predicates that
	// look for changes let it pass. An object that does not fit the form
	// passes, which is logged: no predicate can be asked about it.
	Predicates []predicate.Predicate
	// Form is what Predicates are given. Defaults to [AsGiven]: typed objects
	// where Kinds or Selections name the kind by one. Predicates of
	// controller-runtime that read metadata alone cost no decoding.
	Form Form
	// ResyncInterval is the time after which all objects are delivered once
	// more, marked as Resync. Each is up to a fifth shorter, at random. Zero
	// means never.
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
	// Event has the objects, which are shared and read-only. DeepCopyObject
	// returns an unstructured object of one's own, and Into decodes.
	informerpool.Event
}

// ObjectEvents yields an event for every object there is, marked as Initial,
// and then what happens to them, until ctx ends, the loop is left, or the
// ClusterCache stops. While the loop is busy, events of an object are merged:
// it holds back nobody. Each range over it is a subscription of its own. The
// error is that of a kind or selector that cannot be, or an [*OptionError].
func (cc *ClusterCache) ObjectEvents(ctx context.Context, spec ObjectFeed) (iter.Seq[ObjectEvent], error) {
	if _, err := cc.selected(spec); err != nil {
		return nil, err
	}
	return func(yield func(ObjectEvent) bool) {
		cc.used()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		events := make(chan ObjectEvent)
		f, err := cc.newFeed(spec, func(e ObjectEvent, _ *views) {
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
