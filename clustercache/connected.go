// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WaitConnected returns when the cluster is connected, at once if it is. It
// waits for a cluster that was asked for, connected before or not;
// [ErrUnknownCluster] is for all others, and for one that is forgotten
// meanwhile. When ctx ends first, the error is that of ctx and
// [ErrNotConnected], with the reason why it is not; when the ClusterCache ends
// first, [ErrClosed].
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
		case <-c.done: // another one of this key may have been made since
		case <-cc.ctx.Done():
		case <-ctx.Done():
			return fail(fmt.Errorf("%w: %w", context.Cause(ctx), c.whyNot()))
		}
	}
}
