// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// directory is the fleet's resolver.
type directory struct {
	mu       sync.Mutex // protects the fields below
	clusters map[client.ObjectKey]*Cluster
	changed  []client.ObjectKey
	news     chan struct{} // one slot
}

func newDirectory() *directory {
	return &directory{clusters: map[client.ObjectKey]*Cluster{}, news: make(chan struct{}, 1)}
}

// set makes a cluster known, or reports that its access changed.
func (d *directory) set(c *Cluster) {
	d.mu.Lock()
	d.clusters[c.key] = c
	d.mu.Unlock()

	d.tell(c.key)
}

func (d *directory) remove(key client.ObjectKey) {
	d.mu.Lock()
	delete(d.clusters, key)
	d.mu.Unlock()

	d.tell(key)
}

func (d *directory) tell(key client.ObjectKey) {
	d.mu.Lock()
	d.changed = append(d.changed, key)
	d.mu.Unlock()

	select {
	case d.news <- struct{}{}:
	default:
	}
}

// Resolve implements clustercache.Resolver.
func (d *directory) Resolve(_ context.Context, key client.ObjectKey) (clustercache.Access, error) {
	d.mu.Lock()
	c := d.clusters[key]
	d.mu.Unlock()

	if c == nil {
		return clustercache.Access{}, resolver.ErrClusterNotFound
	}
	return resolver.NewAccess(c.Config())
}

// Clusters implements clustercache.Lister.
func (d *directory) Clusters(context.Context) ([]client.ObjectKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	out := make([]client.ObjectKey, 0, len(d.clusters))
	for key := range d.clusters {
		out = append(out, key)
	}
	return out, nil
}

// Notify implements clustercache.Notifier.
func (d *directory) Notify(ctx context.Context, changed func(client.ObjectKey)) error {
	for {
		d.mu.Lock()
		keys := d.changed
		d.changed = nil
		d.mu.Unlock()

		for _, key := range keys {
			changed(key)
		}
		select {
		case <-d.news:
		case <-ctx.Done():
			return nil
		}
	}
}
