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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
)

// Options configure a [ClusterCache]. The zero value works.
type Options struct {
	// Hub reads the Cluster objects that are passed to the mapping functions of
	// cluster sources, and should read from a cache. Nil passes objects that
	// have nothing but a namespace and a name.
	Hub client.Reader
	// DisableFor are the kinds that GetClient and GetReader never read from the
	// cache, as in Cluster API's ClientCacheOptions.
	DisableFor []client.Object
	// SyncPeriod is how often every object is delivered once more to handlers.
	// Zero means never.
	SyncPeriod time.Duration
}

// ClusterCache is Cluster API's ClusterCache on a clustercache.ClusterCache.
// All methods are safe for concurrent use, and none waits for a cluster.
type ClusterCache struct {
	cc       *clustercache.ClusterCache
	clusters *multicluster.Clusters
	hub      client.Reader
	limits   limits

	mu struct { // no callback is called under it
		sync.Mutex

		watches map[client.ObjectKey]*watches
	}
}

var _ capi.ClusterCache = (*ClusterCache)(nil)

// New returns Cluster API's interface to a ClusterCache, which has to be
// started separately and decides which clusters there are. It does no I/O. The
// error is [clustercache.ErrClosed], or a [*clustercache.OptionError] if cc is
// nil.
func New(cc *clustercache.ClusterCache, o Options) (*ClusterCache, error) {
	if cc == nil {
		return nil, &clustercache.OptionError{Field: "cc", Err: errRequired}
	}
	c := &ClusterCache{cc: cc, hub: o.Hub}
	c.mu.watches = map[client.ObjectKey]*watches{}
	c.clusters = multicluster.New(cc, multicluster.Options{
		SyncPeriod: o.SyncPeriod,
		ClusterOptions: []cluster.Option{func(of *cluster.Options) {
			of.Client.Cache = &client.CacheOptions{Unstructured: true, DisableFor: o.DisableFor}
		}},
	})
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

// Fleet returns the ClusterCache that this one is an interface of.
func (c *ClusterCache) Fleet() *clustercache.ClusterCache { return c.cc }

// NotConnectedError is the error of a cluster that is not connected. It is
// Cluster API's ErrClusterNotConnected, and [clustercache.ErrNotConnected].
type NotConnectedError struct {
	Cluster client.ObjectKey
	// Op is what needs the connection, such as "client".
	Op string
	// Err is why there is none, such as [clustercache.ErrConnecting],
	// [clustercache.ErrUnknownCluster], or the last failure.
	Err error
}

// Error names the operation, the cluster and the cause.
func (e *NotConnectedError) Error() string {
	return fmt.Sprintf("%s of cluster %s: %v: %v", e.Op, e.Cluster, capi.ErrClusterNotConnected, e.Err)
}

// Unwrap returns the errors of both packages and the cause.
func (e *NotConnectedError) Unwrap() []error {
	return []error{capi.ErrClusterNotConnected, clustercache.ErrNotConnected, e.Err}
}

// connected returns an error unless the cluster is connected.
func (c *ClusterCache) connected(op string, key client.ObjectKey) error {
	status, err := c.cc.Status(key)
	switch {
	case err == nil && status.Connected:
		return nil
	case err == nil && status.LastError != nil:
		err = status.LastError
	case err == nil:
		err = clustercache.ErrConnecting
	}

	return &NotConnectedError{Cluster: key, Op: op, Err: err}
}

// remote returns a connected cluster.
func (c *ClusterCache) remote(op string, key client.ObjectKey) (cluster.Cluster, error) {
	c.mu.Lock() // so that forget takes no cluster that was just handed out
	defer c.mu.Unlock()
	if err := c.connected(op, key); err != nil {
		return nil, err
	}

	return c.clusters.Cluster(key)
}

// GetClient implements Cluster API's ClusterCache. Reads start an informer of
// their kind, and the API server answers until it has synced. The client can be
// kept, and works again after a reconnect. The error is a [*NotConnectedError].
func (c *ClusterCache) GetClient(_ context.Context, key client.ObjectKey) (client.Client, error) {
	remote, err := c.remote("client", key)
	if err != nil {
		return nil, err
	}
	if len(c.limits) > 0 {
		return limitedClient{Client: remote.GetClient(), limits: c.limits}, nil
	}
	return remote.GetClient(), nil
}

// GetReader implements Cluster API's ClusterCache. It reads as GetClient does.
func (c *ClusterCache) GetReader(ctx context.Context, key client.ObjectKey) (client.Reader, error) {
	return c.GetClient(ctx, key)
}

// GetUncachedClient implements Cluster API's ClusterCache. The API server
// answers every read. The error is a [*NotConnectedError].
func (c *ClusterCache) GetUncachedClient(_ context.Context, key client.ObjectKey) (client.Client, error) {
	if err := c.connected("uncached client", key); err != nil {
		return nil, err
	}
	live, err := c.cc.LiveClient(key)
	if err != nil {
		return nil, &NotConnectedError{Cluster: key, Op: "uncached client", Err: err}
	}
	return live, nil
}

// GetRESTConfig implements Cluster API's ClusterCache. The result is a copy. It
// holds credentials and does not follow their rotation. The error is a
// [*NotConnectedError].
func (c *ClusterCache) GetRESTConfig(_ context.Context, key client.ObjectKey) (*rest.Config, error) {
	if err := c.connected("REST config", key); err != nil {
		return nil, err
	}
	config, err := c.cc.RESTConfig(key)
	if err != nil {
		return nil, &NotConnectedError{Cluster: key, Op: "REST config", Err: err}
	}
	o := c.cc.Options()
	config.UserAgent, config.Timeout = o.UserAgent, o.RequestTimeout
	config.QPS, config.Burst = float32(o.QPS), o.Burst

	return config, nil
}

// GetHealthCheckingState implements Cluster API's ClusterCache. It is zero for
// an unknown cluster. Where nothing could be sent, since there is no access,
// failures count, too, and LastProbeTime is when that began.
func (c *ClusterCache) GetHealthCheckingState(_ context.Context, key client.ObjectKey) capi.HealthCheckingState {
	status, err := c.cc.Status(key)
	if err != nil || status.Phase == clustercache.PhaseGone {
		return capi.HealthCheckingState{}
	}
	state := capi.HealthCheckingState{
		LastProbeTime:        status.LastProbe,
		LastProbeSuccessTime: status.LastProbeSuccess,
		ConsecutiveFailures:  status.Failures,
	}
	switch {
	case state.LastProbeTime.Before(state.LastProbeSuccessTime): // a sign of life replaced a probe
		state.LastProbeTime = state.LastProbeSuccessTime
	case state.ConsecutiveFailures > 0 && !status.Connected && state.LastProbeTime.Before(status.Since):
		state.LastProbeTime = status.Since // there is no access yet, so that nothing was sent
	}

	return state
}

var errNoName = errors.New("watcher.Name() cannot be empty")
