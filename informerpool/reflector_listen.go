// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/backoff"
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

// listen waits for the time to list a resource without versions again.
func (r *reflector) listen(ctx context.Context) error {
	r.polled()
	due := time.Now().Add(jitter(r.options.PollInterval))
	r.session.listens = true
	rings := r.server.watchable() && r.hears(ctx, due)
	if r.session.pause = time.Until(due); rings {
		r.session.pause = r.bell.rung()
	}
	return errPolled
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
	return r.bell.rings(s, &r.kind)
}

// bell is the watch of a resource without versions: it rings for a list.
type bell struct {
	informer *informer
	relapse  backoff.Relapse
	unheard  uint64 // the number of changes of the cache when it rang last
}

// rings reports whether a stream shows something else than the cache before it
// ends.
func (b *bell) rings(s *stream, kind *kindCheck) bool {
	for {
		if s.wait() != nil {
			return false
		}
		if frame, err := s.next(); err != nil {
			return errors.Is(err, ErrRefused)
		} else if frame.Type != wire.Bookmark && b.differs(frame.Type, s.frames, kind) {
			return true
		}
	}
}

// differs reports whether a frame shows something else than the cache.
func (b *bell) differs(frame string, at scanner, kind *kindCheck) bool {
	o, id, err := kind.read(at, wire.ListHeader{}, true)
	cached := b.informer.mu.store.Get(id.Namespace, id.Name)
	switch {
	case err != nil:
		return !b.informer.mu.refused.Has(types.NamespacedName{Namespace: id.Namespace, Name: id.Name})
	case frame == wire.Deleted:
		return cached != nil
	}
	return cached == nil || !ordering.SameState(cached, o)
}

// rung returns the wait before the list that it asks for. If the last such list
// has changed nothing, the watch knows no better than the clock.
func (b *bell) rung() time.Duration {
	limit := b.informer.pool.options.PollInterval
	changes := b.informer.mu.store.Changes
	if changes != b.unheard {
		limit /= 4
	}
	b.unheard = changes

	return b.relapse.After(time.Now(), limit)
}
