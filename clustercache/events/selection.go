// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Selection selects the objects whose events are delivered.
type Selection struct {
	// Kinds are the kinds, each as a typed object, an unstructured one or
	// clustercache.Kind, and all narrowed by Options. Without Kinds and
	// Narrowed, every watched kind is selected.
	Kinds []client.Object
	// Narrowed are further kinds, each narrowed by its own options. A kind may
	// occur more than once. An object that several watches cover is delivered
	// by each of them.
	Narrowed []NarrowedKind
	// Clusters reports whether a cluster is selected. Nil selects all. It must
	// be quick and always return the same result for a cluster.
	Clusters func(cluster client.ObjectKey) bool
	// ClusterSelector selects clusters by their labels
	// (resolver.Access.Labels), in addition to Clusters. Clusters enter and
	// leave the selection when their labels change; those whose labels are
	// unknown are not selected. A cluster that leaves is not watched any more
	// for this selection, and its objects, which still exist, are delivered
	// neither as deleted nor otherwise: a [Relabeled] event announces the
	// change. Nil selects all.
	ClusterSelector labels.Selector
	// Watch makes the selection hold a watch of each of the Kinds and
	// Narrowed in each selected cluster that is known, now and later, and
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
	// Defaults to [AsGiven]: typed objects where Kinds or Narrowed name the
	// kind by one. Predicates of controller-runtime that read only metadata
	// cost no decoding.
	Representation Representation
	// ResyncInterval is the time after which all objects are delivered once
	// more, marked as Resync. Each interval is shortened by up to a fifth, at
	// random. Zero means never.
	ResyncInterval time.Duration
}

// NarrowedKind is a kind with options that narrow it.
type NarrowedKind struct {
	// Kind is a typed object, an unstructured one or
	// clustercache.Kind. Required.
	Kind client.Object
	// Options narrow the kind, as [Selection].Options do.
	Options []client.ListOption
}
