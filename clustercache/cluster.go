// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
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
	wants  *wants.Set
	writes *writes.Log // nil without Options.ReadYourWrites

	pinned  atomic.Bool // stays known without a watch
	leaving atomic.Bool // is to be given up with its last watch
	// discovered: made known by Options.Discover. unlisted: missing from the
	// resolver's last list.
	discovered, unlisted atomic.Bool

	// announced is the ownership that subscribers know of.
	announced struct {
		sync.Mutex // taken before the locks of the tenure and of the broadcaster

		token int64     // 0: none
		since time.Time // when it began; a lapse by the clock keeps the token
	}
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
	if cc.options.ReadYourWrites > 0 {
		c.writes = writes.New(func() informerpool.Epoch { return c.conn.View().Epoch })
	}

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
	case c.leaving.Load(), c.cc.options.Discover && !c.cc.tenure.Serves(c.key):
		c.conn.Release()
	}
}

// reassigned is called when the cluster's slot has changed.
func (c *cluster) reassigned(gained bool) {
	c.announce()
	for _, s := range c.cc.subscriptions() {
		s.reassigned(c, gained)
	}
	c.cc.declared.consider(c)
}

// filled reports whether everything that is watched has been listed, as far as
// the cluster can be reached, and serves and permits it.
func (c *cluster) filled() bool {
	switch v := c.conn.View(); {
	case v.Phase == phase.Connecting, v.Phase == phase.Pending && v.Reason == "",
		v.Phase == phase.Gone && v.Reason == status.ReasonReleased:
		return false
	case !v.Connected:
		return true
	}

	for _, w := range c.wants.All() {
		lease, _, err := c.wants.Look(w)
		if lease != nil && !c.listed(lease) {
			err = lease.Status().LastError
		}
		if err == nil && (lease == nil || !c.listed(lease)) {
			return false
		}
	}
	return true
}

// announce emits whether the replica owns the cluster, if that has changed.
func (c *cluster) announce() {
	c.announced.Lock()
	defer c.announced.Unlock()

	state := c.cc.tenure.State(c.key)
	if state == nil {
		return
	}
	token := int64(0)
	if state.Owned {
		token = state.Token
	}
	before := c.announced.token
	if token == before && (token == 0 || state.Since.Equal(c.announced.since)) {
		return
	}
	c.announced.token, c.announced.since = token, state.Since
	if before != 0 {
		c.emit(events.Lost)
	}
	if token != 0 {
		c.emit(events.Gained)
	}
}

// close ends the cluster for good, as Connection.Close does.
func (c *cluster) close() (pending bool) {
	pending = c.conn.Close()
	c.wants.Close(ErrClosed)
	return pending
}

var _ connection.Hooks = (*cluster)(nil)

// Wanted reports whether the cluster is pinned or has a want.
func (c *cluster) Wanted() bool { return c.pinned.Load() || c.wants.Any() }

// Unlisted reports whether only the resolver's list could keep the cluster, and
// does not contain it.
func (c *cluster) Unlisted() bool { return c.unlisted.Load() && !c.pinned.Load() }

// Connected reads the cluster's kinds again and wakes its informers.
func (c *cluster) Connected() {
	c.Resumed()
	c.wants.Kinds.RemapNow()
	c.noticeTwins()
	c.emit(events.Connected)
}

// noticeTwins logs that another key leads to the same cluster, when that is
// found.
func (c *cluster) noticeTwins() {
	uid := c.conn.View().UID
	if others := c.cc.clusters.twins.put(c.key, uid); len(others) > 0 {
		c.cc.log.Info("Two keys lead to the same cluster: each has a connection and caches of its own, "+
			"and what is done for every cluster is done twice",
			"cluster", c.name, "same", namesOf(others), "uid", uid)
	}
}

// Resumed ends the pauses of informers and of look-ups of kinds.
func (c *cluster) Resumed() {
	c.cc.pool.Wake(c.key)
	c.wants.Kinds.MapNow()
}

// Disconnected notifies subscribers.
func (c *cluster) Disconnected() { c.emit(events.Disconnected) }

// PhaseChanged notifies subscriptions, and subscribers if no other event does.
func (c *cluster) PhaseChanged(alone bool) {
	if alone {
		c.emit(events.PhaseChanged)
	}
	for _, s := range c.cc.subscriptions() {
		s.phaseChanged(c, c.conn.View().Phase)
	}
	c.cc.declared.consider(c)
}

