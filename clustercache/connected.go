// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WaitConnected waits until a known cluster is connected. It returns at once if
// the cluster is connected already. The error is [ErrUnknownCluster] if the
// cluster is not known, or is forgotten meanwhile; [ErrClosed] if the
// ClusterCache ends first; and, if ctx ends first, the cause of ctx joined with
// [ErrNotConnected] and the reason for it.
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
