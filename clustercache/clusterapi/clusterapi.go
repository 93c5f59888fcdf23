// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/clustername"
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
	// Informers are kinds whose informers start when a cluster is connected. By
	// default the first read of a kind starts its informer, and the API server
	// answers until that has listed.
	Informers []client.Object
	// FailureInterval is the time in which failed attempts to connect to a
	// cluster that never answered count as one in its HealthCheckingState.
	// Cluster API makes one attempt in that time, and its controllers take the
	// fifth failure for two minutes. Default: 30 s.
	FailureInterval time.Duration
}

// ClusterCache is Cluster API's ClusterCache on a clustercache.ClusterCache.
// All methods are safe for concurrent use, and none waits for a cluster.
type ClusterCache struct {
	cc       *clustercache.ClusterCache
	clusters *multicluster.Clusters
	hub      client.Reader
	limits   limits
	started  []schema.GroupVersionKind // Options.Informers
	interval time.Duration             // Options.FailureInterval

	mu struct { // no callback is called under it
		sync.RWMutex

		watches map[client.ObjectKey]*watches
	}
}

var _ capi.ClusterCache = (*ClusterCache)(nil)

// New returns Cluster API's interface to a ClusterCache, which has to be
// started separately and decides which clusters there are. It does no I/O. The
// error is [clustercache.ErrClosed], or a [*clustercache.OptionError] if cc is
// nil or the scheme has none of a kind of Options.Informers.
func New(cc *clustercache.ClusterCache, o Options) (*ClusterCache, error) {
	if cc == nil {
		return nil, &clustercache.OptionError{Field: "cc", Err: errRequired}
	}
	c := &ClusterCache{cc: cc, hub: o.Hub, interval: cmp.Or(o.FailureInterval, failureInterval)}
	for _, kind := range o.Informers {
		gvk, err := apiutil.GVKForObject(kind, cc.Options().Scheme)
		if err != nil {
			return nil, &clustercache.OptionError{Field: fmt.Sprintf("Informers[%T]", kind), Err: err}
		}
		c.started = append(c.started, gvk)
	}
	c.mu.watches = map[client.ObjectKey]*watches{}
	c.clusters = multicluster.New(cc, multicluster.Options{
		SyncPeriod: o.SyncPeriod,
		ClusterOptions: []cluster.Option{func(of *cluster.Options) {
			of.Client.Cache = &client.CacheOptions{Unstructured: true, DisableFor: o.DisableFor}
		}},
	})
	ends, err := cc.SubscribeClusters(func(e events.Cluster) {
		switch e.Type {
		case events.Connected:
			c.startInformers(e.Cluster)
		case events.Removed:
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

// Error names the operation, the cluster, once, and the cause.
func (e *NotConnectedError) Error() string {
	name := clustername.Of(e.Cluster)
	return fmt.Sprintf("%s of cluster %s: %v: %s", e.Op, name, capi.ErrClusterNotConnected,
		clustername.Omit(name, e.Err))
}

// Unwrap returns the errors of both packages and the cause.
func (e *NotConnectedError) Unwrap() []error {
	return []error{capi.ErrClusterNotConnected, clustercache.ErrNotConnected, e.Err}
}

// connected returns an error unless the cluster is connected.
func (c *ClusterCache) connected(op string, key client.ObjectKey) error {
	if c.cc.Cluster(key).Serving() == nil { // without the rest of the status
		return nil
	}
	status, err := c.cc.Cluster(key).Status()
	if unknown, ok := errors.AsType[*clustercache.ClusterError](err); ok {
		err = unknown.Err // without the key
	}
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
	c.mu.RLock() // so that forget takes no cluster that was just handed out
	defer c.mu.RUnlock()
	if err := c.connected(op, key); err != nil {
		return nil, err
	}

	return c.clusters.Cluster(key)
}

// startInformers starts the informers of Options.Informers. They end as others
// do, when they were not read for the IdleTimeout.
func (c *ClusterCache) startInformers(key client.ObjectKey) {
	for _, gvk := range c.started {
		if _, _, err := c.cc.Cluster(key).WatchAndRead(context.Background(), gvk); err != nil {
			c.cc.Options().Logger.Error(err, "An informer cannot be started", "cluster", clustername.Of(key))
		}
	}
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
	live, err := c.cc.Cluster(key).LiveClient()
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
	config, err := c.cc.Cluster(key).RESTConfig()
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
// failures count, too, and LastProbeTime is when that began. Attempts follow
// each other faster than Cluster API's, so that those of one
// Options.FailureInterval count as one failure, and failed probes of a cluster
// that answered before count once in a ProbeInterval.
func (c *ClusterCache) GetHealthCheckingState(_ context.Context, key client.ObjectKey) capi.HealthCheckingState {
	s, err := c.cc.Cluster(key).Status()
	if err != nil || s.Phase == status.PhaseGone {
		return capi.HealthCheckingState{}
	}
	state := capi.HealthCheckingState{
		LastProbeTime:        s.LastProbe,
		LastProbeSuccessTime: s.LastProbeSuccess,
		ConsecutiveFailures:  c.failures(s),
	}
	switch {
	case state.LastProbeTime.Before(state.LastProbeSuccessTime): // a sign of life replaced a probe
		state.LastProbeTime = state.LastProbeSuccessTime
	case state.ConsecutiveFailures > 0 && !s.Connected && state.LastProbeTime.Before(s.FailingSince):
		state.LastProbeTime = s.FailingSince // there is no access yet, so that nothing was sent
	}

	return state
}

// failureInterval is the time between two attempts of Cluster API to connect.
const failureInterval = 30 * time.Second

// failures returns the failures that Cluster API would have counted by now.
func (c *ClusterCache) failures(s status.Cluster) int {
	interval := c.interval
	if !s.LastProbeSuccess.IsZero() {
		interval = c.cc.Options().ProbeInterval
	}
	return min(s.Failures, 1+int(time.Since(s.FailingSince)/interval))
}

var errNoName = errors.New("watcher.Name() cannot be empty")
