// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// Reach returns a resolver with the same answers, except that their connections
// are made by Dial. The resolver must list clusters and report changes.
func (f *Fleet) Reach(clusters resolver.Resolver) (resolver.Resolver, error) {
	lister, lists := resolver.AsLister(clusters)
	notifier, _ := resolver.AsNotifier(clusters)
	if !lists || notifier == nil {
		return nil, errors.New("embedded: the resolver lists no clusters, or reports no changes")
	}
	return &reached{Lister: lister, Notifier: notifier, of: clusters, fleet: f}, nil
}

// reached is a resolver of clusters that are reached over the network of a
// fleet.
type reached struct {
	resolver.Lister
	resolver.Notifier

	of    resolver.Resolver
	fleet *Fleet
}

// Resolve implements resolver.Resolver.
func (r *reached) Resolve(ctx context.Context, cluster resolver.Cluster) (resolver.Access, error) {
	found, err := r.of.Resolve(ctx, cluster)
	if err != nil {
		return found, err
	}
	config := found.Config()
	config.Dial = r.fleet.Dial
	access, err := resolver.NewAccess(config, found.Refs()...)
	return access.WithLabels(found.Labels()), err
}
