// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/callback"
)

var (
	errNoName   = errors.New("not a name of a cluster")
	errNoConfig = errors.New("cluster without a config")
)

// Registrar adopts the clusters that another provider engages: added to
// multicluster-runtime's manager it is notified of them (it is an
// mcmanager.Runnable), and it is the resolver by which a ClusterCache reaches
// them. Set it as clustercache.Options.Resolver, with Discover. The configs,
// credentials included, are those of the engaged clusters. All methods are safe
// for concurrent use.
type Registrar[N ~string] struct {
	names    Names
	clusters *settable.Resolver

	mu      sync.Mutex                            // protects the fields below; taken before the locks of clusters
	adopted map[client.ObjectKey]*resolver.Access // by the last engagement of each
}

var (
	_ resolver.Resolver = (*Registrar[string])(nil)
	_ resolver.Notifier = (*Registrar[string])(nil)
	_ resolver.Lister   = (*Registrar[string])(nil)
)

// NewRegistrar returns a registrar that knows no clusters. It does no I/O and
// starts nothing.
func NewRegistrar[N ~string](names Names) *Registrar[N] {
	r := &Registrar[N]{
		names:    names.withDefaults(),
		clusters: settable.New(),
		adopted:  map[client.ObjectKey]*resolver.Access{},
	}
	r.clusters.Synced() // a cluster that is not engaged does not exist
	return r
}

// Start blocks until ctx ends. It makes the registrar a runnable, and does
// nothing.
func (r *Registrar[N]) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// NeedLeaderElection returns false, so that caches are warm on replicas that
// wait to become the leader, if the provider engages there.
func (r *Registrar[N]) NeedLeaderElection() bool { return false }

// Engage adopts a cluster until ctx ends. Engaging again, with the same cluster
// or another, replaces the previous one. It does not block and does no I/O. It
// returns an error if the cluster's config is invalid.
//
// A name that Names cannot translate to a key and back is no error, because
// after an error multicluster-runtime would not engage the cluster with any
// other Aware either: the cluster is ignored, and that is logged to the logger
// of ctx. The default Names translate every name.
func (r *Registrar[N]) Engage(ctx context.Context, name N, cl cluster.Cluster) error {
	key, err := r.key(string(name))
	if err != nil {
		ctrllog.FromContext(ctx).WithName("fleetcache").Error(err, "Cluster is not adopted", "name", string(name))
		return nil
	}
	config := cl.GetConfig()
	if config == nil {
		return fmt.Errorf("cluster %q: %w", string(name), errNoConfig)
	}
	access, err := resolver.NewAccess(config)
	if err != nil {
		return fmt.Errorf("cluster %q: %w", string(name), err)
	}
	r.set(key, &access)
	// Called for this engagement only: one that replaced it stays.
	context.AfterFunc(ctx, func() { r.unset(key, &access) })

	return nil
}

// key returns the cluster of a name that leads back to it.
func (r *Registrar[N]) key(name string) (client.ObjectKey, error) {
	var key client.ObjectKey
	var ok bool
	var back string
	err := callback.Apart("Names", func() error {
		if key, ok = r.names.Key(name); ok && key != (client.ObjectKey{}) {
			back = r.names.Name(key)
		}
		return nil
	})
	if err != nil {
		return client.ObjectKey{}, err
	}
	if !ok || key == (client.ObjectKey{}) { // the hub is never adopted
		return client.ObjectKey{}, fmt.Errorf("cluster %q: %w", name, errNoName)
	}
	if back != name {
		return client.ObjectKey{}, &NameError{Cluster: key, Name: name, Back: back}
	}
	return key, nil
}

func (r *Registrar[N]) set(key client.ObjectKey, access *resolver.Access) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adopted[key] = access
	r.clusters.Set(key, *access, nil)
}

func (r *Registrar[N]) unset(key client.ObjectKey, access *resolver.Access) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.adopted[key] == access {
		delete(r.adopted, key)
		r.clusters.Delete(key)
	}
}

// Resolve implements clustercache.Resolver. A cluster that is not engaged does
// not exist.
func (r *Registrar[N]) Resolve(ctx context.Context, key client.ObjectKey) (resolver.Access, error) {
	return r.clusters.Resolve(ctx, key)
}

// Clusters implements clustercache.Lister.
func (r *Registrar[N]) Clusters(ctx context.Context) ([]client.ObjectKey, error) {
	return r.clusters.Clusters(ctx)
}

// Notify implements clustercache.Notifier.
func (r *Registrar[N]) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	return r.clusters.Notify(ctx, changed)
}
