// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
)

// Options configure a [ClusterCache]. The zero value works.
type Options struct {
	// DisableFor are the kinds that GetClient and GetReader never read from the
	// cache, as in Cluster API's ClientCacheOptions.
	DisableFor []client.Object
}

// ClusterCache is Cluster API's ClusterCache on a clustercache.ClusterCache.
// All methods are safe for concurrent use, and none waits for a cluster.
type ClusterCache struct {
	cc       *clustercache.ClusterCache
	clusters *multicluster.Clusters

	mu      sync.Mutex // protects the field below; no callback is called under it
	watches map[client.ObjectKey]*watches
}

// watches are the names of the watches of one cluster.
type watches struct {
	of    cluster.Cluster
	names map[string]struct{}
}

var _ capi.ClusterCache = (*ClusterCache)(nil)

// New returns Cluster API's interface to a ClusterCache, which has to be
// started separately and decides which clusters there are. It does no I/O. The
// error is [clustercache.ErrClosed].
func New(cc *clustercache.ClusterCache, o Options) (*ClusterCache, error) {
	c := &ClusterCache{
		cc: cc,
		clusters: multicluster.New(cc, multicluster.Options{
			ClusterOptions: []cluster.Option{func(of *cluster.Options) {
				of.Client.Cache = &client.CacheOptions{Unstructured: true, DisableFor: o.DisableFor}
			}},
		}),
		watches: map[client.ObjectKey]*watches{},
	}
	ends, err := cc.SubscribeClusters(func(e clustercache.ClusterEvent) {
		if e.Type == clustercache.Removed {
			c.forget(e.Cluster)
		}
	})
	if err != nil {
		return nil, err
	}
	ends.Start()

	return c, nil
}

// forget ends the watches of a cluster that was removed.
func (c *ClusterCache) forget(key client.ObjectKey) {
	c.mu.Lock()
	delete(c.watches, key)
	c.mu.Unlock()

	c.clusters.Forget(key)
}

// connected returns a connected cluster. The error is ErrClusterNotConnected,
// with the cause.
func (c *ClusterCache) connected(op string, key client.ObjectKey) (cluster.Cluster, error) {
	status, err := c.cc.Status(key)
	switch {
	case err != nil:
	case status.Connected:
		return c.clusters.Cluster(key)
	case status.LastError != nil:
		err = status.LastError
	default:
		err = clustercache.ErrConnecting
	}

	return nil, fmt.Errorf("%s of cluster %s: %w: %w", op, key, capi.ErrClusterNotConnected, err)
}

// GetClient implements Cluster API's ClusterCache. Reads start an informer of
// their kind, and the API server answers until it has synced. The client can be
// kept, and works again after a reconnect.
func (c *ClusterCache) GetClient(_ context.Context, key client.ObjectKey) (client.Client, error) {
	remote, err := c.connected("client", key)
	if err != nil {
		return nil, err
	}
	return remote.GetClient(), nil
}

// GetReader implements Cluster API's ClusterCache. It reads as GetClient does.
func (c *ClusterCache) GetReader(ctx context.Context, key client.ObjectKey) (client.Reader, error) {
	return c.GetClient(ctx, key)
}

// GetUncachedClient implements Cluster API's ClusterCache.
func (c *ClusterCache) GetUncachedClient(_ context.Context, key client.ObjectKey) (client.Client, error) {
	if _, err := c.connected("uncached client", key); err != nil {
		return nil, err
	}
	return c.cc.LiveClient(key)
}

// GetRESTConfig implements Cluster API's ClusterCache. The result is a copy. It
// holds credentials and does not follow their rotation.
func (c *ClusterCache) GetRESTConfig(_ context.Context, key client.ObjectKey) (*rest.Config, error) {
	if _, err := c.connected("REST config", key); err != nil {
		return nil, err
	}
	config, err := c.cc.RESTConfig(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", capi.ErrClusterNotConnected, err)
	}
	o := c.cc.Options()
	config.UserAgent, config.Timeout = o.UserAgent, o.RequestTimeout
	config.QPS, config.Burst = float32(o.QPS), o.Burst

	return config, nil
}

var errNoName = errors.New("watcher.Name() is empty")

// Watch implements Cluster API's ClusterCache. A watch is added once for each
// name, and survives reconnects: adding it again has no effect until the cluster
// is removed. The Watcher is called without a lock, and while it is, another
// Watch of the same name returns at once.
func (c *ClusterCache) Watch(_ context.Context, key client.ObjectKey, watcher capi.Watcher) error {
	name := watcher.Name()
	if name == "" {
		return errNoName
	}
	remote, err := c.connected(fmt.Sprintf("watch %s for %T", name, watcher.Object()), key)
	if err != nil {
		return err
	}
	w := c.begin(key, remote, name)
	if w == nil {
		return nil
	}
	if err := watcher.Watch(remote.GetCache()); err != nil {
		c.mu.Lock()
		delete(w.names, name)
		c.mu.Unlock()

		return fmt.Errorf("watch %s for %T of cluster %s: %w", name, watcher.Object(), key, err)
	}

	return nil
}

// begin records a watch. It returns nil if there is one of that name.
func (c *ClusterCache) begin(key client.ObjectKey, remote cluster.Cluster, name string) *watches {
	c.mu.Lock()
	defer c.mu.Unlock()

	w := c.watches[key]
	if w == nil || w.of != remote {
		w = &watches{of: remote, names: map[string]struct{}{}}
		c.watches[key] = w
	}
	if _, there := w.names[name]; there {
		return nil
	}
	w.names[name] = struct{}{}

	return w
}

// GetHealthCheckingState implements Cluster API's ClusterCache. It is zero for
// an unknown cluster.
func (c *ClusterCache) GetHealthCheckingState(_ context.Context, key client.ObjectKey) capi.HealthCheckingState {
	status, err := c.cc.Status(key)
	if err != nil {
		return capi.HealthCheckingState{}
	}
	state := capi.HealthCheckingState{
		LastProbeTime:        status.LastProbe,
		LastProbeSuccessTime: status.LastProbeSuccess,
		ConsecutiveFailures:  status.Failures,
	}
	if state.LastProbeTime.Before(state.LastProbeSuccessTime) { // a sign of life replaced a probe
		state.LastProbeTime = state.LastProbeSuccessTime
	}

	return state
}

// GetClusterSource implements Cluster API's ClusterCache. The only option is
// Cluster API's WatchForProbeFailure; another one is an error of the source's
// Start.
func (c *ClusterCache) GetClusterSource(
	controllerName string, mapFunc func(context.Context, client.Object) []ctrl.Request,
	opts ...capi.GetClusterSourceOption,
) source.Source {
	s := &clusterSource{cc: c.cc, name: controllerName, mapFunc: mapFunc}
	for _, o := range opts {
		switch o := o.(type) {
		case capi.WatchForProbeFailure:
			s.silentFor = append(s.silentFor, time.Duration(o))
		default:
			s.err = fmt.Errorf("cluster source of controller %s: option %T is not supported", controllerName, o)
		}
	}

	return s
}
