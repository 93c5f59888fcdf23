// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// WaitConnected waits until a known cluster is connected, for the first time or
// again. It returns at once if the cluster is connected already. The error is
// [ErrUnknownCluster] if the cluster is not known, or is forgotten meanwhile,
// and [ErrClosed] if the ClusterCache ends first. If ctx ends first, the error
// wraps the cause of ctx and [ErrNotConnected], and gives the reason why the
// cluster is not connected.
func (cc *ClusterCache) WaitConnected(ctx context.Context, cluster client.ObjectKey) error {
	fail := func(err error) error { return &ClusterError{Cluster: cluster, Op: "wait for connection", Err: err} }
	for {
		c := cc.find(cluster)
		switch {
		case cc.ctx.Err() != nil:
			return fail(ErrClosed)
		case c == nil:
			return fail(ErrUnknownCluster)
		}

		v := c.conn.View()
		if v.Connected {
			return nil
		}

		select {
		case <-v.Up:
			return nil
		case <-c.conn.Done(): // another cluster of this key may exist by now
		case <-cc.ctx.Done():
		case <-ctx.Done():
			return fail(fmt.Errorf("%w: %w", context.Cause(ctx), c.WhyNot()))
		}
	}
}

// endpoint returns where the informers of a cluster send their requests. It
// blocks while the cluster is not connected.
func (cc *ClusterCache) endpoint(ctx context.Context, key client.ObjectKey) (informerpool.Endpoint, error) {
	for {
		c := cc.find(key)
		switch {
		case cc.ctx.Err() != nil: // a cluster closed by Stop would be found forever
			return informerpool.Endpoint{}, ErrClosed
		case c == nil:
			return informerpool.Endpoint{}, ErrUnknownCluster
		}

		v := c.conn.View()
		if v.Connected {
			return informerpool.Endpoint{Client: v.Client, URL: c.conn.Transport().URL(), Epoch: v.Epoch}, nil
		}
		select {
		case <-v.Up:
		case <-c.conn.Done(): // there may be a new cluster with this key
		case <-ctx.Done():
			return informerpool.Endpoint{}, context.Cause(ctx)
		}
	}
}
