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

// Answer is what a query for the access to a cluster returns.
type Answer = func() (resolver.Access, error)

// Directory resolves the clusters that it was given. It lists them, and
// notifies of changes. All methods are safe for concurrent use.
type Directory struct {
	unknown error
	changes changes.Broadcaster

	mu struct {
		sync.Mutex

		answers map[client.ObjectKey]Answer
	}
}

var (
	_ resolver.Resolver = (*Directory)(nil)
	_ resolver.Lister   = (*Directory)(nil)
	_ resolver.Notifier = (*Directory)(nil)
)

// New returns an empty directory. A cluster that it does not have is gone for
// good.
func New() *Directory { return Of(resolver.ErrClusterNotFound) }

// Of returns an empty directory. A query for a cluster that it does not have
// returns the error unknown.
func Of(unknown error) *Directory {
	d := &Directory{unknown: unknown}
	d.mu.answers = map[client.ObjectKey]Answer{}
	return d
}

// Set makes a cluster known. config is called for each Resolve.
func (d *Directory) Set(key client.ObjectKey, config func() *rest.Config) {
	d.Answer(key, func() (resolver.Access, error) { return resolver.NewAccess(config()) })
}

// Answer makes a cluster known. answer is called for each Resolve.
func (d *Directory) Answer(key client.ObjectKey, answer Answer) {
	d.AnswerQuietly(key, answer)
	d.Changed(key)
}

// AnswerQuietly is Answer without a notification.
func (d *Directory) AnswerQuietly(key client.ObjectKey, answer Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.answers[key] = answer
}

// Remove makes a cluster unknown.
func (d *Directory) Remove(key client.ObjectKey) {
	d.RemoveQuietly(key)
	d.Changed(key)
}

// RemoveQuietly is Remove without a notification.
func (d *Directory) RemoveQuietly(keys ...client.ObjectKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		delete(d.mu.answers, key)
	}
}

// Changed notifies that the access to a cluster may have changed.
func (d *Directory) Changed(key client.ObjectKey) { d.changes.Publish(key) }

// Resolve implements resolver.Resolver.
func (d *Directory) Resolve(_ context.Context, key client.ObjectKey) (resolver.Access, error) {
	d.mu.Lock()
	answer := d.mu.answers[key]
	d.mu.Unlock()

	if answer == nil {
		return resolver.Access{}, d.unknown
	}
	return answer()
}

// Clusters implements resolver.Lister.
func (d *Directory) Clusters(context.Context) ([]client.ObjectKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.mu.answers)), nil
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
