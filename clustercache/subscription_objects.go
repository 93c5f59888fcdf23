// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// objectSubscription delivers the events of the objects that a Selection
// selects.
type objectSubscription struct {
	cc     *ClusterCache
	spec   events.Selection
	wanted []wants.Selection                                 // of Kinds and Narrowed; without a kind: of every kind
	given  map[schema.GroupVersionKind]events.Representation // the representation in which each kind was named
	misfit atomic.Int64                                      // events whose object could not be converted
	pool   *informerpool.Subscription
	resync *timetable.Timer

	mu      sync.Mutex // protects the fields below; taken before the lock of the timers
	watches map[*cluster]map[wants.Selection]*Watch
	started bool
	stopped bool
}

// local reports whether a canonical field selector can be evaluated on any
// object's metadata.
func local(selector string) bool {
	s, err := fields.ParseSelector(selector)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(s.Requirements(), func(r fields.Requirement) bool {
		return r.Field != "metadata.name" && r.Field != "metadata.namespace"
	})
}

// handle passes an event on if the predicates accept it.
func (s *objectSubscription) handle(e informerpool.Event, to func(events.Object)) {
	if s.spec.Owned && !s.cc.tenure.Owns(e.Key.Cluster) {
		return // if it is gained, its objects are delivered once more
	}
	defer s.cc.calls.Enter("predicate or handler of a Selection")()
	gvk := e.Object().GetObjectKind().GroupVersionKind()
	v := &views{cc: s.cc, cluster: e.Key.Cluster, given: s.representation(gvk)}
	ok, err := v.passes(s.spec.Predicates, e)
	if err != nil {
		s.misfit.Add(1)
	}
	if ok || err != nil {
		to(events.Object{
			Cluster: e.Key.Cluster,
			GVK:     gvk,
			Event:   e,
			Decoder: v,
		})
	}
}

// representation returns the representation in which functions receive objects
// of a kind.
func (s *objectSubscription) representation(gvk schema.GroupVersionKind) events.Representation {
	if s.spec.Representation != events.AsGiven {
		return s.spec.Representation
	}
	if r, ok := s.given[gvk]; ok {
		return r
	}
	return events.Packed
}

// start takes the subscription's own watches, or subscribes to the watches of
// others. It does not block. It does nothing after stop or another start.
func (s *objectSubscription) start() {
	s.cc.used()
	s.mu.Lock()
	started := s.started
	s.started = true
	s.mu.Unlock()

	if started {
		return
	}
	// The subscription is registered first: a cluster or lease that is added
	// during the loop below is offered by its adder as well, and twice does no
	// harm.
	s.cc.subscribed.mu.Lock()
	s.cc.subscribed.all[s] = struct{}{}
	s.cc.subscribed.mu.Unlock()

	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()

	if stopped { // perhaps before the subscription was registered: then stop has not unregistered it
		s.unregister()
		return
	}
	for _, c := range s.cc.all() {
		s.enter(c)
	}

	s.setResync()
	s.noticeUnwatched()
}

// noticeUnwatched logs if, some seconds later, nothing watches what the
// subscription selects: it would never have an event.
func (s *objectSubscription) noticeUnwatched() {
	if s.spec.Watch {
		return
	}
	s.cc.timers.Set(timetable.NewTimer(func() {
		s.mu.Lock()
		stopped := s.stopped
		s.mu.Unlock()

		if stopped || s.watched() {
			return
		}
		s.cc.log.Info("Nothing watches what a subscription to objects selects, so it has no events; "+
			"set Selection.Watch, or let others watch it (Watch, Declare)", "kinds", s.kinds())
	}), time.Now().Add(noticeAfter))
}

// watched reports whether there is a watch of what the subscription selects.
func (s *objectSubscription) watched() bool {
	for _, c := range s.cc.all() {
		for _, want := range c.wants.All() {
			if _, ok := s.narrower(want.Selection); ok {
				return true
			}
		}
	}
	return false
}

// kinds returns the names of the kinds that are selected; none means all.
func (s *objectSubscription) kinds() (names []string) {
	for _, id := range s.wanted {
		if !id.GVK.Empty() {
			names = append(names, kindName(id.GVK))
		}
	}
	return names
}

// subscribed are the registered subscriptions.
type subscribed struct {
	watches levelHub[status.WatchKey] // the watches that changed

	mu  sync.Mutex // protects all; nothing else is locked under it
	all map[*objectSubscription]struct{}
}

