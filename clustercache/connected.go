// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
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

		v := c.view.Load()
		if v.connected {
			return nil
		}

		select {
		case <-v.up:
			return nil
		case <-c.done: // another cluster of this key may exist by now
		case <-cc.ctx.Done():
		case <-ctx.Done():
			return fail(fmt.Errorf("%w: %w", context.Cause(ctx), c.whyNot()))
		}
	}
}
