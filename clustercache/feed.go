// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/phase"
)

// feed is one subscription to objects' events.
type feed struct {
	cc     *ClusterCache
	spec   ObjectFeed
	wanted []watchID // of the Kinds and Selections; one without a kind stands for every kind
	pool   *informerpool.Subscription
	resync *timer

	mu      sync.Mutex // protects what follows; taken before the lock of the timers
	watches map[*cluster][]*Watch
	stopped bool
}

// selected returns what a feed selects.
func (cc *ClusterCache) selected(spec ObjectFeed) ([]watchID, error) {
	if spec.ResyncInterval < 0 {
		return nil, &OptionError{Field: "ResyncInterval", Err: errors.New("negative")}
	}
	if spec.Watch && len(spec.Kinds)+len(spec.Selections) == 0 {
		return nil, &OptionError{Field: "Watch", Err: errors.New("needs Kinds or Selections")}
	}
	var ids []watchID
	add := func(field string, kind client.Object, options []client.ListOption) error {
		if kind == nil {
			return &OptionError{Field: field, Err: errors.New("required")}
		}
		id, err := cc.watchID(kind, options)
		if err == nil && !spec.Watch && !local(id.fields) {
			err = &OptionError{Field: field, Err: fmt.Errorf("field selector %q without Watch: %w", id.fields, ErrUnsupported)}
		}
		ids = append(ids, id)
		return err
	}
	for i, kind := range spec.Kinds {
		if err := add(fmt.Sprintf("Kinds[%d]", i), kind, spec.Options); err != nil {
			return nil, err
		}
	}
	for i, s := range spec.Selections {
		if err := add(fmt.Sprintf("Selections[%d].Kind", i), s.Kind, s.Options); err != nil {
			return nil, err
		}
	}
	if len(ids) == 0 {
		if err := add("Options", Kind(schema.GroupVersionKind{Version: "v1", Kind: "Any"}), spec.Options); err != nil {
			return nil, err
		}
		ids[0].gvk = schema.GroupVersionKind{}
	}
	return ids, nil
}

// local tells whether a canonical field selector can be evaluated on any object's metadata.
func local(selector string) bool {
	s, err := fields.ParseSelector(selector)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(s.Requirements(), func(r fields.Requirement) bool {
		return r.Field != "metadata.name" && r.Field != "metadata.namespace"
	})
}

// newFeed returns a feed that start begins and stop ends. handle is called with one event at a time; a panic in it, or in
// a predicate, is counted by the subscription.
func (cc *ClusterCache) newFeed(spec ObjectFeed, handle func(ObjectEvent)) (*feed, error) {
	wanted, err := cc.selected(spec)
	if err != nil {
		return nil, err
	}
	if cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	f := &feed{cc: cc, spec: spec, wanted: wanted, watches: map[*cluster][]*Watch{}}
	f.pool = cc.pool.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) {
		if passes(f.spec.Predicates, e) {
			handle(ObjectEvent{Cluster: e.Key.Cluster, GVK: e.Object().GetObjectKind().GroupVersionKind(), Event: e})
		}
	}))
	f.resync = newTimer(f.resyncDue)
	return f, nil
}

// start does not block. It does nothing after stop.
func (f *feed) start() {
	// Registered first: what is added while the loop below looks is offered from there, and twice does no harm.
	f.cc.feedsMu.Lock()
	f.cc.feeds[f] = struct{}{}
	f.cc.feedsMu.Unlock()
	f.mu.Lock()
	stopped := f.stopped
	f.mu.Unlock()
	if stopped { // maybe before the feed was registered: then nobody else takes it back
		f.unregister()
		return
	}
	for _, c := range f.cc.all() {
		for _, h := range c.holds.leases() {
			f.leaseAdded(c, h)
		}
		f.clusterAdded(c)
	}
	f.setResync()
}

func (cc *ClusterCache) allFeeds() []*feed {
	cc.feedsMu.Lock()
	defer cc.feedsMu.Unlock()
	return slices.Collect(maps.Keys(cc.feeds))
}