// wants reports whether the subscription selects c. It recovers from a panic of
// Selection.Clusters, which must not reach the code that adds a cluster.
func (s *objectSubscription) wants(c *cluster) (ok bool) {
	if s.spec.ClusterSelector != nil && !c.matches(s.spec.ClusterSelector) {
		return false
	}
	if s.spec.Clusters == nil {
		return true
	}
	err := s.cc.calls.Call("Selection.Clusters", func() error {
		ok = s.spec.Clusters(c.key)
		return nil
	}, "cluster", c.name)
	return ok && err == nil // a panic leaves the cluster out
}

// leaseAdded is called for every lease of a cluster.
func (s *objectSubscription) leaseAdded(c *cluster, want *wants.Want) {
	narrower, ok := s.narrower(want.Selection)
	if ok && s.wants(c) {
		_ = s.pool.Add(want.Lease(), narrower...) // it fails if the subscription or the lease has ended meanwhile
		s.leaveUnlessSelected(c)
	}
}

// relabeled is called when the labels of a cluster have become known, or have
// changed.
func (s *objectSubscription) relabeled(c *cluster) {
	if s.spec.ClusterSelector == nil {
		return
	}
	s.enter(c)
	s.leaveUnlessSelected(c)
}

// enter takes the watches of a selected cluster, and its present leases.
func (s *objectSubscription) enter(c *cluster) {
	if !s.wants(c) {
		return
	}
	s.clusterAdded(c)
	for _, want := range c.wants.Index.Readable() {
		s.leaseAdded(c, want)
	}
}

// leaveUnlessSelected ends the delivery of a cluster's events, and releases its
// watches, if its labels do not match. A cluster that is gone still has deletes
// to deliver: see phaseChanged.
func (s *objectSubscription) leaveUnlessSelected(c *cluster) {
	selector := s.spec.ClusterSelector
	if selector == nil || c.conn.View().Phase == phase.Gone || c.matches(selector) {
		return
	}
	for _, want := range c.wants.Index.Readable() {
		s.pool.Remove(want.Lease())
	}
	s.cc.spawn(func() { // not on the goroutine that handles the cluster's mailbox
		if c.conn.View().Phase == phase.Gone || c.matches(selector) {
			return // meanwhile
		}
		s.leave(c)
		s.enter(c) // it may have been selected again just before
	})
}

// narrower reports whether the subscription wants events of a watch, and
// returns the keys that narrow them further.
func (s *objectSubscription) narrower(id wants.Selection) (keys []informerpool.Key, ok bool) {
	if s.spec.Watch {
		return nil, slices.Contains(s.wanted, id)
	}
	for _, w := range s.wanted {
		if w.GVK != id.GVK && !w.GVK.Empty() {
			continue
		}
		if w.Namespace+w.LabelSelector+w.FieldSelector == "" {
			return nil, true
		}
		keys = append(keys, informerpool.Key{
			Namespace:     w.Namespace,
			LabelSelector: w.LabelSelector,
			FieldSelector: w.FieldSelector,
		})
	}

	return keys, len(keys) > 0
}

// clusterAdded is called for every cluster. It takes the watches that the
// subscription lacks in it.
func (s *objectSubscription) clusterAdded(c *cluster) {
	if !s.spec.Watch || c.conn.View().Phase == phase.Gone || !s.serves(c) || !s.wants(c) {
		return
	}
	for _, id := range s.wanted {
		if s.has(c, id) {
			continue
		}
		want := c.wants.Acquire(id)
		if want == nil {
			continue // the cluster is being forgotten; its successor gets a call of its own
		}
		w := &Watch{c: c, want: want, released: make(chan struct{})}
		s.mu.Lock()
		surplus := s.stopped || s.watches[c][id] != nil
		if !surplus && s.watches[c] == nil {
			s.watches[c] = map[wants.Selection]*Watch{}
		}
		if !surplus {
			s.watches[c][id] = w
		}
		s.mu.Unlock()

		if surplus {
			w.Release()
		}
	}

	if !s.serves(c) { // any more, and leave found no watch
		s.leave(c)
	}
	s.leaveUnlessSelected(c)
}

func (s *objectSubscription) has(c *cluster, id wants.Selection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped || s.watches[c][id] != nil
}

