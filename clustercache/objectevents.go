// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/phase"
)

// ObjectFeed says which objects' events are wanted.
type ObjectFeed struct {
	// Kinds are the kinds, each as a typed object, an unstructured one or [Kind]. Empty means every kind that is watched.
	Kinds []client.Object
	// Clusters selects clusters. Nil means all. It must be quick and always give the same answer for a cluster.
	Clusters func(cluster client.ObjectKey) bool
	// Watch makes the feed hold a watch of each of the Kinds in each selected cluster that is known, now and later. Without
	// it the feed has the events of what others watch.
	Watch bool
	// Options narrow these watches: client.InNamespace, MatchingLabels, MatchingFields.
	Options []client.ListOption
}

// ObjectEvent is one change of one object in one cluster.
type ObjectEvent struct {
	// Cluster is where the object is.
	Cluster client.ObjectKey
	// GVK is the object's kind.
	GVK schema.GroupVersionKind
	// Event has the objects, which are shared and read-only. DeepCopyObject returns an unstructured object of one's own, and Into decodes.
	informerpool.Event
}

// feed is one subscription to objects' events.
type feed struct {
	cc    *ClusterCache
	spec  ObjectFeed
	ids   []watchID // what to hold, by spec.Kinds
	kinds map[schema.GroupVersionKind]bool
	pool  *informerpool.Subscription

	mu      sync.Mutex // protects what follows; nothing else is locked under it
	watches map[*cluster][]*Watch
	stopped bool
}

// subscribe starts a feed. It does not block. stop ends it without waiting for a running call of handle.
func (cc *ClusterCache) subscribe(spec ObjectFeed, handle func(ObjectEvent)) (*feed, error) {
	f := &feed{cc: cc, spec: spec, kinds: map[schema.GroupVersionKind]bool{}, watches: map[*cluster][]*Watch{}}
	for _, obj := range spec.Kinds {
		id, err := cc.watchID(obj, spec.Options)
		if err != nil {
			return nil, err
		}
		f.ids = append(f.ids, id)
		f.kinds[id.gvk] = true
	}
	if cc.ctx.Err() != nil {
		return nil, ErrClosed
	}
	f.pool = cc.pool.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) {
		handle(ObjectEvent{Cluster: e.Key.Cluster, GVK: e.Object().GetObjectKind().GroupVersionKind(), Event: e})
	}))
	// Registered first: what is added while the loop below looks is offered from there, and twice does no harm.
	cc.feedsMu.Lock()
	cc.feeds[f] = struct{}{}
	cc.feedsMu.Unlock()
	for _, c := range cc.all() {
		for _, h := range c.holds.leases() {
			f.leaseAdded(c, h)
		}
		f.clusterAdded(c)
	}
	return f, nil
}

func (cc *ClusterCache) allFeeds() []*feed {
	cc.feedsMu.Lock()
	defer cc.feedsMu.Unlock()
	return slices.Collect(maps.Keys(cc.feeds))
}

func (f *feed) wants(c *cluster) bool { return f.spec.Clusters == nil || f.spec.Clusters(c.key) }

// leaseAdded is told of everything that is watched.
func (f *feed) leaseAdded(c *cluster, h *hold) {
	if (len(f.kinds) == 0 || f.kinds[h.id.gvk]) && f.wants(c) {
		_ = f.pool.Add(h.lease) // it fails if one of the two was ended meanwhile
	}
}

// clusterAdded is told of every cluster.
func (f *feed) clusterAdded(c *cluster) {
	if !f.spec.Watch || !f.wants(c) || f.holds(c) {
		return
	}
	var watches []*Watch
	for _, id := range f.ids {
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

// stop ends the feed. It does not wait.
func (f *feed) stop() {
	f.cc.feedsMu.Lock()
	delete(f.cc.feeds, f)
	f.cc.feedsMu.Unlock()
	f.mu.Lock()
	f.stopped = true
	watches := slices.Concat(slices.Collect(maps.Values(f.watches))...)
	clear(f.watches)
	f.mu.Unlock()
	f.pool.Stop()
	for _, w := range watches {
		w.Release()
	}
}

// ObjectEvents yields an event for every object there is, marked as Initial, and then what happens to them, until ctx
// ends, the loop is left, or the ClusterCache stops. While the loop is busy, events of an object are merged: it holds back nobody. Each
// range over it is a subscription of its own. The error is that of a kind or selector that cannot be.
func (cc *ClusterCache) ObjectEvents(ctx context.Context, spec ObjectFeed) (iter.Seq[ObjectEvent], error) {
	for _, obj := range spec.Kinds {
		if _, err := cc.watchID(obj, spec.Options); err != nil {
			return nil, err
		}
	}
	return func(yield func(ObjectEvent) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		events := make(chan ObjectEvent)
		f, err := cc.subscribe(spec, func(e ObjectEvent) {
			select {
			case events <- e:
			case <-ctx.Done():
			case <-cc.ctx.Done():
			}
		})
		if err != nil {
			return // it was checked; only the end of the cache is left
		}
		defer f.stop()
		for {
			select {
			case e := <-events:
				if !yield(e) {
					return
				}
			case <-ctx.Done():
				return
			case <-cc.ctx.Done():
				return
			}
		}
	}, nil
}
