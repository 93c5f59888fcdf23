// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listing is the resolver's last list of clusters, and what calls for another.
type listing struct {
	relisting  chan struct{} // one slot: the resolver's list must be read again
	rechecking chan struct{} // one slot: a forgotten cluster may be back
	reassigned chan struct{} // one slot: this replica owns other clusters
	forgotten  forgotten
	listed     atomic.Bool // the resolver has listed its clusters at least once
	last       atomic.Pointer[map[client.ObjectKey]struct{}]
	failure    atomic.Pointer[string] // of the last list, until one succeeds
}

func newListing() *listing {
	return &listing{
		relisting:  make(chan struct{}, 1),
		rechecking: make(chan struct{}, 1),
		reassigned: make(chan struct{}, 1),
	}
}

// relist has the resolver's list read again, if it has one.
func (l *listing) relist() { wake(l.relisting) }

// recheck has it read again, too, since a forgotten cluster may be back.
func (l *listing) recheck() { wake(l.rechecking) }

// reassign has the last list compared with what the replica owns.
func (l *listing) reassign() { wake(l.reassigned) }

// set records the last list of clusters.
func (l *listing) set(keys []client.ObjectKey) {
	last := make(map[client.ObjectKey]struct{}, len(keys))
	for _, key := range keys {
		last[key] = struct{}{}
	}
	l.last.Store(&last)
}

// clusters returns the last list, which must not be changed; nil means none yet.
func (l *listing) clusters() map[client.ObjectKey]struct{} {
	if last := l.last.Load(); last != nil {
		return *last
	}
	return nil
}

// lists reports whether the last list has a cluster.
func (l *listing) lists(key client.ObjectKey) bool {
	_, ok := l.clusters()[key]
	return ok
}

// current returns the clusters of the last list but for those that were
// forgotten since.
func (l *listing) current() (keys []client.ObjectKey) {
	for key := range l.clusters() {
		if !l.forgotten.since(key, time.Time{}) {
			keys = append(keys, key)
		}
	}
	return keys
}

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
