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
	"github.com/fleetcache/fleetcache/clustercache/internal/members"
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
	own    *members.Set[*cluster, []*Watch] // of wanted; empty without Selection.Watch

	started atomic.Bool

	mu      sync.Mutex // protects stopped; taken before the lock of the timers
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
	if s.started.Swap(true) {
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

// matches reports whether the selection's labels select c.
func (s *objectSubscription) matches(c *cluster) bool {
	return s.spec.ClusterSelector == nil || c.matches(s.spec.ClusterSelector)
}

// chosen reports whether Selection.Clusters selects c. It recovers from a panic,
// which must not reach the code that adds a cluster.
func (s *objectSubscription) chosen(c *cluster) (ok bool) {
	if s.spec.Clusters == nil {
		return true
	}
	err := s.fleet.calls.Call("Selection.Clusters", func() error {
		ok = s.spec.Clusters(c.key)
		return nil
	}, "cluster", c.name)
	return ok && err == nil // a panic leaves the cluster out
}

// enter takes the watches of a selected cluster, and its present leases.
func (s *objectSubscription) enter(c *cluster) {
	s.consider(c)
	for _, want := range c.wants.Index.Readable() {
		s.follow(c, want)
	}
}

// follow is called for every lease of a cluster. It delivers the events of the
// lease if the subscription selects the cluster, and none otherwise. A cluster
// that is gone still has deletes to deliver.
func (s *objectSubscription) follow(c *cluster, want *wants.Want) {
	narrower, ok := s.narrower(want.Selection)
	if !ok {
		return
	}
	for again := true; again; {
		selected := s.matches(c)
		switch {
		case selected && !s.chosen(c):
			return
		case selected:
			_ = s.pool.Add(want.Lease(), narrower...) // it fails if the subscription or the lease has ended meanwhile
		case c.conn.View().Phase != phase.Gone:
			s.pool.Remove(want.Lease())
		}
		again = s.matches(c) != selected
	}
}

// relabeled is called when the labels of a cluster have become known, or have
// changed.
func (s *objectSubscription) relabeled(c *cluster) {
	if s.spec.ClusterSelector != nil {
		s.enter(c)
	}
}

// consider is called with each change of a cluster. It takes watches in it, or
// releases them.
func (s *objectSubscription) consider(c *cluster) {
	switch {
	case !s.own.Due(c):
	case s.watches(c):
		s.own.Look(c)
	default:
		s.fleet.spawn(func() { s.own.Look(c) }) // not on the goroutine that handles the cluster's mailbox
	}
}

// watches reports whether the subscription has to have watches in c, if that is
// chosen.
func (s *objectSubscription) watches(c *cluster) bool {
	return s.spec.Watch && c.conn.View().Phase != phase.Gone &&
		(!s.spec.Owned || s.fleet.tenure.Serves(c.key)) && s.matches(c)
}

func (s *objectSubscription) acquire(c *cluster) ([]*Watch, bool) {
	if !s.chosen(c) {
		return nil, false
	}
	watches := make([]*Watch, 0, len(s.wanted))
	for _, id := range s.wanted {
		want := c.wants.Acquire(id)
		if want == nil { // the cluster is being forgotten; its successor is considered by itself
			s.release(c, watches)
			return nil, false
		}
		watches = append(watches, newWatch(c, want))
	}
	return watches, true
}

// release ends the watches of a cluster. They must not keep a cluster known
// that no longer exists, even if the subscription is paused or its handler slow:
// the subscription alone keeps the deletes that the handler has yet to receive.
func (s *objectSubscription) release(c *cluster, watches []*Watch) {
	for _, w := range watches {
		if c.conn.View().Phase == phase.Gone {
			w.retire()
		} else {
			w.Release()
		}
	}
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

// reassigned is called when c's slot has changed.
func (s *objectSubscription) reassigned(c *cluster, gained bool) {
	if !s.spec.Owned {
		return
	}
	s.consider(c)
	if gained {
		s.resyncCluster(c)
	}
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
	s.mu.Unlock()

	s.others.remove(s) // after stopped was set: see start
	s.pool.Stop()
	s.own.Close()
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
		case isKnown, phaseChanged:
			o.consider(c)
		case isGained, reassigned:
			o.reassigned(c, what == isGained)
		case relabeled:
			o.relabeled(c)
		}
	}
}

// bound is called for every want that has got its lease. It does not block.
func (s *subscriptions) bound(c *cluster, want *wants.Want) {
	for _, o := range s.started() {
		o.follow(c, want)
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
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
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
		fleet:  s.fleet,
		others: s,
		spec:   spec,
		wanted: wanted,
		given:  s.given(spec),
	}
	o.own = members.New(members.Config[*cluster, []*Watch]{
		Wanted:  o.watches,
		Acquire: o.acquire,
		Entered: func(*cluster, []*Watch) {},
		Left:    o.release,
	})
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
