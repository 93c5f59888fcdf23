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
	watches map[*cluster]map[watchID]*Watch
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
	f := &feed{cc: cc, spec: spec, wanted: wanted, watches: map[*cluster]map[watchID]*Watch{}}
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

// clusterAdded is told of every cluster. It takes what the feed lacks of it.
func (f *feed) clusterAdded(c *cluster) {
	if !f.spec.Watch || c.view.Load().phase == phase.Gone || !f.wants(c) {
		return
	}
	for _, id := range f.wanted {
		if f.holds(c, id) {
			continue
		}
		h := c.holds.add(id, false)
		if h == nil {
			continue // the cluster is being forgotten; another one of its key is told of by itself
		}
		w := &Watch{c: c, h: h, released: make(chan struct{})}
		f.mu.Lock()
		surplus := f.stopped || f.watches[c][id] != nil
		if !surplus && f.watches[c] == nil {
			f.watches[c] = map[watchID]*Watch{}
		}
		if !surplus {
			f.watches[c][id] = w
		}
		f.mu.Unlock()
		if surplus {
			w.Release()
		}
	}
}

func (f *feed) holds(c *cluster, id watchID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped || f.watches[c][id] != nil
}

// phaseChanged is told of every change. What the feed holds must not keep a cluster known that does not exist any more;
// it is let go when the handler has been told of the deletes.
func (f *feed) phaseChanged(c *cluster, p phase.Phase) {
	if p != phase.Gone {
		f.clusterAdded(c)
		return
	}
	f.mu.Lock()
	watches := maps.Clone(f.watches[c])
	f.mu.Unlock()
	for id, w := range watches {
		lease, _, _ := c.holds.look(w.h)
		if lease == nil {
			f.letGo(c, id, w)
			continue
		}
		f.pool.After(lease, func() { f.letGo(c, id, w) })
	}
}

// letGo releases a watch of a cluster, unless that is back.
func (f *feed) letGo(c *cluster, id watchID, w *Watch) {
	f.mu.Lock()
	if c.view.Load().phase != phase.Gone || f.watches[c][id] != w {
		f.mu.Unlock()
		return
	}
	delete(f.watches[c], id)
	if len(f.watches[c]) == 0 {
		delete(f.watches, c)
	}
	f.mu.Unlock()
	w.Release()
	f.clusterAdded(c) // it may have come back right then, when clusterAdded found that nothing was lacking
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
	watches := f.watches
	f.watches = nil
	f.mu.Unlock()
	f.unregister() // after stopped was set: see start
	f.pool.Stop()
	for _, of := range watches {
		for _, w := range of {
			w.Release()
		}
	}
}
