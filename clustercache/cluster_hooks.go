// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
)

var _ connection.Hooks = (*cluster)(nil)

// Wanted reports whether the cluster is pinned or has a want.
func (c *cluster) Wanted() bool { return c.pinned.Load() || c.wants.Any() }

// Watched reports whether the cluster has a want.
func (c *cluster) Watched() bool { return c.wants.Any() }

// Unlisted reports whether only the resolver's list could keep the cluster, and
// does not contain it.
func (c *cluster) Unlisted() bool { return c.unlisted.Load() && !c.pinned.Load() }

// Connected reads the cluster's kinds again and wakes its informers.
func (c *cluster) Connected() {
	c.Resumed()
	c.wants.RemapNow()
	c.emit(Connected)
}

// Resumed ends the pauses of informers and of look-ups of kinds.
func (c *cluster) Resumed() {
	c.cc.pool.Wake(c.key)
	c.wants.MapNow()
}

// Disconnected notifies subscribers.
func (c *cluster) Disconnected() { c.emit(Disconnected) }

// PhaseChanged notifies subscriptions, and subscribers if no other event does.
func (c *cluster) PhaseChanged(alone bool) {
	if alone {
		c.emit(PhaseChanged)
	}
	for _, s := range c.cc.subscriptions() {
		s.phaseChanged(c, c.conn.View().Phase)
	}
}

// Evicted drops the cached objects.
func (c *cluster) Evicted() {
	c.cc.pool.Evict(c.key)
	c.emit(Removed)
}

// Silent notifies subscribers.
func (c *cluster) Silent() { c.emit(Silent) }

// Recovered shortens the pauses of informers.
func (c *cluster) Recovered() { c.cc.pool.Nudge(c.key) }

// Replaced has the caches compared with the server.
func (c *cluster) Replaced() { c.cc.pool.AuditSoon(c.key) }

// NoAccess reads the resolver's list again if that made the cluster known: the
// cluster may be gone, and not only wait for its Secret.
func (c *cluster) NoAccess() {
	if c.discovered.Load() {
		c.cc.relist()
	}
}

// Gone forgets the cluster.
func (c *cluster) Gone() { c.cc.spawn(func() { c.cc.forget(c) }) }

func (c *cluster) emit(t ClusterEventType) {
	v := c.conn.View()
	c.cc.events.publish(ClusterEvent{
		Cluster: c.key,
		Type:    t,
		Phase:   Phase(v.Phase.String()),
		Reason:  v.Reason,
		Epoch:   string(v.Epoch),
		Time:    time.Now(),
	})
}
