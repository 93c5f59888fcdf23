// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// discovery is the state of Options.Discover.
type discovery struct {
	relisting  chan struct{} // one slot: the resolver's list must be read again
	rechecking chan struct{} // one slot: a forgotten cluster may be back
	reassigned chan struct{} // one slot: this replica owns other clusters
	forgotten  forgotten
	listed     atomic.Bool // the resolver has listed its clusters at least once
	last       atomic.Pointer[map[client.ObjectKey]struct{}]
	failure    atomic.Pointer[string] // of the last list, until one succeeds
}

// set records the last list of clusters.
func (d *discovery) set(keys []client.ObjectKey) {
	last := make(map[client.ObjectKey]struct{}, len(keys))
	for _, key := range keys {
		last[key] = struct{}{}
	}
	d.last.Store(&last)
}

// clusters returns the last list, which must not be changed; nil means none yet.
func (d *discovery) clusters() map[client.ObjectKey]struct{} {
	if last := d.last.Load(); last != nil {
		return *last
	}
	return nil
}

// lists reports whether the last list has a cluster.
func (d *discovery) lists(key client.ObjectKey) bool {
	_, ok := d.clusters()[key]
	return ok
}

// current returns the clusters of the last list but for those that were
// forgotten since.
func (d *discovery) current() (keys []client.ObjectKey) {
	for key := range d.clusters() {
		if !d.forgotten.since(key, time.Time{}) {
			keys = append(keys, key)
		}
	}
	return keys
}

// missing returns the clusters of the last list that are not known.
func (d *discovery) missing(find func(client.ObjectKey) *cluster) (keys []client.ObjectKey) {
	for key := range d.clusters() {
		if find(key) == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// any reports whether the last list has any cluster.
func (d *discovery) any() bool { return len(d.clusters()) > 0 }

// forgottenFor is how long a forgotten cluster is remembered as such. The
// objects that describe a cluster are deleted one after the other, and each
// delete is a change.
const forgottenFor = 10 * time.Minute

// forgotten remembers which discovered clusters were forgotten recently. A
// change of such a cluster is most likely part of its removal, so it does not
// make the cluster known again. A list that began after the cluster was
// forgotten does.
type forgotten struct {
	mu sync.Mutex
	at map[client.ObjectKey]time.Time
}

// add records that a cluster is forgotten now, and drops old records.
func (f *forgotten) add(key client.ObjectKey) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.at == nil {
		f.at = map[client.ObjectKey]time.Time{}
	}
	for k, t := range f.at {
		if now.Sub(t) > forgottenFor {
			delete(f.at, k)
		}
	}
	f.at[key] = now
}

// since reports whether a cluster was forgotten after t.
func (f *forgotten) since(key client.ObjectKey, t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.at[key]
	return ok && at.After(t)
}

// drop removes the record of a cluster that is known again.
func (f *forgotten) drop(key client.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, key)
}
