// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/informerpool"
)

// ObjectSelection selects the objects whose events are delivered.
type ObjectSelection struct {
	// Kinds are the kinds, each as a typed object, an unstructured one or
	// [Kind], and all narrowed by Options. Without Kinds and Selections, every
	// watched kind is selected.
	Kinds []client.Object
	// Selections are further kinds, each narrowed by its own options. A kind
	// may occur more than once. An object that several watches cover is
	// delivered by each of them.
	Selections []Selection
	// Clusters reports whether a cluster is selected. Nil selects all. It must
	// be quick and always return the same result for a cluster.
	Clusters func(cluster client.ObjectKey) bool
	// ClusterSelector selects clusters by their labels
	// ([resolver.Access.Labels]), in addition to Clusters. Clusters enter and
	// leave the selection when their labels change; those whose labels are
	// unknown are not selected. A cluster that leaves is not watched any more
	// for this selection, and its objects, which still exist, are delivered
	// neither as deleted nor otherwise: a [Relabeled] event announces the
	// change. Nil selects all.
	ClusterSelector labels.Selector
	// Watch makes the selection hold a watch of each of the Kinds and
	// Selections in each selected cluster that is known, now and later, and
	// deliver events only from these watches. Without it the selection delivers
	// the events of watches of others.
	Watch bool
	// Owned selects the clusters that this replica owns, by Options.Sharding.
	// With Watch, the watches are held in those that it stands by for as well,
	// and in no others. When a cluster is gained, its objects are delivered
	// once more, marked as Resync.
	Owned bool
	// Options narrow the Kinds: client.InNamespace, MatchingLabels,
	// MatchingFields. With Watch, the server selects. Without it, the objects
	// that others watch are selected here, by their old and new states: an
	// object whose labels cease to match is delivered as deleted. Only the
	// fields metadata.name and metadata.namespace can be selected by then.
	Options []client.ListOption
	// Predicates let an event pass if all of them do. Both those of
	// controller-runtime and those that assert a Go type work. They receive
	// objects in the Representation. An object that Trigger or a resync
	// delivers once more is a generic event to them, so that predicates that
	// look for changes let it pass. An object that does not fit the
	// representation passes, which is logged, since no predicate can be called
	// with it.
	Predicates []predicate.Predicate
	// Representation is the representation of the objects passed to Predicates.
	// Defaults to [AsGiven]: typed objects where Kinds or Selections name the
	// kind by one. Predicates of controller-runtime that read only metadata
	// cost no decoding.
	Representation Representation
	// ResyncInterval is the time after which all objects are delivered once
	// more, marked as Resync. Each interval is shortened by up to a fifth, at
	// random. Zero means never.
	ResyncInterval time.Duration
}

// Selection is a kind with options that narrow it.
type Selection struct {
	// Kind is a typed object, an unstructured one or [Kind]. Required.
	Kind client.Object
	// Options narrow the kind, as ObjectSelection.Options do.
	Options []client.ListOption
}

// ObjectEvent is one change of one object in one cluster.
type ObjectEvent struct {
	// Cluster is the cluster of the object.
	Cluster client.ObjectKey
	// GVK is the object's kind.
	GVK schema.GroupVersionKind
	// Event has the objects, which are shared and read-only. DeepCopyObject
	// returns an unstructured copy that you may change, and Into decodes.
	informerpool.Event

	views *views
}

// As returns one of the event's objects, Old, New or LastDelivered, in a
// representation, and nil for nil. [AsGiven] is that of the ObjectSelection.
// Each object is decoded once: predicates and the handler share the result,
// which is read-only. The error is that of an object that does not fit the
// representation, of which the log has a line for each object and cause, or
// [ErrUnsupported].
func (e ObjectEvent) As(r Representation, o *informerpool.Object) (client.Object, error) {
	if e.views == nil || r > Metadata { // not made by a ClusterCache, or no representation
		return nil, ErrUnsupported
	}
	if o == nil {
		return nil, nil
	}
	return e.views.as(r, o)
}
