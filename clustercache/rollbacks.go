// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"
	"time"
)

// rollbackWindow is how far apart the histories of two groups are found to be
// others and still count as one event.
const rollbackWindow = time.Minute

// rollbacks tells a cluster whose history went back from a single API group
// with a history of its own.
type rollbacks struct {
	mu    sync.Mutex // protects what follows; nothing else is locked under it
	group string     // whose history was last found to be another one
	at    time.Time  // when; zero: never
}

// spread notes that the history of a group is another one, and reports whether
// the cluster's is: that of the core is, and where two groups went back
// together, they have a store in common.
func (r *rollbacks) spread(group string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	other := !r.at.IsZero() && r.group != group && now.Sub(r.at) <= rollbackWindow
	r.group, r.at = group, now
	return group == "" || other
}
