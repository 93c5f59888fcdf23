// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
