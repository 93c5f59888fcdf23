// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// Directory is a resolver whose answers the test sets.
type Directory struct {
	mu      sync.Mutex
	entries map[client.ObjectKey]func() (resolver.Access, error)
	news    chan client.ObjectKey
	asked   map[client.ObjectKey]int
}

// NewDirectory returns an empty Directory.
func NewDirectory() *Directory {
	return &Directory{
		entries: map[client.ObjectKey]func() (resolver.Access, error){}, news: make(chan client.ObjectKey, 10_000),
		asked: map[client.ObjectKey]int{},
	}
}

// Set makes a cluster known, or changes how it is reached.
func (d *Directory) Set(key client.ObjectKey, config *rest.Config) {
	d.Answer(key, func() (resolver.Access, error) { return resolver.NewAccess(config) })
}

// Fail answers with an error.
func (d *Directory) Fail(key client.ObjectKey, err error) {
	d.Answer(key, func() (resolver.Access, error) { return resolver.Access{}, err })
}

// SetQuietly is set without a notification.
func (d *Directory) SetQuietly(key client.ObjectKey, config *rest.Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[key] = func() (resolver.Access, error) { return resolver.NewAccess(config) }
}

// Forget removes a cluster: it is neither listed nor known.
func (d *Directory) Forget(key client.ObjectKey) {
	d.ForgetQuietly(key)
	d.Changed(key)
}

// ForgetQuietly is forget without a notification.
func (d *Directory) ForgetQuietly(keys ...client.ObjectKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		delete(d.entries, key)
	}
}

// Changed reports a change of a cluster.
func (d *Directory) Changed(key client.ObjectKey) { d.news <- key }

// Answer answers with what f returns.
func (d *Directory) Answer(key client.ObjectKey, f func() (resolver.Access, error)) {
	d.mu.Lock()
	d.entries[key] = f
	d.mu.Unlock()
	d.Changed(key)
}

// TimesAsked returns how often the cluster was resolved.
func (d *Directory) TimesAsked(key client.ObjectKey) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[key]
}

// Resolve implements clustercache.Resolver.
func (d *Directory) Resolve(_ context.Context, key client.ObjectKey) (resolver.Access, error) {
	d.mu.Lock()
	f := d.entries[key]
	d.asked[key]++
	d.mu.Unlock()
	if f == nil {
		return resolver.Access{}, resolver.ErrSecretNotFound
	}
	return f()
}

// Notify implements resolver.Notifier.
func (d *Directory) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	for {
		select {
		case key := <-d.news:
			changed(key)
		case <-ctx.Done():
			return nil
		}
	}
}

// Clusters implements resolver.Lister.
func (d *Directory) Clusters(context.Context) ([]client.ObjectKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []client.ObjectKey
	for key := range d.entries {
		keys = append(keys, key)
	}
	return keys, nil
}