// ReasonChanged notifies the owners that declared something.
func (c *cluster) ReasonChanged() {
	c.cc.declared.clusterChanged(c.key)
	c.cc.declared.consider(c)
}

// Doubted notifies all who observe whether the caches answer.
func (c *cluster) Doubted() {
	c.cc.pool.Recheck(c.key)
	c.watchesChanged()
	c.cc.declared.clusterChanged(c.key)
}

// Relabeled notifies subscriptions, and subscribers of a change. When labels
// become known, another event of the cluster follows.
func (c *cluster) Relabeled(changed bool) {
	if changed {
		c.cc.events.publish(c.event(events.Relabeled)) // reads are answered as before: owners are not notified
	}
	for _, s := range c.cc.subscriptions() {
		s.relabeled(c)
	}
	c.cc.declared.consider(c)
}

// Evicted drops the cached objects.
func (c *cluster) Evicted() {
	c.cc.clusters.twins.drop(c.key)
	c.cc.pool.Evict(c.key)
	c.emit(events.Removed)
}

// Silent notifies subscribers.
func (c *cluster) Silent() {
	e := c.event(events.Silent)
	e.SilentFor = c.cc.options.SilentAfter
	c.cc.events.publish(e)
}

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

// matches reports whether the cluster's labels are known, and match.
func (c *cluster) matches(selector labels.Selector) bool {
	have := c.conn.View().Labels
	return have != nil && selector.Matches(labels.Set(have))
}

func (c *cluster) emit(t events.ClusterType) {
	defer c.cc.declared.clusterChanged(c.key)
	c.cc.events.publish(c.event(t))
	switch t {
	case events.Connected, events.Disconnected, events.Removed: // its watches cease to be synced, or may be again
		c.watchesChanged()
	}
}

// watchesChanged notifies those who observe the cluster's watches.
func (c *cluster) watchesChanged() {
	if c.cc.subscribed.watches.any() {
		c.cc.subscribed.watches.publish(watchKeys(c)...)
	}
}

// event returns an event with the cluster's state.
func (c *cluster) event(t events.ClusterType) events.Cluster {
	v := c.conn.View()
	return events.Cluster{
		Cluster: c.key,
		Type:    t,
		Phase:   status.Phase(v.Phase.String()),
		Reason:  v.Reason,
		Epoch:   string(v.Epoch),
		Time:    time.Now(),
	}
}

// newWants returns the set of what is wanted of a cluster.
func newWants(c *cluster) *wants.Set {
	o := &c.cc.options
	return wants.New(wants.Config{
		Cluster:        c.key,
		Name:           c.name,
		Logger:         c.cc.log,
		Context:        c.cc.ctx,
		Pool:           c.cc.pool,
		Mapper:         c.mapper,
		Timers:         c.cc.timers,
		LookUp:         c.cc.lookUp.Submit,
		Source:         informerpool.FromREST(c.cc.endpoint),
		Spawn:          c.cc.spawn,
		RequestTimeout: o.RequestTimeout,
		RetryInterval:  o.RetryInterval,
		IdleTimeout:    o.IdleTimeout,
		Connected:      func() bool { return c.conn.View().Connected },
		Epoch:          func() informerpool.Epoch { return c.conn.View().Epoch },
		StaleAfter:     o.StaleAfter,
		Observed:       c.cc.observed,
		OnChanged:      c.watchChanged,
		AddIndexes: func(lease *informerpool.Lease, gvk schema.GroupVersionKind) {
			c.cc.addIndexes(c, lease, gvk)
		},
		Indexed: func(gvk schema.GroupVersionKind, field string) bool {
			return c.cc.indexes.find(c.key, gvk, field) != nil
		},
		OnBound: func(w *wants.Want) {
			for _, f := range c.cc.subscriptions() {
				f.leaseAdded(c, w)
			}
			c.cc.declared.bound(c, w)
		},
		OnEmpty: c.letGo,
	})
}

// misdirected reports whether an error may mean that the requested resource is
// not the one that serves the kind.
func misdirected(err error) bool {
	return apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) ||
		errors.Is(err, informerpool.ErrOtherVersion)
}
