// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// remapInterval is how old the results of discovery for watched kinds may get.
const remapInterval = 10 * time.Minute

// Kinds has workers look up how the cluster serves the kinds that are wanted,
// while it is connected. One maps the kinds of wants without a lease, and
// repeats that for those that the cluster does not serve. The other checks
// periodically, and when there is a reason, whether watched kinds are still
// served as they were: a definition that is deleted and created again may have
// another scope or plural, and another cluster may take the old one's place.
type Kinds struct {
	config *Config
	index  *Index
	set    *Set
	retry  *timetable.Timer // of the mapping
	due    *timetable.Timer // of the check

	mu       sync.Mutex // protects what follows; taken before the locks of the set and the timers
	stopped  bool
	mapping  bool
	added    bool // a want was added while mapping
	checking bool
	doubted  bool // there was a reason while checking
	missed   bool // a check was due while the cluster was not connected
	checked  time.Time
}

func newKinds(s *Set) *Kinds {
	k := &Kinds{config: &s.config, index: s.Index, set: s}
	k.retry = timetable.NewTimer(k.MapNow)
	k.due = timetable.NewTimer(k.RemapNow)
	return k
}

// stop stops the timers, and the mapping.
func (k *Kinds) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	k.config.Timers.Set(k.retry, time.Time{})
	k.config.Timers.Set(k.due, time.Time{})
}

// MapNow lets a worker look up the kinds that are not mapped yet, if the
// cluster is connected.
func (k *Kinds) MapNow() {
	if !k.config.Connected() {
		return // called again on connecting
	}
	k.mu.Lock()
	defer k.mu.Unlock()

	switch {
	case k.stopped || !k.index.waits():
	case k.mapping:
		k.added = true
	default:
		k.mapping = true
		k.config.LookUp(k.mapAll)
	}
}

func (k *Kinds) mapAll() {
	k.mu.Lock()
	todo := k.index.unmapped()
	k.added = false
	k.mu.Unlock()

	for gvk, waiting := range todo {
		ctx, cancel := context.WithTimeout(k.config.Context, k.config.RequestTimeout)
		m, err := k.config.Mapper.ResourceFor(ctx, gvk)
		cancel()
		if err != nil {
			if k.set.fail(err, waiting...) {
				k.config.Logger.Info("Kind is not watched yet",
					"cluster", k.config.Name, "kind", KindName(gvk), "error", err.Error())
			}
			continue
		}
		for _, w := range waiting {
			k.set.bind(w, m)
		}
	}

	open := k.set.awaitKinds()
	k.mu.Lock()
	k.mapping = false
	again, missing := k.added, open && k.index.waits()
	k.mu.Unlock()

	switch {
	case again:
		k.MapNow()
	case missing && k.config.Connected():
		wait := k.config.RetryInterval // a miss is remembered for as long: never sooner
		k.config.Timers.Set(k.retry, time.Now().Add(wait+rand.N(wait/5+1)))
	}
}

// bound schedules the next check, after a want was bound to a mapping.
func (k *Kinds) bound(gvk schema.GroupVersionKind, to restmap.Mapping) {
	now, known := k.config.Mapper.Cached(gvk)
	switch {
	case to.Presumed:
		k.RemapSoon()
	case known && now != to:
		k.RemapNow() // a check in between has not found the want yet
	default:
		k.remapLater()
	}
}

// remapLater schedules the next check, unless an earlier one is due.
func (k *Kinds) remapLater() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.checked.IsZero() {
		k.checked = time.Now()
		k.config.Timers.Set(k.due, k.checked.Add(remapInterval-rand.N(remapInterval/5)))
	}
}

// RemapSoon is RemapNow, but not more often than every Config.RetryInterval.
func (k *Kinds) RemapSoon() {
	k.mu.Lock()
	next := k.checked.Add(k.config.RetryInterval)
	if wait := time.Until(next); wait > 0 && !k.checking {
		k.config.Timers.Set(k.due, next)
		k.mu.Unlock()
		return
	}
	k.mu.Unlock()

	k.RemapNow()
}

// RemapNow lets a worker check whether the watched kinds are still served as
// they were, if anything is watched. While the cluster is not connected, that
// waits for Reconnected.
func (k *Kinds) RemapNow() {
	k.mu.Lock()
	defer k.mu.Unlock()

	switch {
	case !k.config.Connected():
		k.missed = true
	case k.checking:
		k.doubted = true
	case !k.index.any():
		k.checked = time.Time{} // the next want that is bound schedules a check
	default:
		k.checking = true
		k.config.LookUp(k.check)
	}
}

// Reconnected has the watched kinds checked if how one of them is served is not
// known, or if a check was due since the cluster was last connected. Otherwise
// the periodic check suffices: a fleet that reconnects does not have all its
// servers answer for their kinds first. An informer whose resource is served
// differently by now fails or lists, and so calls for a check before that.
func (k *Kinds) Reconnected() {
	k.mu.Lock()
	due := k.missed
	k.missed = false
	k.mu.Unlock()

	if due || slices.ContainsFunc(k.index.Readable(), k.unknown) {
		k.RemapNow()
	}
}

// unknown reports whether it is not known how the kind of a want is served.
func (k *Kinds) unknown(w *Want) bool {
	now, known := k.config.Mapper.Cached(w.GVK)
	bound := w.mapping.Load()
	return !known || w.missing.Load() || bound == nil || *bound != now
}

// check queries the cluster, and moves the wants whose kind is served
// differently now.
func (k *Kinds) check() {
	ctx, cancel := context.WithTimeout(k.config.Context, k.config.RequestTimeout)
	err := k.config.Mapper.Refresh(ctx)
	cancel()
	missing := false
	for _, w := range k.index.Readable() {
		m, known := k.config.Mapper.Cached(w.GVK)
		if known {
			k.set.rebind(w, m)
		} else {
			missing = true // it may return with another scope, and no informer would fail
		}
		if old := w.mapping.Load(); !known && err != nil && old != nil && old.Presumed {
			continue // discovery has not answered yet
		}
		if was := w.missing.Swap(!known); was == known { // live reads know that, the informer may not
			if known {
				w.lease.Retry()
			}
			k.config.OnChanged(w.Selection, true)
		}
	}

	k.MapNow()
	k.mu.Lock()
	defer k.mu.Unlock()

	k.checking, k.checked = false, time.Now()
	wait := remapInterval - rand.N(remapInterval/5)
	if err != nil || missing || k.doubted {
		wait = k.config.RetryInterval
	}
	k.doubted = false
	if k.set.awaitKinds() {
		k.config.Timers.Set(k.due, k.checked.Add(wait))
	}
}

// rediscover looks up the kinds that are missing: discovery may have changed.
func (k *Kinds) rediscover() {
	if slices.ContainsFunc(k.index.Readable(), func(w *Want) bool { return w.missing.Load() }) {
		k.RemapNow()
		return
	}
	k.config.Mapper.Invalidate()
	k.MapNow()
}

// Relisted is called for lists that an informer has taken over. An informer
// lists again after a definition was deleted and created again, though that may
// happen so fast that none of its attempts fails. Resources that Kubernetes
// itself serves do not change that way.
func (k *Kinds) Relisted(key informerpool.Key) {
	if restmap.BuiltIn(key.Resource.Group) {
		return
	}
	for _, w := range k.index.Keyed(key) {
		if !w.Polled() && w.lease.Status().Resyncs > 0 {
			k.RemapSoon()
			return
		}
	}
}
