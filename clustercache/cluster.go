// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/liveclient"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// cluster is one remote cluster: its connection, and what is read and watched
// over it.
type cluster struct {
	fleet  *clusters
	key    client.ObjectKey
	name   string
	conn   *connection.Connection
	mapper *restmap.Mapper
	reader *reader
	wants  *wants.Set
	caches *caches
	server *server
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

// clusterHooks are called by the known clusters. None of them blocks.
type clusterHooks struct {
	added        func(c *cluster) // before it is resolved, and with the lock of the clusters
	changed      func(c *cluster, what change)
	bound        func(c *cluster, want *wants.Want)   // a want has got its lease
	watchChanged func(c *cluster, id wants.Selection) // reads of it may be answered differently
	resolved     func(key client.ObjectKey)           // the resolver's answer may have changed
}

// change is what has changed of a cluster.
type change int

const (
	isKnown change = iota
	isForgotten
	isGained   // by this replica
	reassigned // its slot has changed, and was not gained
	phaseChanged
	reasonChanged
	relabeled
	answersChanged // reads may be answered differently
)

func newCluster(fleet *clusters, key client.ObjectKey) *cluster {
	c := &cluster{
		fleet:  fleet,
		key:    key,
		name:   clusterName(key),
		reader: &reader{fleet: fleet, key: key, mode: fleet.options.ReadMode},
	}
	c.conn = connection.New(&fleet.connections, key, c)
	c.mapper = c.conn.Mapper()
	c.wants = newWants(c)
	c.server = newServer(c)
	c.caches = &caches{
		shared:  fleet.shared,
		cluster: key,
		conn:    c.conn,
		wants:   c.wants,
	}
	if fleet.options.ReadYourWrites > 0 {
		c.writes = writes.New(func() informerpool.Epoch { return c.conn.View().Epoch })
	}

	return c
}

// unpin ends the effect of Engage. The cluster ends with its last want, unless
// Options.Discover is set.
func (c *cluster) unpin() {
	c.pinned.Store(false)
	c.leaving.Store(!c.fleet.options.Discover)
	c.letGo()
}

// leave gives up a cluster without a pin or want, as Disengage would.
func (c *cluster) leave() {
	if !c.Wanted() {
		c.leaving.Store(!c.fleet.options.Discover)
		c.letGo()
	}
}

// letGo ends a cluster that is not wanted, if it was given up or is gone.
func (c *cluster) letGo() {
	switch {
	case c.Wanted():
	case c.conn.View().Phase == phase.Gone:
		c.Gone()
	case c.leaving.Load(), c.fleet.options.Discover && !c.fleet.tenure.Serves(c.key):
		c.conn.Release()
	}
}

// answered reports whether the resolver has answered for the cluster.
func (c *cluster) answered() bool {
	v := c.conn.View()
	begins := v.Phase == phase.Pending || v.Phase == phase.Connecting
	return !begins || v.Reason != "" || v.Labels != nil
}

// announce emits whether the replica owns the cluster, if that has changed.
func (c *cluster) announce() {
	c.announced.Lock()
	defer c.announced.Unlock()

	state := c.fleet.tenure.State(c.key)
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

// WhyNot returns why a cluster is not connected.
func (c *cluster) WhyNot() error {
	if !c.fleet.live.Load() && c.fleet.ctx.Err() == nil {
		return ErrNotStarted
	}
	v := c.conn.View()
	base := ErrNotConnected
	if v.Phase == phase.Connecting || (v.Phase == phase.Pending && v.Err == nil) {
		base = ErrConnecting
	}
	if v.Err != nil {
		return fmt.Errorf("%w: %w", base, apistatus.AboutOther(v.Err))
	}
	return base
}

// Connected wakes the cluster's informers, and looks up the kinds that are not
// known.
func (c *cluster) Connected() {
	c.Resumed()
	c.wants.Kinds.Reconnected()
	c.noticeTwins()
	c.emit(events.Connected)
}

// noticeTwins logs that another key leads to the same cluster, when that is
// found.
func (c *cluster) noticeTwins() {
	uid := c.conn.View().UID
	if others := c.fleet.twins.put(c.key, uid); len(others) > 0 {
		c.fleet.log.Info("Two keys lead to the same cluster: each has a connection and caches of its own, "+
			"and what is done for every cluster is done twice",
			"cluster", c.name, "same", namesOf(others), "uid", uid)
	}
}

// Resumed ends the pauses of informers and of look-ups of kinds.
func (c *cluster) Resumed() {
	c.fleet.pool.Wake(c.key)
	c.wants.Kinds.MapNow()
}

// Disconnected notifies subscribers.
func (c *cluster) Disconnected() { c.emit(events.Disconnected) }

// PhaseChanged notifies subscriptions, and subscribers if no other event does.
func (c *cluster) PhaseChanged(alone bool) {
	if alone {
		c.emit(events.PhaseChanged)
	}
	c.fleet.hooks.changed(c, phaseChanged)
}

// ReasonChanged notifies the owners that declared something.
func (c *cluster) ReasonChanged() {
	c.fleet.hooks.changed(c, answersChanged)
	c.fleet.hooks.changed(c, reasonChanged)
}

// Doubted notifies all who observe whether the caches answer.
func (c *cluster) Doubted() {
	c.fleet.pool.Recheck(c.key)
	c.watchesChanged()
	c.fleet.hooks.changed(c, answersChanged)
}

// Relabeled notifies subscriptions, and subscribers of a change. When labels
// become known, another event of the cluster follows.
func (c *cluster) Relabeled(changed bool) {
	if changed {
		c.fleet.events.publish(c.event(events.Relabeled)) // reads are answered as before: owners are not notified
	}
	c.fleet.hooks.changed(c, relabeled)
}

// Evicted drops the cached objects.
func (c *cluster) Evicted() {
	c.fleet.twins.drop(c.key)
	c.fleet.pool.Evict(c.key)
	c.emit(events.Removed)
}

// Silent notifies subscribers.
func (c *cluster) Silent() {
	e := c.event(events.Silent)
	e.SilentFor = c.fleet.options.SilentAfter
	c.fleet.events.publish(e)
}

// Recovered shortens the pauses of informers.
func (c *cluster) Recovered() { c.fleet.pool.Nudge(c.key) }

// Replaced has the caches compared with the server, and reads its kinds again.
func (c *cluster) Replaced() {
	c.fleet.pool.AuditSoon(c.key)
	c.wants.Kinds.RemapNow()
}

// NoAccess reads the resolver's list again if that made the cluster known: the
// cluster may be gone, and not only wait for its Secret.
func (c *cluster) NoAccess() {
	if c.discovered.Load() {
		timetable.Wake(c.fleet.listing.relisting)
	}
}

// Gone forgets the cluster.
func (c *cluster) Gone() { c.fleet.spawn(func() { c.fleet.forget(c) }) }

// matches reports whether the cluster's labels are known, and match.
func (c *cluster) matches(selector labels.Selector) bool {
	have := c.conn.View().Labels
	return have != nil && selector.Matches(labels.Set(have))
}

func (c *cluster) emit(t events.ClusterType) {
	defer c.fleet.hooks.changed(c, answersChanged)
	c.fleet.events.publish(c.event(t))
	switch t {
	case events.Connected, events.Disconnected, events.Removed: // its watches cease to be synced, or may be again
		c.watchesChanged()
	}
}

// watchesChanged notifies those who observe the cluster's watches.
func (c *cluster) watchesChanged() {
	if c.fleet.watches.any() {
		c.fleet.watches.publish(watchKeys(c)...)
	}
}

// watchChanged is called with every change of a watch. It does not block.
func (c *cluster) watchChanged(id wants.Selection, reads bool) {
	c.fleet.watches.publish(keyOf(c.key, id))
	if reads {
		c.fleet.hooks.watchChanged(c, id)
	}
}

// watchKeys returns the keys of all watches of clusters; nil is none.
func watchKeys(of ...*cluster) (keys []status.WatchKey) {
	for _, c := range of {
		if c == nil {
			continue
		}
		for _, w := range c.wants.All() {
			keys = append(keys, keyOf(c.key, w.Selection))
		}
	}
	return keys
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
	o := &c.fleet.options
	return wants.New(wants.Config{
		Cluster:        c.key,
		Name:           c.name,
		Logger:         c.fleet.log,
		Context:        c.fleet.ctx,
		Pool:           c.fleet.pool,
		Mapper:         c.mapper,
		Timers:         c.fleet.timers,
		LookUp:         c.fleet.lookUp.Submit,
		Source:         informerpool.FromREST(c.fleet.endpoint),
		Spawn:          c.fleet.spawn,
		RequestTimeout: o.RequestTimeout,
		RetryInterval:  o.RetryInterval,
		IdleTimeout:    o.IdleTimeout,
		Connected:      func() bool { return c.conn.View().Connected },
		Epoch:          func() informerpool.Epoch { return c.conn.View().Epoch },
		StaleAfter:     o.StaleAfter,
		Observed:       func() bool { return c.fleet.watches.any() || c.fleet.owners.any() },
		OnChanged:      c.watchChanged,
		AddIndexes: func(lease *informerpool.Lease, gvk schema.GroupVersionKind) {
			c.fleet.indexes.addTo(lease, c.key, gvk)
		},
		Indexed: func(gvk schema.GroupVersionKind, field string) bool {
			return c.fleet.indexes.find(c.key, gvk, field) != nil
		},
		OnBound: func(w *wants.Want) { c.fleet.hooks.bound(c, w) },
		OnEmpty: c.letGo,
	})
}

// newServer returns the cluster's API server.
func newServer(c *cluster) *server {
	o, through := &c.fleet.options, c.conn.Transport()
	return &server{
		shared:  c.fleet.shared,
		cluster: c.key,
		conn:    c.conn,
		live: liveclient.NewFactory(liveclient.Config{
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
			Rediscovered:    c.wants.Kinds.RemapNow,
		}),
	}
}
