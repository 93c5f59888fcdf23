// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/clustername"
)

// twins finds the keys that lead to one API server. The zero value knows none.
// All methods may be called from many goroutines, and none blocks.
type twins struct {
	mu struct {
		sync.Mutex // nothing else is locked under it

		uid  map[client.ObjectKey]string
		keys map[string]map[client.ObjectKey]struct{} // by UID of the cluster
	}
}

// put records the UID of the cluster of a key; the empty one is none. If the
// key did not have it before, put returns the other keys that have it.
func (t *twins) put(key client.ObjectKey, uid string) []client.ObjectKey {
	t.mu.Lock()
	defer t.mu.Unlock()

	before, known := t.mu.uid[key]
	if known && before == uid {
		return nil
	}
	t.dropLocked(key)
	if uid == "" {
		return nil
	}
	if t.mu.uid == nil {
		t.mu.uid = map[client.ObjectKey]string{}
		t.mu.keys = map[string]map[client.ObjectKey]struct{}{}
	}
	t.mu.uid[key] = uid
	if t.mu.keys[uid] == nil {
		t.mu.keys[uid] = map[client.ObjectKey]struct{}{}
	}
	t.mu.keys[uid][key] = struct{}{}

	return t.othersLocked(key)
}

// drop forgets a key.
func (t *twins) drop(key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropLocked(key)
}

func (t *twins) dropLocked(key client.ObjectKey) {
	uid := t.mu.uid[key]
	delete(t.mu.uid, key)
	delete(t.mu.keys[uid], key)
	if len(t.mu.keys[uid]) == 0 {
		delete(t.mu.keys, uid)
	}
}

// others returns the other keys of a key's cluster, in order.
func (t *twins) others(key client.ObjectKey) []client.ObjectKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.othersLocked(key)
}

func (t *twins) othersLocked(key client.ObjectKey) []client.ObjectKey {
	all := t.mu.keys[t.mu.uid[key]]
	if len(all) < 2 {
		return nil
	}
	others := slices.SortedFunc(maps.Keys(all), clustername.Compare)
	return slices.DeleteFunc(others, func(k client.ObjectKey) bool { return k == key })
}

// namesOf returns the names of clusters.
func namesOf(keys []client.ObjectKey) (names []string) {
	for _, key := range keys {
		names = append(names, clusterName(key))
	}
	return names
}
