// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/clustername"
)

// StaticResolver resolves clusters from configurations in the operator's own
// code.
type StaticResolver struct {
	accesses map[Cluster]Access // never changes
}

var (
	_ Resolver = (*StaticResolver)(nil)
	_ Lister   = (*StaticResolver)(nil)
)

// Static resolves the given clusters. The configurations are copied at once, as
// by [NewAccess]: they are the operator's own, so no policy applies. For
// answers that a function computes, use [Func].
func Static(configs map[Cluster]*rest.Config) (*StaticResolver, error) {
	accesses := make(map[Cluster]Access, len(configs))
	for cluster, config := range configs {
		access, err := NewAccess(config)
		if err != nil {
			return nil, fmt.Errorf("resolver: cluster %s: %w", clustername.Of(cluster), err)
		}
		accesses[cluster] = access
	}

	return &StaticResolver{accesses: accesses}, nil
}

// Resolve implements [Resolver]. It never blocks.
func (s *StaticResolver) Resolve(_ context.Context, cluster Cluster) (Access, error) {
	access, ok := s.accesses[cluster]
	if !ok {
		return Access{}, fail(cluster, ObjectRef{}, ErrClusterNotFound)
	}
	return access, nil
}

// Clusters implements [Lister].
func (s *StaticResolver) Clusters(context.Context) ([]Cluster, error) {
	return slices.SortedFunc(maps.Keys(s.accesses), clustername.Compare), nil
}
