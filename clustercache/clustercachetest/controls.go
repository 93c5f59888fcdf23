// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// Disconnect takes the network away: connections are reset, and new ones
// refused.
func (c *Cluster) Disconnect() {
	c.setReach(false)
	c.net.Down()
}

// Hang makes the network swallow everything: connections stay open, nothing
// arrives, and new ones wait in vain.
func (c *Cluster) Hang() {
	c.setReach(false)
	c.net.Mute()
}

// Connect brings the network back, and has the ClusterCache try at once.
func (c *Cluster) Connect() {
	c.net.Up()
	c.setReach(true)
	c.fleet.names.tell(c.key)
}

// Reset resets all connections, once.
func (c *Cluster) Reset() { c.net.Reset() }

func (c *Cluster) setReach(reach bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reach = reach
}

// Rotate gives out another token, which the resolver tells of. The one before
// is not valid any more; open streams of it go on, as with a real API server.
func (c *Cluster) Rotate() {
	c.mu.Lock()
	c.token++
	c.revoked = false
	c.mu.Unlock()
	c.fleet.names.tell(c.key)
}

// Revoke makes the token invalid, without another one: requests are answered
// with 401 until Rotate. Open streams go on.
func (c *Cluster) Revoke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revoked = true
}

// SetStale makes watches of the kinds, or of any kind if none is named, say
// nothing any more, not even that there is nothing to say, or ends that.
// Everything else is answered, so that the cluster stays connected: its
// informers just show no sign of life, until Status calls it stale after
// Options.StaleAfter, and reads with MaxStaleness refuse the cache. See
// [Cluster.WaitStale]; and [Cluster.Stale] for a view that is old without
// anything telling so.
func (c *Cluster) SetStale(stale bool, kinds ...client.Object) {
	c.fleet.t.Helper()
	c.server.Silence(c.match(kinds), stale)
}

// NewEpoch puts another cluster at the same address: with another identity, a
// history that starts anew, and nothing stored but objs. The token stays valid.
// Kinds that were defined later are gone.
func (c *Cluster) NewEpoch(objs ...client.Object) {
	c.fleet.t.Helper()
	c.mu.Lock()
	c.lives++
	id := c.identity()
	c.mu.Unlock()
	c.server.Become(id)
	c.Store(objs...)
	c.net.Reset()
}

// Snapshot is what a cluster stored at one moment.
type Snapshot struct{ of *fakeapi.Snapshot }

// Snapshot returns what the cluster stores now.
func (c *Cluster) Snapshot() Snapshot { return Snapshot{c.server.Snapshot()} }

// Rollback brings back what was stored, as who restores a backup of etcd:
// resourceVersions go back, and what was written since never happened. The
// identity stays.
func (c *Cluster) Rollback(to Snapshot) {
	c.server.Restore(to.of)
	c.net.Reset()
}

// Compact forgets the history: a watch that has to resume from before is
// refused (410), and lists again.
func (c *Cluster) Compact() { c.server.Compact() }

// Remove takes the cluster away for good, and the way to it from the resolver.
// [Fleet.Add] may add another one of its name.
func (c *Cluster) Remove() {
	f := c.fleet
	f.mu.Lock()
	if f.clusters[c.key] == c {
		delete(f.clusters, c.key)
	}
	f.mu.Unlock()
	c.mu.Lock()
	c.removed = true
	c.mu.Unlock()
	f.names.remove(c.key)
	c.stop()
}
