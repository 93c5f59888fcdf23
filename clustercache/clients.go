// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

// newLive returns the factory of a cluster's live client.
func newLive(c *cluster) *liveclient.Factory {
	o, through := &c.cc.options, c.conn.Transport()
	return liveclient.NewFactory(liveclient.Config{
		URL:             through.URL(),
		Unary:           c.conn.Guard(through.Client().Transport),
		Stream:          c.conn.Guard(through.StreamClient().Transport),
		CheckRedirect:   through.Client().CheckRedirect,
		Scheme:          o.Scheme,
		Mapper:          c.mapper,
		Timeout:         o.RequestTimeout,
		RefreshInterval: o.RetryInterval,
		MaxBytes:        o.MaxLiveBytes,
		MaxObjectBytes:  o.Informers.MaxObjectBytes,
		Rediscovered:    c.wants.RemapNow,
	})
}

// Client returns a client for a cluster. It reads as Reader does, and writes to
// the API server. Client does no I/O; its result can be kept for as long as the
// cluster is known. While the cluster is not connected, writes fail at once
// with [ErrNotConnected]. Errors of writes are a [*ClusterError], which
// apierrors.IsConflict and the like unwrap. Warnings that the server sends are
// dropped, since they are its text; a client that is made from
// [ClusterCache.TransportConfig] with a WarningHandlerWithContext of its own gets
// them.
//
// Beware of Get, Extract and Apply: an apply configuration extracted from an
// object without managedFields is empty, and applying it removes everything
// that its manager owns. Pass [ForApply] to such a Get; it matters where
// Informers.DropManagedFields or a transform leaves managedFields out of the
// cache.
func (cc *ClusterCache) Client(cluster client.ObjectKey) (client.Client, error) {
	c, err := cc.known(cluster, "client")
	if err != nil {
		return nil, err
	}
	live, err := c.live.Client()
	if err != nil {
		return nil, &ClusterError{Cluster: cluster, Op: "client", Err: err}
	}
	return &cachedClient{Client: liveclient.Named(live, c.hooks()), reader: c.reader}, nil
}

// LiveClient is Client without the cache: reads go to the API server as well,
// whatever is watched.
func (cc *ClusterCache) LiveClient(cluster client.ObjectKey) (client.Client, error) {
	c, err := cc.known(cluster, "live client")
	if err != nil {
		return nil, err
	}
	live, err := c.live.Client()
	if err != nil {
		return nil, &ClusterError{Cluster: cluster, Op: "live client", Err: err}
	}
	return liveclient.Named(live, c.hooks()), nil
}

// hooks returns what the clients handed out call.
func (c *cluster) hooks() liveclient.Hooks {
	return liveclient.Hooks{Failed: c.failed, Begin: c.wants.BeginShowing}
}

// failed returns the error of an operation on a kind.
func (c *cluster) failed(op string, gvk schema.GroupVersionKind, err error) error {
	return &ClusterError{
		Cluster: c.key,
		GVK:     gvk,
		Op:      op,
		Err:     err,
	}
}

// known returns a known cluster, or the reason why it cannot be used.
func (cc *ClusterCache) known(cluster client.ObjectKey, op string) (*cluster, error) {
	err := ErrUnknownCluster
	if cc.ctx.Err() != nil {
		err = ErrClosed
	} else if !cc.live.Load() && cc.find(cluster) == nil {
		cc.used()
		err = fmt.Errorf("%w: %w", err, ErrNotStarted) // Discover may make it known
	} else if c := cc.find(cluster); c != nil && c.conn.View().Phase != phase.Gone {
		return c, nil
	}

	return nil, &ClusterError{Cluster: cluster, Op: op, Err: err}
}

// cachedClient is a live client with cached reads.
type cachedClient struct {
	client.Client

	reader client.Reader
}

// Get implements client.Reader.
func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}

// RESTConfig returns a copy of the cluster's current REST config, for making
// your own clients. It holds credentials and does not follow their rotation;
// its requests are not rate-limited by the ClusterCache. It fails while the
// cluster is not connected.
func (cc *ClusterCache) RESTConfig(cluster client.ObjectKey) (*rest.Config, error) {
	c, err := cc.known(cluster, "REST config")
	if err != nil {
		return nil, err
	}
	if v := c.conn.View(); v.Connected && !v.Access.IsZero() {
		return v.Access.Config(), nil
	}
	return nil, &ClusterError{Cluster: cluster, Op: "REST config", Err: c.WhyNot()}
}

// RESTMapper returns the mapper of a cluster. Clusters that serve the same
// kinds share its data. Its methods may query the API server.
func (cc *ClusterCache) RESTMapper(cluster client.ObjectKey) (meta.RESTMapper, error) {
	c, err := cc.known(cluster, "REST mapper")
	if err != nil {
		return nil, err
	}
	return c.mapper.RESTMapper(), nil
}
