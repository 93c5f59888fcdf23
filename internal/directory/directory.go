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
)

// Directory resolves the clusters that it was given. It lists them, and
// notifies of changes. A cluster that it does not have is gone for good. All
// methods are safe for concurrent use.
type Directory struct {
	wake chan struct{} // one slot

	mu struct {
		sync.Mutex

		configs map[client.ObjectKey]func() *rest.Config
		changed []client.ObjectKey
	}
}

var (
	_ resolver.Resolver = (*Directory)(nil)
	_ resolver.Lister   = (*Directory)(nil)
	_ resolver.Notifier = (*Directory)(nil)
)

// New returns an empty directory.
func New() *Directory {
	d := &Directory{wake: make(chan struct{}, 1)}
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
func (d *Directory) Changed(key client.ObjectKey) {
	d.mu.Lock()
	d.mu.changed = append(d.mu.changed, key)
	d.mu.Unlock()

	select {
	case d.wake <- struct{}{}:
	default:
	}
}

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

// Notify implements resolver.Notifier.
func (d *Directory) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	for {
		d.mu.Lock()
		keys := d.mu.changed
		d.mu.changed = nil
		d.mu.Unlock()

		for _, key := range keys {
			changed(key)
		}
		select {
		case <-d.wake:
		case <-ctx.Done():
			return nil
		}
	}
}
