// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"fmt"

	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

// watches are the names of the watches of one cluster.
type watches struct {
	of    cluster.Cluster
	names map[string]struct{}
}

// Watch implements Cluster API's ClusterCache. A watch is added once for each
// name, and survives reconnects: adding it again has no effect until the
// cluster is removed. The Watcher is called without a lock, and while it is,
// another Watch of the same name returns at once. The errors are a
// [*NotConnectedError] and that of the Watcher.
func (c *ClusterCache) Watch(_ context.Context, key client.ObjectKey, watcher capi.Watcher) error {
	name := watcher.Name()
	if name == "" {
		return errNoName
	}
	op := fmt.Sprintf("watch %s for %T", name, watcher.Object())
	remote, err := c.remote(op, key)
	if err != nil {
		return err
	}
	if err := c.limited(watcher.Object()); err != nil {
		return fmt.Errorf("%s of cluster %s: %w", op, key, err)
	}
	w := c.begin(key, remote, name)
	if w == nil {
		return nil
	}
	if err := watcher.Watch(remote.GetCache()); err != nil {
		c.mu.Lock()
		delete(w.names, name)
		c.mu.Unlock()

		return fmt.Errorf("%s of cluster %s: %w", op, key, err)
	}

	return nil
}

// begin records a watch. It returns nil if there is one of that name.
func (c *ClusterCache) begin(key client.ObjectKey, remote cluster.Cluster, name string) *watches {
	c.mu.Lock()
	defer c.mu.Unlock()

	w := c.mu.watches[key]
	if w == nil || w.of != remote {
		w = &watches{of: remote, names: map[string]struct{}{}}
		c.mu.watches[key] = w
	}
	if _, there := w.names[name]; there {
		return nil
	}
	w.names[name] = struct{}{}

	return w
}

// forget ends the watches of a cluster that was removed, unless it has been
// created again meanwhile: then they continue.
func (c *ClusterCache) forget(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, err := c.cc.Cluster(key).Status(); err == nil && s.Phase != status.PhaseGone {
		return
	}

	delete(c.mu.watches, key)
	c.clusters.Forget(key)
}
