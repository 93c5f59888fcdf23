// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/gc"
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

	mu      sync.Mutex // protects watches; nothing else is locked under it
	watches map[WatchKey]*Watch
}

func newDeclared(cc *ClusterCache, o GC) (*declared, error) {
	d := &declared{cc: cc, watches: map[WatchKey]*Watch{}}
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
	defer d.mu.Unlock()
	d.watches[key] = w

	return nil
}

func (d *declared) release(key WatchKey) {
	d.mu.Lock()
	w := d.watches[key]
	delete(d.watches, key)
	d.mu.Unlock()

	w.drop()
}

// watch returns the watch of a key, or nil.
func (d *declared) watch(key WatchKey) *Watch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watches[key]
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
