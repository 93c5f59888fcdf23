// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package directory has the resolver of clusters in memory.
package directory

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/changes"
)

// Directory resolves the clusters that it was given. It lists them, and
// notifies of changes. A cluster that it does not have is gone for good. All
// methods are safe for concurrent use.
type Directory struct {
	changes changes.Broadcaster

	mu struct {
		sync.Mutex

		configs map[client.ObjectKey]func() *rest.Config
	}
}

var (
	_ resolver.Resolver = (*Directory)(nil)
	_ resolver.Lister   = (*Directory)(nil)
	_ resolver.Notifier = (*Directory)(nil)
)

// New returns an empty directory.
func New() *Directory {
	d := &Directory{}
	d.mu.configs = map[client.ObjectKey]func() *rest.Config{}
	return d
}

// Set makes a cluster known. config is called for each Resolve.
func (d *Directory) Set(key client.ObjectKey, config func() *rest.Config) {
	d.mu.Lock()
	d.mu.configs[key] = config
	d.mu.Unlock()

	d.Changed(key)
}

// Remove makes a cluster unknown.
func (d *Directory) Remove(key client.ObjectKey) {
	d.mu.Lock()
	delete(d.mu.configs, key)
	d.mu.Unlock()

	d.Changed(key)
}

// Changed notifies that the access to a cluster may have changed.
func (d *Directory) Changed(key client.ObjectKey) { d.changes.Publish(key) }

// Resolve implements resolver.Resolver.
func (d *Directory) Resolve(_ context.Context, key client.ObjectKey) (resolver.Access, error) {
	d.mu.Lock()
	config := d.mu.configs[key]
	d.mu.Unlock()

	if config == nil {
		return resolver.Access{}, resolver.ErrClusterNotFound
	}
	return resolver.NewAccess(config())
}

// Clusters implements resolver.Lister.
func (d *Directory) Clusters(context.Context) ([]client.ObjectKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.mu.configs)), nil
}

// Notify implements resolver.Notifier. Each call gets every change: two cluster
// caches may share a Directory.
func (d *Directory) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	reader := d.changes.Subscribe()
	defer d.changes.Unsubscribe(reader)
	known, _ := d.Clusters(ctx) // which does not fail
	reader.Add(known...)
	reader.Deliver(ctx, changed)

	return nil
}
