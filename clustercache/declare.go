// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/levels"
	"github.com/fleetcache/fleetcache/gc"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Target is something that an owner needs: all objects of a kind in a cluster,
// or a selection of them.
type Target struct {
	// Cluster is the cluster. The zero value is the hub.
	Cluster client.ObjectKey
	// Kind gives the kind, as a typed object, an unstructured one, or [Kind].
	// Required.
	Kind client.Object
	// Options narrow the selection: client.InNamespace, MatchingLabels,
	// MatchingFields and the like.
	Options []client.ListOption
}

// Declaration is the result of a call of Declare.
type Declaration struct {
	// Added lists the keys that the owner uses now and did not use before, in
	// the order of the targets.
	Added []WatchKey
	// Removed lists the keys that the owner no longer uses, sorted.
	Removed []WatchKey
	// Synced reports whether every target was in effect and could be read from
	// the cache when Declare returned.
	Synced bool
}

// TargetError reports a target of an owner that is not in effect, or did not
// sync.
type TargetError struct {
	Owner   Owner
	Cluster client.ObjectKey
	// GVK is zero if the target's kind cannot be determined.
	GVK schema.GroupVersionKind
	// Field is the invalid field of the target, such as
	// Targets[2].LabelSelector. It is empty if the cause is not the target.
	Field string
	// Err is the cause.
	Err error
}

// Error names the owner, the kind, the cluster, the field and the cause.
func (e *TargetError) Error() string {
	kind, field := "unknown kind", ""
	if !e.GVK.Empty() {
		kind = kindName(e.GVK)
	}
	if e.Field != "" {
		field = e.Field + ": "
	}
	return fmt.Sprintf("%s in cluster %s for %s: %s%v", kind, clusterName(e.Cluster), e.Owner, field, e.Err)
}

// Unwrap returns the cause.
func (e *TargetError) Unwrap() error { return e.Err }

// Swept is the result of a sweep.
type Swept struct {
	// Collected lists the owners that were found gone for good, sorted.
	Collected []Owner
	// Released lists the keys that were no longer used, sorted.
	Released []WatchKey
}

// declared holds the watches that owners declared: one for each key in use, or
// in use until less than the grace ago.
type declared struct {
	cc        *ClusterCache
	collector *gc.Collector[Owner, WatchKey]
	events    levels.Hub[Owner] // the owners whose reads may be answered differently

	mu struct { // nothing else is locked under it
		sync.Mutex

		watches   map[client.ObjectKey]map[WatchKey]*Watch // by cluster
		listeners map[*informerpool.Subscription]struct{}  // of all of them
	}
}

func newDeclared(cc *ClusterCache, o GC) (*declared, error) {
	d := &declared{cc: cc}
	d.mu.watches = map[client.ObjectKey]map[WatchKey]*Watch{}
	d.mu.listeners = map[*informerpool.Subscription]struct{}{}
	var err error
	d.collector, err = gc.New(gc.Options[Owner, WatchKey]{
		Acquire:     d.acquire,
		Release:     d.release,
		InUse:       cc.protectedInUse(o.InUse),
		Grace:       o.Grace,
		MinInterval: o.MinInterval,
		MaxInterval: o.MaxInterval,
		Timeout:     o.Timeout,
		Concurrency: o.Concurrency,
		Rate:        o.Rate,
		Logger:      cc.log,
	})
	return d, err
}

// acquire takes the watch that all owners of a key share. For each key the
// collector calls acquire and release in turns.
func (d *declared) acquire(_ context.Context, key WatchKey) error {
	w, err := d.cc.watch(key.Cluster, key.selection())
	if err != nil {
		return err
	}
	d.mu.Lock()
	if d.mu.watches[key.Cluster] == nil {
		d.mu.watches[key.Cluster] = map[WatchKey]*Watch{}
	}
	d.mu.watches[key.Cluster][key] = w
	listeners := slices.Collect(maps.Keys(d.mu.listeners))
	d.mu.Unlock()

	for _, l := range listeners {
		w.c.wants.Listen(w.want, l)
	}

	return nil
}

func (d *declared) release(key WatchKey) {
	d.mu.Lock()
	w := d.mu.watches[key.Cluster][key]
	delete(d.mu.watches[key.Cluster], key)
	if len(d.mu.watches[key.Cluster]) == 0 {
		delete(d.mu.watches, key.Cluster)
	}
	listeners := slices.Collect(maps.Keys(d.mu.listeners))
	d.mu.Unlock()

	for _, l := range listeners {
		w.unlisten(l)
	}
	w.drop()
}

// watch returns the watch of a key, or nil.
func (d *declared) watch(key WatchKey) *Watch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.watches[key.Cluster][key]
}

// all returns the watches of every cluster.
func (d *declared) all() []*Watch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.allLocked()
}

func (d *declared) allLocked() []*Watch {
	var all []*Watch
	for _, of := range d.mu.watches {
		all = slices.AppendSeq(all, maps.Values(of))
	}
	return all
}

// listen makes a subscription receive the objects of all declared watches, now
// and later.
func (d *declared) listen(sub *informerpool.Subscription) {
	d.mu.Lock()
	d.mu.listeners[sub] = struct{}{}
	all := d.allLocked()
	d.mu.Unlock()

	for _, w := range all {
		w.c.wants.Listen(w.want, sub) // twice, if acquire does so as well, does no harm
	}
}

// unlisten undoes listen for a subscription that has ended.
func (d *declared) unlisten(sub *informerpool.Subscription) {
	d.mu.Lock()
	delete(d.mu.listeners, sub)
	all := d.allLocked()
	d.mu.Unlock()

	for _, w := range all {
		w.unlisten(sub)
	}
}

// clusterChanged notifies the owners that use something in a cluster.
func (d *declared) clusterChanged(cluster client.ObjectKey) {
	if !d.events.Any() {
		return
	}
	d.mu.Lock()
	keys := slices.Collect(maps.Keys(d.mu.watches[cluster]))
	d.mu.Unlock()

	for _, key := range keys {
		d.events.Publish(d.collector.Owners(key)...)
	}
}

// joined notifies an owner that has begun to use watches, if one of them was in
// effect before: the owner was not called for what had happened by then, and
// may have read before it declared.
func (d *declared) joined(owner Owner, keys []WatchKey) {
	if !d.events.Any() {
		return
	}
	for _, key := range keys {
		if w := d.watch(key); w != nil && !w.waits() {
			d.events.Publish(owner)
			return
		}
	}
}

// synced reports whether all keys can be read from the cache.
func (d *declared) synced(keys []WatchKey) bool {
	for _, key := range keys {
		if w := d.watch(key); w == nil || !w.HasSynced() {
			return false
		}
	}
	return true
}

func sortKeys(keys []WatchKey) { slices.SortFunc(keys, compareWatchKeys) }

func sortOwners(owners []Owner) { slices.SortFunc(owners, compareOwners) }
