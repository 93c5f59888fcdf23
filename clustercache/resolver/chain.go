// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/changes"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// ChainResolver queries several resolvers in turn. It has the methods of
// [Notifier] and [Lister] whatever its resolvers are: [AsNotifier] and
// [AsLister] report which of them are meaningful.
type ChainResolver struct {
	resolvers []Resolver
}

var (
	_ Resolver = (*ChainResolver)(nil)
	_ Notifier = (*ChainResolver)(nil)
	_ Lister   = (*ChainResolver)(nil)
)

// Chain returns a resolver that queries the given ones in order and returns the
// first answer of one that knows the cluster. Only [ErrClusterNotFound] and
// [ErrSecretNotFound] pass on to the next: a cluster that one resolver refuses,
// or reports as not ready, must not be reached through another.
func Chain(resolvers ...Resolver) *ChainResolver {
	return &ChainResolver{resolvers: slices.Clone(resolvers)}
}

// String names the resolvers, as far as they have names.
func (c *ChainResolver) String() string {
	var names []string
	for _, r := range c.resolvers {
		if named, ok := r.(fmt.Stringer); ok {
			names = append(names, named.String())
		}
	}
	return strings.Join(names, ", ")
}

// Resolve implements [Resolver]. If no resolver knows the cluster, the error
// joins those of all resolvers, but omits [ErrClusterNotFound] if only some of
// them return it: a cluster whose Secret is missing may still appear, and is
// not gone because the other resolvers do not know it.
func (c *ChainResolver) Resolve(ctx context.Context, cluster Cluster) (Access, error) {
	var unknown, waiting []error
	for _, r := range c.resolvers {
		access, err := r.Resolve(ctx, cluster)
		switch {
		case err == nil:
			return access, nil
		case errors.Is(err, ErrSecretNotFound): // first: a member may join both
			waiting = append(waiting, err)
		case errors.Is(err, ErrClusterNotFound):
			unknown = append(unknown, err)
		default:
			return Access{}, err
		}
	}

	switch {
	case len(waiting) > 0:
		return Access{}, joined(waiting)
	case len(unknown) > 0:
		return Access{}, joined(unknown)
	}

	return Access{}, fail(cluster, ObjectRef{}, ErrClusterNotFound)
}

// joined returns a single error unchanged, so that its type is found without a
// search.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// errNotifyEnded indicates that a resolver of the chain reports no more changes.
var errNotifyEnded = errors.New("resolver: Notify of a resolver of the chain returned before its context ended")

// Notify implements [Notifier] with all resolvers of the chain that implement
// it. If one of them fails, panics or returns early, all end: otherwise the
// caller would receive some changes and assume that it receives all.
func (c *ChainResolver) Notify(ctx context.Context, changed func(Cluster)) error {
	out := changes.NewReader()
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range c.resolvers {
		if n, _ := AsNotifier(r); n != nil {
			group.Go(func() error {
				// On a goroutine of the group, a panic would end the process.
				err := callback.Apart("Resolver.Notify", func() error {
					return n.Notify(ctx, func(cluster Cluster) { out.Add(cluster) })
				})
				if err == nil && ctx.Err() == nil {
					return errNotifyEnded
				}
				return err
			})
		}
	}

	out.Deliver(ctx, changed)
	return group.Wait()
}

// Clusters implements [Lister] with all resolvers of the chain that implement
// it.
func (c *ChainResolver) Clusters(ctx context.Context) ([]Cluster, error) {
	var out []Cluster
	for _, r := range c.resolvers {
		l, ok := AsLister(r)
		if !ok {
			continue
		}
		clusters, err := l.Clusters(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, clusters...)
	}

	slices.SortFunc(out, clustername.Compare)
	return slices.Compact(out), nil
}

// asNotifier returns the chain if any of its resolvers reports changes. all
// reports whether the answers of all others never change.
func (c *ChainResolver) asNotifier() (n Notifier, all bool) {
	all = true
	for _, r := range c.resolvers {
		member, complete := AsNotifier(r)
		if member != nil {
			n = c
		}
		if _, constant := r.(*StaticResolver); !constant && !complete {
			all = false
		}
	}

	return n, all && n != nil
}

func (c *ChainResolver) asLister() (Lister, bool) {
	for _, r := range c.resolvers {
		if _, ok := AsLister(r); ok {
			return c, true
		}
	}
	return nil, false
}
