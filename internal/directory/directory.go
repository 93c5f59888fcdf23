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
	mu struct {
		sync.Mutex

		configs     map[client.ObjectKey]func() *rest.Config
		subscribers map[*subscriber]struct{}
	}
}

// subscriber is a call of Notify. Each one gets every change: two cluster
// caches may share a Directory.
type subscriber struct {
	wake    chan struct{} // one slot
	changed []client.ObjectKey
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
	d.mu.subscribers = map[*subscriber]struct{}{}
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
	defer d.mu.Unlock()
	for s := range d.mu.subscribers {
		if !slices.Contains(s.changed, key) {
			s.changed = append(s.changed, key)
		}
		select {
		case s.wake <- struct{}{}:
		default: // it is woken already
		}
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
	s := d.subscribe()
	defer d.unsubscribe(s)
	for {
		for _, key := range d.take(s) {
			changed(key)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// subscribe returns a subscriber to whom every known cluster has changed.
func (d *Directory) subscribe() *subscriber {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &subscriber{wake: make(chan struct{}, 1), changed: slices.Collect(maps.Keys(d.mu.configs))}
	d.mu.subscribers[s] = struct{}{}

	return s
}

func (d *Directory) unsubscribe(s *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.subscribers, s)
}

func (d *Directory) take(s *subscriber) []client.ObjectKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := s.changed
	s.changed = nil

	return changed
}
