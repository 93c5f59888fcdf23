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
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/watchset"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// feed is one subscription to the events of objects: what an ObjectFeed
// selects.
type feed struct {
	cc     *ClusterCache
	spec   ObjectFeed
	wanted []watchset.Selection             // of Kinds and Selections; an id without a kind means every kind
	forms  map[schema.GroupVersionKind]Form // the form in which each kind was named
	misfit atomic.Int64                     // events whose object could not be converted to the form
	pool   *informerpool.Subscription
	resync *timetable.Timer

	mu      sync.Mutex // protects the fields below; taken before the lock of the timers
	watches map[*cluster]map[watchset.Selection]*Watch
	stopped bool
}

// selected returns the ids that an ObjectFeed selects.
func (cc *ClusterCache) selected(spec ObjectFeed) ([]watchset.Selection, error) {
	if spec.ResyncInterval < 0 {
		return nil, &OptionError{Field: "ResyncInterval", Err: errors.New("negative")}
	}
	if spec.Watch && len(spec.Kinds)+len(spec.Selections) == 0 {
		return nil, &OptionError{Field: "Watch", Err: errors.New("needs Kinds or Selections")}
	}
	var ids []watchset.Selection
	add := func(field string, kind client.Object, options []client.ListOption) error {
		if kind == nil {
			return &OptionError{Field: field, Err: errors.New("required")}
		}
		id, err := cc.selection(kind, options)
		if err == nil && !spec.Watch && !local(id.FieldSelector) {
			err = &OptionError{Field: field, Err: fmt.Errorf("field selector %q without Watch: %w", id.FieldSelector, ErrUnsupported)}
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
		ids[0].GVK = schema.GroupVersionKind{}
	}

	return ids, nil
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

// newFeed returns a feed, which start begins and stop ends. It calls handle
// with one event at a time. The subscription counts a panic in handle or in a
// predicate.
func (cc *ClusterCache) newFeed(spec ObjectFeed, handle func(ObjectEvent, *views)) (*feed, error) {
	if spec.Form > Metadata {
		return nil, &OptionError{Field: "Form", Err: ErrUnsupported}
	}
	wanted, err := cc.selected(spec)
	if err != nil {
		return nil, err
	}
	if cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	f := &feed{
		cc:      cc,
		spec:    spec,
		wanted:  wanted,
		forms:   cc.givenForms(spec),
		watches: map[*cluster]map[watchset.Selection]*Watch{},
	}
	f.pool = cc.pool.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) { f.handle(e, handle) }))
	f.resync = timetable.NewTimer(f.resyncDue)

	return f, nil
}

// handle passes an event on if the predicates accept it.
func (f *feed) handle(e informerpool.Event, to func(ObjectEvent, *views)) {
	defer f.cc.calls.Enter("predicate or handler of an ObjectFeed")()
	gvk := e.Object().GetObjectKind().GroupVersionKind()
	v := &views{cc: f.cc, form: f.form(gvk)}
	ok, err := v.passes(f.spec.Predicates, e)
	if err != nil {
		f.misfit.Add(1)
		f.cc.log.Error(err, "Object cannot be given to predicates; its event passes", "cluster", clusterName(e.Key.Cluster), "kind", gvk.Kind)
	}
	if ok || err != nil {
		to(ObjectEvent{Cluster: e.Key.Cluster, GVK: gvk, Event: e}, v)
	}
}

// form returns the form in which functions receive objects of a kind.
func (f *feed) form(gvk schema.GroupVersionKind) Form {
	if f.spec.Form != AsGiven {
		return f.spec.Form
	}
	if form, ok := f.forms[gvk]; ok {
		return form
	}
	return Packed
}

// givenForms returns the form in which each kind was named, and Typed for a
// kind named in several forms.
func (cc *ClusterCache) givenForms(spec ObjectFeed) map[schema.GroupVersionKind]Form {
	kinds := slices.Clone(spec.Kinds)
	for _, s := range spec.Selections {
		kinds = append(kinds, s.Kind)
	}
	forms := map[schema.GroupVersionKind]Form{}
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, cc.options.Scheme)
		if form := givenForm(kind); err == nil && forms[gvk] != Typed {
			forms[gvk] = form
		}
	}

	return forms
}

