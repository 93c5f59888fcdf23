// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// objectSubscription delivers the events of the objects that a Selection
// selects.
type objectSubscription struct {
	fleet  *clusters
	others *subscriptions
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

// handle passes an event on if the predicates accept it.
func (s *objectSubscription) handle(e informerpool.Event, to func(events.Object)) {
	if s.spec.Owned && !s.fleet.tenure.Owns(e.Key.Cluster) {
		return // if it is gained, its objects are delivered once more
	}
	defer s.fleet.calls.Enter("predicate or handler of a Selection")()
	gvk := e.Object().GetObjectKind().GroupVersionKind()
	v := &views{shared: s.fleet.shared, cluster: e.Key.Cluster, given: s.representation(gvk)}
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
	s.fleet.used()
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
	s.others.add(s)
	if s.isStopped() { // perhaps before the subscription was registered: then stop has not unregistered it
		s.others.remove(s)
		return
	}
	for _, c := range s.fleet.all() {
		s.enter(c)
	}

	s.setResync()
	s.noticeUnwatched()
}

func (s *objectSubscription) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// noticeUnwatched logs if, some seconds later, nothing watches what the
// subscription selects: it would never have an event.
func (s *objectSubscription) noticeUnwatched() {
	if s.spec.Watch {
		return
	}
	s.fleet.timers.Set(timetable.NewTimer(func() {
		if s.isStopped() || s.watched() {
			return
		}
		s.fleet.log.Info("Nothing watches what a subscription to objects selects, so it has no events; "+
			"set Selection.Watch, or let others watch it (Watch, Declare)", "kinds", s.kinds())
	}), time.Now().Add(noticeAfter))
}

// watched reports whether there is a watch of what the subscription selects.
func (s *objectSubscription) watched() bool {
	for _, c := range s.fleet.all() {
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

// wants reports whether the subscription selects c. It recovers from a panic of
// Selection.Clusters, which must not reach the code that adds a cluster.
func (s *objectSubscription) wants(c *cluster) (ok bool) {
	if s.spec.ClusterSelector != nil && !c.matches(s.spec.ClusterSelector) {
		return false
	}
	if s.spec.Clusters == nil {
		return true
	}
	err := s.fleet.calls.Call("Selection.Clusters", func() error {
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
	s.fleet.spawn(func() { // not on the goroutine that handles the cluster's mailbox
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
		w := newWatch(c, want)
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
	return !s.spec.Owned || c.fleet.tenure.Serves(c.key)
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
func (s *objectSubscription) phaseChanged(c *cluster) {
	if c.conn.View().Phase != phase.Gone {
		s.clusterAdded(c)
		return
	}
	s.mu.Lock()
	watches := maps.Clone(s.watches[c])
	s.mu.Unlock()

	if len(watches) == 0 {
		return
	}
	s.fleet.spawn(func() { // not on the goroutine that handles the cluster's mailbox
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

// Trigger delivers an object again, if it is cached.
func (s *objectSubscription) Trigger(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) {
	c := s.fleet.find(cluster)
	if c == nil {
		return
	}
	for _, want := range c.wants.Index.Of(gvk) {
		s.pool.Trigger(want.Lease(), want.In(object.Namespace), object.Name)
	}
}

// TriggerAll delivers every object again.
func (s *objectSubscription) TriggerAll() {
	for _, c := range s.fleet.all() {
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
	s.fleet.spawn(func() {
		s.TriggerAll()
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
		s.fleet.timers.Set(s.resync, time.Now().Add(interval-rand.N(interval/5+1)))
	}
}

// stop ends the subscription. It does not wait.
func (s *objectSubscription) stop() {
	s.mu.Lock()
	s.stopped = true
	s.fleet.timers.Set(s.resync, time.Time{})
	watches := s.watches
	s.watches = nil
	s.mu.Unlock()

	s.others.remove(s) // after stopped was set: see start
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

func (s *objectSubscription) Failures() int64 { return s.pool.Panics() + s.misfit.Load() }

// subscriptions are the subscriptions to objects.
type subscriptions struct {
	fleet *clusters

	mu  sync.Mutex // protects all; nothing else is locked under it
	all map[*objectSubscription]struct{}
}

// add registers a subscription that has started.
func (s *subscriptions) add(o *objectSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[o] = struct{}{}
}

// remove undoes add.
func (s *subscriptions) remove(o *objectSubscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, o)
}

// started returns the subscriptions that have started, and not stopped.
func (s *subscriptions) started() []*objectSubscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}

// changed is called with each change of a cluster. It does not block.
func (s *subscriptions) changed(c *cluster, what change) {
	for _, o := range s.started() {
		switch what {
		case isKnown:
			o.clusterAdded(c)
		case isGained, reassigned:
			o.reassigned(c, what == isGained)
		case phaseChanged:
			o.phaseChanged(c)
		case relabeled:
			o.relabeled(c)
		}
	}
}

// bound is called for every want that has got its lease. It does not block.
func (s *subscriptions) bound(c *cluster, want *wants.Want) {
	for _, o := range s.started() {
		o.leaseAdded(c, want)
	}
}

// selected returns the ids that a Selection selects.
func (s *subscriptions) selected(spec events.Selection) ([]wants.Selection, error) {
	if spec.ResyncInterval < 0 {
		return nil, &OptionError{Field: "ResyncInterval", Err: errors.New("negative")}
	}
	if spec.Watch && len(spec.Kinds)+len(spec.Narrowed) == 0 {
		return nil, &OptionError{Field: "Watch", Err: errors.New("needs Kinds or Narrowed")}
	}
	for i, p := range spec.Predicates {
		if p == nil {
			return nil, &OptionError{Field: fmt.Sprintf("Predicates[%d]", i), Err: errNilCallback}
		}
	}
	var ids []wants.Selection
	add := func(field string, kind client.Object, options []client.ListOption) error {
		id, err := newSelection(s.fleet.options.Scheme, kind, options)
		if err != nil {
			return &OptionError{Field: field, Err: err}
		}
		if !spec.Watch && !local(id.FieldSelector) {
			return &OptionError{
				Field: field,
				Err:   fmt.Errorf("field selector %q without Watch: %w", id.FieldSelector, ErrUnsupported),
			}
		}
		ids = append(ids, id)
		return nil
	}
	for i, kind := range spec.Kinds {
		if err := add(fmt.Sprintf("Kinds[%d]", i), kind, spec.Options); err != nil {
			return nil, err
		}
	}
	for i, s := range spec.Narrowed {
		if err := add(fmt.Sprintf("Narrowed[%d].Kind", i), s.Kind, s.Options); err != nil {
			return nil, err
		}
	}
	if len(ids) == 0 {
		if err := add("Options", Kind(schema.GroupVersionKind{Version: "v1", Kind: "Any"}), spec.Options); err != nil {
			return nil, err
		}
		ids[0].GVK = schema.GroupVersionKind{}
	}

	return ids, nil
}

// subscribe returns a subscription, which start begins and stop ends. It calls
// handle with one event at a time, and counts a panic in it or in a predicate.
func (s *subscriptions) subscribe(spec events.Selection, handle func(events.Object)) (*objectSubscription, error) {
	if spec.Representation > events.Metadata {
		return nil, &OptionError{Field: "Representation", Err: ErrUnsupported}
	}
	wanted, err := s.selected(spec)
	if err != nil {
		return nil, err
	}
	if s.fleet.ctx.Err() != nil {
		return nil, ErrClosed
	}
	o := &objectSubscription{
		fleet:   s.fleet,
		others:  s,
		spec:    spec,
		wanted:  wanted,
		given:   s.given(spec),
		watches: map[*cluster]map[wants.Selection]*Watch{},
	}
	o.pool = s.fleet.pool.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) { o.handle(e, handle) }))
	o.resync = timetable.NewTimer(o.resyncDue)

	return o, nil
}

// given returns the representation in which each kind was named, and Typed for
// a kind named in several representations.
func (s *subscriptions) given(spec events.Selection) map[schema.GroupVersionKind]events.Representation {
	kinds := slices.Clone(spec.Kinds)
	for _, s := range spec.Narrowed {
		kinds = append(kinds, s.Kind)
	}
	given := map[schema.GroupVersionKind]events.Representation{}
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, s.fleet.options.Scheme)
		if r := givenRepresentation(kind); err == nil && given[gvk] != events.Typed {
			given[gvk] = r
		}
	}

	return given
}
