// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// ChainResolver asks several resolvers in turn.
type ChainResolver struct {
	resolvers []Resolver
}

var (
	_ Resolver = (*ChainResolver)(nil)
	_ Notifier = (*ChainResolver)(nil)
	_ Lister   = (*ChainResolver)(nil)
)

// Chain asks the resolvers in order and returns the first answer of one that knows the cluster. Only
// [ErrClusterNotFound] and [ErrSecretNotFound] pass on to the next: a cluster that is refused, or not ready, at one
// resolver must not be reached by another way.
func Chain(resolvers ...Resolver) *ChainResolver {
	return &ChainResolver{resolvers: slices.Clone(resolvers)}
}

// Resolve implements [Resolver]. If no resolver knows the cluster, the error joins what each of them said.
func (c *ChainResolver) Resolve(ctx context.Context, cluster Cluster) (Access, error) {
	var unknown []error
	for _, r := range c.resolvers {
		access, err := r.Resolve(ctx, cluster)
		if err == nil {
			return access, nil
		}
		if !errors.Is(err, ErrClusterNotFound) && !errors.Is(err, ErrSecretNotFound) {
			return Access{}, err
		}
		unknown = append(unknown, err)
	}
	if len(unknown) == 0 {
		return Access{}, fail(cluster, ObjectRef{}, ErrClusterNotFound)
	}
	return Access{}, errors.Join(unknown...)
}

// Notify implements [Notifier] by all resolvers of the chain that implement it. If one of them fails, all end,
// since a caller who is told of some changes would believe to be told of all.
func (c *ChainResolver) Notify(ctx context.Context, changed func(Cluster)) error {
	out := newReader()
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range c.resolvers {
		if n, ok := r.(Notifier); ok {
			group.Go(func() error {
				return n.Notify(ctx, func(cluster Cluster) { out.add(cluster) })
			})
		}
	}
	out.deliver(ctx, changed)
	return group.Wait()
}

// Clusters implements [Lister] by all resolvers of the chain that implement it.
func (c *ChainResolver) Clusters(ctx context.Context) ([]Cluster, error) {
	var out []Cluster
	for _, r := range c.resolvers {
		l, ok := r.(Lister)
		if !ok {
			continue
		}
		clusters, err := l.Clusters(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, clusters...)
	}
	slices.SortFunc(out, compareClusters)
	return slices.Compact(out), nil
}
