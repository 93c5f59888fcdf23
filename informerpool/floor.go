// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
)

// maxLagging is how long lists may be older than what was shown before they
// began, if no informer that follows its server has shown it. Nothing else
// would end that if the server was restored since.
const maxLagging = 30 * time.Second

// floor is the highest version of a resource that informers have shown before a
// list began. An API server's list is never older, but one of several servers behind
// a balancer, or a gateway with a cache of its own, may lag: its list would
// bring back what reads have shown as deleted.
type floor struct {
	shown    string // by any informer, also one that has ended
	followed string // by an informer that follows its server
}

// shown returns the floor of a list that is about to begin. Which informers
// follow their server matters only once lists lag.
func (l *listing) shown() (f floor) {
	r, i := l.reflector, l.informer
	f.shown = i.siblings.beginList(i, r.server.epoch)
	if r.failures.lagging.IsZero() {
		return f
	}
	for _, other := range i.siblings.others(i) {
		other.mu.RLock()
		if other.mu.synced && other.mu.doubt == nil && other.mu.epoch == r.server.epoch && other.mu.follows() {
			f.followed = ordering.Further(f.followed, other.mu.shownAt())
		}
		other.mu.RUnlock()
	}

	return f
}

// lags returns an error if a list at a version is older than what was shown
// before it began. The list is repeated then. Versions of another history, and
// those that each informer counts, are not comparable.
func (l *listing) lags(rv string) error {
	r := l.reflector
	if !ordering.Behind(rv, l.floor.shown) || l.apart() || r.options.countsVersions(r.informer.key) {
		r.failures.lagging = time.Time{}
		return nil
	}
	if r.failures.lagging.IsZero() {
		r.failures.lagging = time.Now()
	}
	if time.Since(r.failures.lagging) >= maxLagging && !ordering.Behind(rv, l.floor.followed) {
		r.informer.siblings.forgetShown()
		return nil
	}
	return fmt.Errorf("%s: %w: list is at %s, and %s was shown before", r.informer.key, errLags, rv, l.floor.shown)
}
