// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/refusals"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// follow applies a live stream until it ends; a regular end is nil.
func (r *reflector) follow(ctx context.Context, s *stream) error {
	for {
		at := &r.at.opening
		s.lack(!at.over && at.lacks(r.informer.mu.store.Count))
		if err := s.wait(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			if errors.Is(err, errBegun) {
				r.server.repeats, r.server.blank = at.repeated || at.objects == 0, at.objects == 0
			}
			if errors.Is(err, ErrStalled) {
				r.server.bookmarks = false // must be seen again before silence means anything
			}
			return err
		}

		if err := r.applyNext(ctx, s); err != nil {
			return err
		}
	}
}

// applyNext applies the next frame, which has begun to arrive.
func (r *reflector) applyNext(ctx context.Context, s *stream) error {
	frame, err := s.next()
	if err != nil {
		return eofIsUnexpected(err)
	}
	if r.at.opening.see(frame.Type) {
		if err := r.opened(ctx, s); err != nil {
			return err
		}
	}
	if frame.Type == wire.Bookmark {
		return r.applyBookmark(s)
	}

	o, err := r.object(frame.Type, s.frames, wire.ListHeader{})
	if o == nil || err != nil {
		return err
	}
	back := frame.Type == wire.Added && r.informer.key.LabelSelector+r.informer.key.FieldSelector != ""
	apply, err := r.at.place(frame.Type, o, r.informer.mu.store.Of(o), back)
	if err != nil {
		return r.asWatchError(err) // before it does harm
	}
	if !apply {
		return nil
	}
	r.informer.signs.event.Store(r.informer.signs.proof.Load())

	if frame.Type == wire.Deleted {
		r.informer.remove(o)
	} else {
		if err := r.checkRoom(o); err != nil {
			r.informer.unknown(func(unknown *refusals.Set) {
				unknown.Add(store.NameOf(o), o.GetResourceVersion(), err)
			})
			return err
		}
		r.informer.put(o)
	}

	r.reached(ordering.Moved(r.at.resume, o.GetResourceVersion()), ordering.Opaque(r.at.resume))

	return nil
}

// applyBookmark applies a bookmark.
func (r *reflector) applyBookmark(s *stream) error {
	it, err := s.frames.Scan()
	if err == nil {
		err = r.kind.bookmark(&it)
	}
	if err == nil {
		err = r.at.distrust
	}
	if err == nil && r.at.behind(it.ResourceVersion) {
		err = r.asWatchError(r.at.wentBack(it.ResourceVersion))
	}
	if err != nil {
		return err
	}
	if !r.server.bookmarks {
		r.server.bookmarks = true
		s.calm(false)
	}
	r.reached(it.ResourceVersion, false)

	return nil
}

// opened lists behind the beginning of a stream that has shown the objects that
// exist, and not all the cached ones.
func (r *reflector) opened(ctx context.Context, s *stream) error {
	lacks := r.at.opening.lacks(r.informer.mu.store.Count)
	r.server.repeats = r.at.opening.repeated
	if !lacks {
		return nil
	}
	return r.asListError(ctx, r.listBehind(ctx, s))
}

// asWatchError adds the key to what a stream has shown.
func (r *reflector) asWatchError(err error) error {
	return fmt.Errorf("watch %s: %w", r.informer.key, err)
}

// reached records how far the stream has come. on reports that it has gone on,
// whatever the version.
func (r *reflector) reached(rv string, on bool) {
	if rv == "" {
		return
	}
	further := r.at.advance(rv) || on
	if further {
		r.followed()
	}
	r.informer.progress.advance(r.at.resume, further)
}

// checkRoom reserves room for an object of a stream, and also checks the number
// of objects.
func (r *reflector) checkRoom(o *Object) error {
	old := r.informer.mu.store.Of(o)
	if limit := r.options.MaxObjects; limit > 0 && old == nil && r.informer.mu.store.Count >= limit {
		return fmt.Errorf("%s: more than %d objects: %w", r.informer.key, limit, ErrBudget)
	}
	return r.informer.reserve(old, o, r.options.MaxClusterBytes)
}