// serves reports whether the subscription may have watches in c.
func (s *objectSubscription) serves(c *cluster) bool {
	return !s.spec.Owned || c.cc.tenure.Serves(c.key)
}

// reassigned is called when c's slot has changed.
func (s *objectSubscription) reassigned(c *cluster, gained bool) {
	switch {
	case !s.spec.Owned:
	case s.serves(c):
		s.clusterAdded(c)
	default:
		s.leave(c)
	}

	if s.spec.Owned && gained {
		s.resyncCluster(c)
	}
}

// leave releases the watches of a cluster that the subscription may no longer
// have watches in.
func (s *objectSubscription) leave(c *cluster) {
	s.mu.Lock()
	watches := s.watches[c]
	delete(s.watches, c)
	s.mu.Unlock()

	for _, w := range watches {
		w.Release()
	}
	if s.serves(c) { // again, and clusterAdded found no watch lacking
		s.clusterAdded(c)
	}
}

// phaseChanged is called for every change of a cluster's phase. The
// subscription's watches must not keep a cluster known that no longer exists,
// even if the subscription is paused or its handler slow: the subscription
// alone keeps the deletes that the handler has yet to receive.
func (s *objectSubscription) phaseChanged(c *cluster, p phase.Phase) {
	if p != phase.Gone {
		s.clusterAdded(c)
		return
	}
	s.mu.Lock()
	watches := maps.Clone(s.watches[c])
	s.mu.Unlock()

	if len(watches) == 0 {
		return
	}
	s.cc.spawn(func() { // not on the goroutine that handles the cluster's mailbox
		for id, w := range watches {
			s.letGo(c, id, w)
		}
	})
}

// letGo releases a watch of a cluster, unless the cluster is back.
func (s *objectSubscription) letGo(c *cluster, id wants.Selection, w *Watch) {
	s.mu.Lock()
	if c.conn.View().Phase != phase.Gone || s.watches[c][id] != w {
		s.mu.Unlock()
		return
	}
	delete(s.watches[c], id)
	if len(s.watches[c]) == 0 {
		delete(s.watches, c)
	}
	s.mu.Unlock()

	w.retire()
	// The cluster may have come back just before the delete above, when
	// clusterAdded found no watch lacking.
	s.clusterAdded(c)
}

// trigger delivers an object again, if it is cached.
func (s *objectSubscription) trigger(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) {
	c := s.cc.find(cluster)
	if c == nil {
		return
	}
	for _, want := range c.wants.Index.Of(gvk) {
		s.pool.Trigger(want.Lease(), want.In(object.Namespace), object.Name)
	}
}

// triggerAll delivers every object again.
func (s *objectSubscription) triggerAll() {
	for _, c := range s.cc.all() {
		s.resyncCluster(c)
	}
}

func (s *objectSubscription) resyncCluster(c *cluster) {
	for _, want := range c.wants.Index.Readable() {
		s.pool.Resync(want.Lease())
	}
}

// resyncDue is called by the timers. It spawns the resync, because visiting
// every object would delay other timers.
func (s *objectSubscription) resyncDue() {
	s.cc.spawn(func() {
		s.triggerAll()
		s.setResync()
	})
}

// setResync sets the timer of the next resync, unless the subscription has
// stopped: stop has removed the timer for the last time.
func (s *objectSubscription) setResync() {
	interval := s.spec.ResyncInterval
	if interval == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.cc.timers.Set(s.resync, time.Now().Add(interval-rand.N(interval/5+1)))
	}
}

func (s *objectSubscription) unregister() {
	s.cc.subscribed.mu.Lock()
	defer s.cc.subscribed.mu.Unlock()
	delete(s.cc.subscribed.all, s)
}

// stop ends the subscription. It does not wait.
func (s *objectSubscription) stop() {
	s.mu.Lock()
	s.stopped = true
	s.cc.timers.Set(s.resync, time.Time{})
	watches := s.watches
	s.watches = nil
	s.mu.Unlock()

	s.unregister() // after stopped was set: see start
	s.pool.Stop()
	for _, of := range watches {
		for _, w := range of {
			w.Release()
		}
	}
}

func (s *objectSubscription) wait(ctx context.Context) error { return s.pool.Close(ctx) }

func (s *objectSubscription) pause(paused bool) {
	if paused {
		s.pool.Pause()
	} else {
		s.pool.Continue()
	}
}

func (s *objectSubscription) failures() int64 { return s.pool.Panics() + s.misfit.Load() }
