// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"slices"
	"sync"

	"github.com/fleetcache/fleetcache/gc"
)

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
