// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"strings"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/internal/restmap"
)

// rollbackWindow is how far apart changes of the histories of two groups may be
// detected and still count as one event.
const rollbackWindow = time.Minute

// foreignInterval is how often two groups are believed of which Kubernetes
// itself stores none.
const foreignInterval = time.Hour

// rollbacks distinguishes a cluster whose history went back from a single API
// group with a history of its own.
type rollbacks struct {
	mu      sync.Mutex // protects what follows; nothing else is locked under it
	group   string     // whose history last changed
	at      time.Time  // when; zero: never
	foreign time.Time  // when two groups that may have a store of their own were last believed
}

// spread records that the history of a group has changed, and reports whether
// that of the cluster has: it has if the group is the core one, and if two
// groups went back together, since they share a store. Two that one aggregated
// API may serve, with a store of its own, are believed once an hour: a restored
// cluster must not be missed, and an API that often begins anew costs the
// others little.
func (r *rollbacks) spread(group string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	together := !r.at.IsZero() && r.group != group && now.Sub(r.at) <= rollbackWindow
	if together && !ofKubernetes(group) && !ofKubernetes(r.group) {
		together = r.foreign.IsZero() || now.Sub(r.foreign) >= foreignInterval
		if together {
			r.foreign = now
		}
	}
	r.group, r.at = group, now
	return group == "" || together
}

// ofKubernetes reports whether the cluster's own API server stores a group, by
// its name. Those of metrics have servers of their own.
func ofKubernetes(group string) bool {
	return restmap.BuiltIn(group) && !strings.HasSuffix(group, "metrics.k8s.io")
}
