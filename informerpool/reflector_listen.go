// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// A resource without versions is one whose lists have none, and neither have
// objects in them. It is polled: what changed is what two lists, of which the
// server answered one after the other, show differently. A watch of it is not
// applied. Nothing tells an event that is late from one that is new, a watch
// cannot be resumed, and its beginning does not mention what was deleted. It
// only says when to list early:
//
//	list ──► listen ──► a frame differs from the cache ──► list, after rung
//	  ▲         └─────► PollInterval is over ──┐
//	  └────────────────────────────────────────┘

// bareAgain is how often an object without a version may cause a list, in a
// stream whose list has a version.
const bareAgain = 10 * time.Minute

// listen waits for the time to list a resource without versions again.
func (r *reflector) listen(ctx context.Context) error {
	r.polled()
	due := time.Now().Add(jitter(r.options.PollInterval))
	r.session.listens = true
	rings := r.server.watchable() && r.hears(ctx, due)
	if r.session.pause = time.Until(due); rings {
		r.session.pause = r.rung()
	}
	return errPolled
}

// rung returns the wait before the list that a watch asks for. If the last such
// list has changed nothing, the watch knows no better than the clock.
func (r *reflector) rung() time.Duration {
	limit := r.options.PollInterval
	changes := r.informer.mu.store.Changes
	if changes != r.unheard {
		limit /= 4
	}
	r.unheard = changes

	return r.rings.After(time.Now(), limit)
}

// hears reports whether a watch shows something else than the cache before the
// next list is due.
func (r *reflector) hears(ctx context.Context, due time.Time) bool {
	ctx, cancel := context.WithDeadlineCause(ctx, due, errPolled)
	defer cancel()
	s, err := r.openWatch(ctx)
	if err != nil {
		return false
	}
	defer s.close()
	s.unproven = true // of the cache
	s.calm(true)
	for {
		if s.wait() != nil {
			return false
		}
		if frame, err := s.next(); err != nil {
			return errors.Is(err, ErrRefused)
		} else if r.differs(frame.Type, s.frames) {
			return true
		}
	}
}

// differs reports whether a frame shows something else than the cache.
func (r *reflector) differs(frame string, at scanner) bool {
	if frame == wire.Bookmark {
		return false
	}
	o, id, err := r.kind.read(at, wire.ListHeader{}, true)
	cached := r.informer.mu.store.Get(id.Namespace, id.Name)
	switch {
	case err != nil:
		return !r.informer.mu.refused.Has(types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
	case frame == wire.Deleted:
		return cached != nil
	}
	return cached == nil || !ordering.SameState(cached, o)
}