// wants asks the user's function, whose panic must not end who adds a cluster.
func (f *feed) wants(c *cluster) (ok bool) {
	if f.spec.Clusters == nil {
		return true
	}
	defer func() {
		if recover() != nil {
			f.cc.log.Error(nil, "ObjectFeed.Clusters panicked; the cluster is left out", "cluster", c.name)
			ok = false
		}
	}()
	return f.spec.Clusters(c.key)
}

// leaseAdded is told of everything that is watched.
func (f *feed) leaseAdded(c *cluster, h *hold) {
	narrower, ok := f.narrower(c, h.id)
	if ok && f.wants(c) {
		_ = f.pool.Add(h.lease, narrower...) // it fails if one of the two was ended meanwhile
	}
}

// narrower tells whether events of a watch are wanted, and what narrows them further.
func (f *feed) narrower(c *cluster, id watchID) (keys []informerpool.Key, ok bool) {
	if f.spec.Watch {
		return nil, slices.Contains(f.wanted, id)
	}
	for _, w := range f.wanted {
		if w.gvk != id.gvk && !w.gvk.Empty() {
			continue
		}
		if m, known := c.mapper.Cached(id.gvk); known && !m.Namespaced {
			w.namespace = "" // as the server takes it
		}
		if w.namespace+w.labels+w.fields == "" {
			return nil, true
		}
		keys = append(keys, informerpool.Key{Namespace: w.namespace, LabelSelector: w.labels, FieldSelector: w.fields})
	}
	return keys, len(keys) > 0
}

// clusterAdded is told of every cluster.
func (f *feed) clusterAdded(c *cluster) {
	if !f.spec.Watch || !f.wants(c) || f.holds(c) {
		return
	}
	var watches []*Watch
	for _, id := range f.wanted {
		if h := c.holds.add(id, false); h != nil {
			watches = append(watches, &Watch{c: c, h: h, released: make(chan struct{})})
		}
	}
	f.mu.Lock()
	if _, twice := f.watches[c]; !twice && !f.stopped {
		f.watches[c] = watches
		watches = nil
	}
	f.mu.Unlock()
	for _, w := range watches {
		w.Release()
	}
}

func (f *feed) holds(c *cluster) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped || f.watches[c] != nil
}

// phaseChanged is told of every change. What the feed holds must not keep a cluster known that does not exist any more.
func (f *feed) phaseChanged(c *cluster, p phase.Phase) {
	if p != phase.Gone {
		f.clusterAdded(c)
		return
	}
	f.mu.Lock()
	watches := f.watches[c]
	delete(f.watches, c)
	f.mu.Unlock()
	for _, w := range watches {
		w.Release()
	}
}

// trigger delivers an object once more, if it is cached.
func (f *feed) trigger(r Request) {
	c := f.cc.find(r.Cluster)
	if c == nil {
		return
	}
	for _, h := range c.holds.of(r.GVK) {
		f.pool.Trigger(h.lease, r.Namespace, r.Name)
	}
}

// triggerAll delivers every object once more.
func (f *feed) triggerAll() {
	for _, c := range f.cc.all() {
		for _, h := range c.holds.leases() {
			f.pool.Resync(h.lease)
		}
	}
}

// resyncDue is called by the timers, which must not be held up by a look at every object.
func (f *feed) resyncDue() {
	f.cc.spawn(func() {
		f.triggerAll()
		f.setResync()
	})
}

// setResync must not set the timer of a feed that has stopped: nobody would take it back.
func (f *feed) setResync() {
	interval := f.spec.ResyncInterval
	if interval == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.cc.timers.set(f.resync, time.Now().Add(interval-rand.N(interval/5+1)))
	}
}

func (f *feed) unregister() {
	f.cc.feedsMu.Lock()
	defer f.cc.feedsMu.Unlock()
	delete(f.cc.feeds, f)
}

// stop ends the feed. It does not wait.
func (f *feed) stop() {
	f.mu.Lock()
	f.stopped = true
	f.cc.timers.set(f.resync, time.Time{})
	watches := slices.Concat(slices.Collect(maps.Values(f.watches))...)
	clear(f.watches)
	f.mu.Unlock()
	f.unregister() // after stopped was set: see start
	f.pool.Stop()
	for _, w := range watches {
		w.Release()
	}
}
