// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// forgottenFor is how long a cluster that was forgotten is remembered as such.
// The objects that described it go one after the other, and each is a change.
const forgottenFor = 10 * time.Minute

// forgotten remembers which discovered clusters ended lately. A change of such
// a cluster is most likely the rest of its removal: it does not make the
// cluster known again, a list that began later does.
type forgotten struct {
	mu sync.Mutex
	at map[client.ObjectKey]time.Time
}

// add notes that a cluster is forgotten now, and drops what is old.
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

// since reports whether a cluster was forgotten after a time.
func (f *forgotten) since(key client.ObjectKey, t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.at[key]
	return ok && at.After(t)
}

// drop ends the memory of a cluster, which is known again.
func (f *forgotten) drop(key client.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.at, key)
}
