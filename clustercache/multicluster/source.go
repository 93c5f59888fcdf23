// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// MapFunc returns the requests to reconcile because of an object of a cluster.
// The object is in the representation in which the selection names its kind:
// typed for a typed object, see [events.AsGiven].
type MapFunc[N ~string, R comparable] func(ctx context.Context, name N, obj client.Object) []R

// Source makes sources of the objects' events of one cluster at a time, which
// multicluster-runtime requests when it engages a cluster: it satisfies its
// TypedSource[client.Object, R]. Starting a source does not block. The sources
// have the events of clusters that the ClusterCache knows, whichever provider
// engaged the cluster.Cluster.
type Source[N ~string, R comparable] struct {
	cc        *clustercache.ClusterCache
	selection events.Selection
	mapping   MapFunc[N, R]
	names     Names
}

// NewSource returns a source of the objects that selection selects; each source
// of a cluster holds a watch of the kinds there, regardless of selection.Watch.
// It does no I/O and starts nothing. It panics if cc or mapping is nil.
func NewSource[N ~string, R comparable](
	cc *clustercache.ClusterCache, selection events.Selection, mapping MapFunc[N, R], names Names,
) *Source[N, R] {
	if cc == nil || mapping == nil {
		panic("multicluster: NewSource: cc and mapping are required")
	}
	selection.Watch = true
	return &Source[N, R]{
		cc:        cc,
		selection: selection,
		mapping:   mapping,
		names:     names.withDefaults(),
	}
}

// ForCluster returns the source of a cluster; false if selection does not
// select it, or no cluster has the name. An error means that a function
// panicked.
func (s *Source[N, R]) ForCluster(name N, _ cluster.Cluster) (source.TypedSource[R], bool, error) {
	var key client.ObjectKey
	var ok bool
	err := s.cc.Protect("Names.Key", func() error {
		key, ok = s.names.Key(string(name))
		return nil
	}, "name", string(name))
	if err == nil && ok && s.selection.Clusters != nil {
		err = s.cc.Protect("Selection.Clusters", func() error {
			ok = s.selection.Clusters(key)
			return nil
		}, "cluster", clustername.Of(key))
	}

	if err != nil || !ok {
		return nil, false, err
	}
	selection := s.selection
	selection.Clusters = func(cluster client.ObjectKey) bool { return cluster == key }

	mapping := func(ctx context.Context, _ client.ObjectKey, obj client.Object) []R {
		return s.mapping(ctx, name, obj)
	}
	return controller.ObjectSource(s.cc, selection, mapping), true, nil
}