// start takes the feed's own watches, or subscribes to the watches of others.
// It does not block. It does nothing after stop.
func (f *feed) start() {
	// The feed is registered first: a cluster or lease that is added during the
	// loop below is offered by its adder as well, and twice does no harm.
	f.cc.feedsMu.Lock()
	f.cc.feeds[f] = struct{}{}
	f.cc.feedsMu.Unlock()

	f.mu.Lock()
	stopped := f.stopped
	f.mu.Unlock()

	if stopped { // perhaps before the feed was registered: then stop has not unregistered it
		f.unregister()
		return
	}
	for _, c := range f.cc.all() {
		for _, h := range c.wants.Readable() {
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

// wants reports whether the feed selects c. It recovers from a panic of
// ObjectFeed.Clusters, which must not reach the code that adds a cluster.
func (f *feed) wants(c *cluster) (ok bool) {
	if f.spec.Clusters == nil {
		return true
	}
	err := f.cc.calls.Call("ObjectFeed.Clusters", func() error {
		ok = f.spec.Clusters(c.key)
		return nil
	}, "cluster", c.name)
	return ok && err == nil // a panic leaves the cluster out
}

// leaseAdded is called for every lease of a cluster.
func (f *feed) leaseAdded(c *cluster, h *watchset.Want) {
	narrower, ok := f.narrower(c, h.Selection)
	if ok && f.wants(c) {
		_ = f.pool.Add(h.Lease(), narrower...) // it fails if the subscription or the lease has ended meanwhile
	}
}

// narrower reports whether the feed wants events of a watch, and returns the
// keys that narrow them further.
func (f *feed) narrower(c *cluster, id watchset.Selection) (keys []informerpool.Key, ok bool) {
	if f.spec.Watch {
		return nil, slices.Contains(f.wanted, id)
	}
	for _, w := range f.wanted {
		if w.GVK != id.GVK && !w.GVK.Empty() {
			continue
		}
		if m, known := c.mapper.Cached(id.GVK); known && !m.Namespaced {
			w.Namespace = "" // as the server takes it
		}
		if w.Namespace+w.LabelSelector+w.FieldSelector == "" {
			return nil, true
		}
		keys = append(keys, informerpool.Key{Namespace: w.Namespace, LabelSelector: w.LabelSelector, FieldSelector: w.FieldSelector})
	}

	return keys, len(keys) > 0
}

// clusterAdded is called for every cluster. It takes the watches that the feed
// lacks in it.
func (f *feed) clusterAdded(c *cluster) {
	if !f.spec.Watch || c.view.Load().phase == phase.Gone || !f.wants(c) {
		return
	}
	for _, id := range f.wanted {
		if f.has(c, id) {
			continue
		}
		h := c.wants.Acquire(id)
		if h == nil {
			continue // the cluster is being forgotten; its successor gets a call of its own
		}
		w := &Watch{c: c, want: h, released: make(chan struct{})}
		f.mu.Lock()
		surplus := f.stopped || f.watches[c][id] != nil
		if !surplus && f.watches[c] == nil {
			f.watches[c] = map[watchset.Selection]*Watch{}
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

func (f *feed) has(c *cluster, id watchset.Selection) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped || f.watches[c][id] != nil
}

// phaseChanged is called for every change of a cluster's phase. The feed's
// watches must not keep a cluster known that no longer exists, even if the feed
// is paused or its handler slow: the subscription alone keeps the deletes that
// the handler has yet to receive.
func (f *feed) phaseChanged(c *cluster, p phase.Phase) {
	if p != phase.Gone {
		f.clusterAdded(c)
		return
	}
	f.mu.Lock()
	watches := maps.Clone(f.watches[c])
	f.mu.Unlock()

	if len(watches) == 0 {
		return
	}
	f.cc.spawn(func() { // not on the goroutine that handles the cluster's mailbox
		for id, w := range watches {
			f.letGo(c, id, w)
		}
	})
}

// letGo releases a watch of a cluster, unless the cluster is back.
func (f *feed) letGo(c *cluster, id watchset.Selection, w *Watch) {
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

	w.retire()
	f.clusterAdded(c) // the cluster may have come back just before the delete above, when clusterAdded found no watch lacking
}

// trigger delivers an object again, if it is cached.
func (f *feed) trigger(r Request) {
	c := f.cc.find(r.Cluster)
	if c == nil {
		return
	}
	for _, h := range c.wants.Of(r.GVK) {
		f.pool.Trigger(h.Lease(), h.In(r.Namespace), r.Name)
	}
}

// triggerAll delivers every object again.
func (f *feed) triggerAll() {
	for _, c := range f.cc.all() {
		for _, h := range c.wants.Readable() {
			f.pool.Resync(h.Lease())
		}
	}
}

// resyncDue is called by the timers. It spawns the resync, because visiting
// every object would delay other timers.
func (f *feed) resyncDue() {
	f.cc.spawn(func() {
		f.triggerAll()
		f.setResync()
	})
}

// setResync sets the timer of the next resync, unless the feed has stopped:
// stop has removed the timer for the last time.
func (f *feed) setResync() {
	interval := f.spec.ResyncInterval
	if interval == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.cc.timers.Set(f.resync, time.Now().Add(interval-rand.N(interval/5+1)))
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
	f.cc.timers.Set(f.resync, time.Time{})
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
