// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/internal/restmap"
)

// cluster is one remote cluster: its connection, and what is read and watched
// over it.
type cluster struct {
	cc     *ClusterCache
	key    client.ObjectKey
	name   string
	conn   *connection.Connection
	mapper *restmap.Mapper
	reader *reader
	live   *liveclient.Factory
	wants  *watchset.Set

	pinned  atomic.Bool // stays known without a watch
	leaving atomic.Bool // is to be given up with its last watch
	// discovered: made known by Options.Discover. unlisted: missing from the
	// resolver's last list.
	discovered, unlisted atomic.Bool
}

func newCluster(cc *ClusterCache, key client.ObjectKey) *cluster {
	c := &cluster{
		cc:     cc,
		key:    key,
		name:   clusterName(key),
		reader: &reader{cc: cc, key: key, mode: cc.options.ReadMode},
	}
	c.conn = connection.New(&cc.connections, key, c)
	c.mapper = c.conn.Mapper()
	c.wants = newWants(c)
	c.live = newLive(c)

	return c
}

// unpin ends the effect of Engage. The cluster ends with its last want, unless
// Options.Discover is set.
func (c *cluster) unpin() {
	c.pinned.Store(false)
	c.leaving.Store(!c.cc.options.Discover)
	c.letGo()
}

// leave gives up a cluster without a pin or want, as Disengage would.
func (c *cluster) leave() {
	if c.Wanted() {
		return
	}
	c.leaving.Store(!c.cc.options.Discover)
	c.letGo()
}

// letGo ends a cluster that is not wanted, if it was given up or is gone.
func (c *cluster) letGo() {
	switch {
	case c.Wanted():
	case c.conn.View().Phase == phase.Gone:
		c.Gone()
	case c.leaving.Load():
		c.conn.Release()
	}
}

// close ends the cluster for good, as Connection.Close does.
func (c *cluster) close() (pending bool) {
	pending = c.conn.Close()
	c.wants.Close(ErrClosed)
	return pending
}
