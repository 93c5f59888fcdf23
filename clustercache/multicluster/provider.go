// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
)

// Aware is what clusters are engaged with: the Aware of multicluster-runtime, whose name for a cluster is N. Engage must
// return when its context ends.
type Aware[N ~string] interface {
	Engage(ctx context.Context, name N, cl cluster.Cluster) error
}

// ProviderOptions configure a [Provider]. The zero value works, but see NotFound.
type ProviderOptions struct {
	// NotFound is wrapped by what Get returns of a cluster that is not known, or that was removed. Give
	// multicluster-runtime's ErrClusterNotFound, by which it drops requests of such clusters. A cluster that cannot be
	// reached is found.
	NotFound error
	// Names say how the clusters are called.
	Names Names
	// Clusters selects clusters. Nil means all that are known. It must be quick and always give the same answer for a cluster.
	Clusters func(cluster client.ObjectKey) bool
}

// Provider shows the clusters of a ClusterCache to multicluster-runtime: Provider[multicluster.ClusterName,
// multicluster.Aware] is both its Provider and its ProviderRunnable, and Provider[string, multicluster.Aware] that of releases
// whose names are plain strings. All methods may be called from many goroutines.
type Provider[N ~string, A Aware[N]] struct {
	s *Clusters
	o ProviderOptions
}

// NewProvider returns a provider. It does no I/O and starts nothing. The hub itself, the zero key, is never engaged: it
// is what the manager calls its local cluster.
func NewProvider[N ~string, A Aware[N]](s *Clusters, o ProviderOptions) *Provider[N, A] {
	o.Names = o.Names.withDefaults()
	return &Provider[N, A]{s: s, o: o}
}

// name returns what a cluster is called, if it is to be engaged.
func (p *Provider[N, A]) name(key client.ObjectKey) (N, bool) {
	if key == (client.ObjectKey{}) || (p.o.Clusters != nil && !p.o.Clusters(key)) {
		return "", false
	}
	name := p.o.Names.Name(key)
	return N(name), name != ""
}

// Get returns a known cluster, reachable or not. It does no I/O. The error wraps ProviderOptions.NotFound and
// [clustercache.ErrUnknownCluster]; after the end it is [clustercache.ErrClosed].
func (p *Provider[N, A]) Get(_ context.Context, name N) (cluster.Cluster, error) {
	key, ok := p.o.Names.Key(string(name))
	if ok {
		_, ok = p.name(key)
	}
	if !ok {
		return nil, p.notFound(name, clustercache.ErrUnknownCluster)
	}
	if err := known(p.s.cc, key); err != nil {
		return nil, p.notFound(name, err)
	}
	r, err := p.s.remote(key)
	if err != nil {
		return nil, p.notFound(name, err)
	}
	return r, nil
}

// IndexField indexes a field in every cluster there is and will be. See [Clusters.IndexField].
func (p *Provider[N, A]) IndexField(ctx context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	return p.s.IndexField(ctx, obj, field, values)
}

// Start engages every known cluster with aware, at once and whatever its state, and those that become known later, until
// ctx ends. A cluster is engaged from a goroutine of its own, and again after a while if that fails: a slow one holds
// back nobody. The context of an engagement ends when its cluster is removed, or with ctx; a cluster that is made again is
// engaged as another cluster.Cluster. Start returns when every call of Engage has returned.
func (p *Provider[N, A]) Start(ctx context.Context, aware A) error {
	e := newEngagements(ctx, p.s, aware.Engage)
	defer e.wait()
	for event := range p.s.cc.ClusterEvents(ctx) {
		name, ok := p.name(event.Cluster)
		switch {
		case !ok:
		case event.Type == clustercache.Removed, event.Phase == clustercache.PhaseGone:
			e.end(event.Cluster, name)
		default:
			e.begin(event.Cluster, name)
		}
	}
	<-ctx.Done() // whoever runs a provider takes its return for the end of all clusters, also where the ClusterCache ended first
	return nil
}

// notFound makes the error of a cluster that is not known; other errors stay what they are.
func (p *Provider[N, A]) notFound(name N, err error) error {
	if p.o.NotFound == nil || !isUnknown(err) {
		return fmt.Errorf("cluster %q: %w", string(name), err)
	}
	return fmt.Errorf("cluster %q: %w: %w", string(name), p.o.NotFound, err)
}
