// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// Disconnect cuts the network: connections are reset, and new ones refused.
func (c *Cluster) Disconnect() {
	c.setReach(false)
	c.net.Down()
}

// Hang makes the network swallow everything: connections stay open, nothing
// arrives, and new connections never complete.
func (c *Cluster) Hang() {
	c.setReach(false)
	c.net.Mute()
}

// Connect restores the network, and makes the ClusterCache try at once.
func (c *Cluster) Connect() {
	c.net.Up()
	c.setReach(true)
	c.reissue()
}

// reissue makes the ClusterCache try at once if it is not content with the
// cluster: it gives it another token beside the valid one, since the same
// access would keep its pause.
func (c *Cluster) reissue() {
	f := c.fleet
	f.mu.Lock()
	cc := f.cache
	f.mu.Unlock()

	content := false
	if cc != nil {
		s, err := cc.Cluster(c.key).Status()
		content = err == nil && s.Phase == status.PhaseReady
	}
	if !content {
		c.mu.Lock()
		c.issued++
		c.mu.Unlock()
	}
	f.names.Changed(c.key)
}

// Reset resets all connections, once.
func (c *Cluster) Reset() { c.net.Reset() }

func (c *Cluster) setReach(reach bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reach = reach
}

// Rotate issues a new token, and the resolver reports the change. The previous
// token becomes invalid; its open streams continue, as with a real API server.
func (c *Cluster) Rotate() {
	c.mu.Lock()
	c.token++
	c.revoked = false
	c.mu.Unlock()

	c.fleet.names.Changed(c.key)
}

// Revoke makes the token invalid without issuing another: requests are answered
// with 401 until Rotate. Open streams continue.
func (c *Cluster) Revoke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revoked = true
}

// SetStale makes watches of the kinds, or of any kind if none is named, send
// nothing any more, not even bookmarks, or ends that. Everything else is
// answered, so that the cluster stays connected: its informers just show no
// sign of life, until Status reports it stale after Options.StaleAfter, and
// reads with MaxStaleness refuse the cache. See [Cluster.WaitStale]; and
// [Cluster.Stale] for a view that is old without any indication.
func (c *Cluster) SetStale(stale bool, kinds ...client.Object) {
	c.fleet.t.Helper()
	c.server.Silence(c.match(kinds), stale)
}

// NewEpoch puts another cluster at the same address: with another identity, a
// new history, and nothing stored but objs. The token stays valid. Kinds that
// were defined later no longer exist.
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

// Snapshot is the stored content of a cluster at one moment.
type Snapshot struct{ of *fakeapi.Snapshot }

// Snapshot returns the currently stored content of the cluster.
func (c *Cluster) Snapshot() Snapshot { return Snapshot{c.server.Snapshot()} }

// Rollback restores the content of a snapshot, like a restored backup of etcd:
// resourceVersions go back, and later writes never happened. The identity
// stays.
func (c *Cluster) Rollback(to Snapshot) {
	c.server.Restore(to.of)
	c.net.Reset()
}

// Compact drops the history: a watch that has to resume from before is refused
// (410), and lists again.
func (c *Cluster) Compact() { c.server.Compact() }

// Remove removes the cluster for good, and its access from the resolver.
// [Fleet.Add] may add another one with its name.
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

	f.names.Remove(c.key)
	c.stop()
}
