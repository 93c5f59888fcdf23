// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// maxPages bounds a list whose server never stops handing out continue tokens.
const maxPages = 10_000

// relist makes the store equal to the server's state and returns the stream
// that follows it.
func (r *reflector) relist(ctx context.Context) (*stream, error) {
	release, err := r.informer.pool.permits.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	began := time.Now()
	r.session.relisted = true
	if err := r.learnKind(ctx); err != nil {
		return nil, r.asListError(ctx, err)
	}
	var noStream error
	if !r.paged() {
		s, err := r.listStreamed(ctx)
		if err == nil {
			r.listed(began)
		}
		if !cannotStream(err) && !r.failures.failsStreaming(err) {
			return s, r.asListError(ctx, err)
		}
		noStream = err
		r.informer.note(err) // while the paged list runs, this is all that is known
	}

	if err := r.listPaged(ctx); err != nil {
		return nil, r.asListError(ctx, err)
	}
	if noStream != nil {
		r.informer.cluster.pages(r.informer.key)
	}
	release()
	r.listed(began)
	if !r.server.watchable() {
		return nil, errPolled
	}
	s, err := r.watch(ctx)
	if err != nil || !r.session.unordered {
		return s, err
	}
	kept := false
	defer func() {
		if !kept {
			s.close()
		}
	}()
	if err := r.listBehind(ctx, s); err != nil {
		return nil, r.asListError(ctx, err)
	}
	kept = true

	return s, nil
}

// listBehind lists once more, after the beginning of a watch without a version.
// Such a watch begins with the objects that exist at that moment, and so does
// not mention an object that was deleted between the earlier list and its
// beginning. The stream is read after the second list: it has every change
// since it began, and therefore the latest state of each object that it names.
// An object that it does not name did not exist when the watch began, and was
// not created later: the list lacks it, and it is deleted.
func (r *reflector) listBehind(ctx context.Context, s *stream) error {
	release, err := r.informer.pool.permits.Take(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.timer.Stop() // nothing reads what arrives meanwhile
	from := r.at.resume
	if err := r.listPaged(ctx); err != nil {
		return err
	}
	r.at.resume, r.at.reach = from, from // changes from before the list are still to come
	s.calm(s.quiet)

	return nil
}

// listed reports how long a list took. A list also answers the history
// question.
func (r *reflector) listed(began time.Time) {
	r.failures.unanswered, r.failures.away = time.Time{}, false
	r.informer.pool.permits.Listed(time.Since(began))
	if r.options.OnListed != nil {
		_ = r.informer.pool.calls.Apart("OnListed", &r.informer.key, func() error {
			r.options.OnListed(r.informer.key, time.Since(began))
			return nil
		})
	}
}

// listError marks an error as one of a list.
type listError struct{ error }

// Unwrap returns the error that the list failed with.
func (e listError) Unwrap() error { return e.error }

// asListError marks the error of a list, and investigates a 404.
func (r *reflector) asListError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		err = r.missing(ctx, err)
	}

	return listError{err}
}

// listStreamed lists by a watch that begins with the current objects, and
// returns the stream positioned after them.
func (r *reflector) listStreamed(ctx context.Context) (*stream, error) {
	opts := streamOptions(r.listOptions())
	opts.TimeoutSeconds = r.watchSeconds()
	r.informer.count(countWatches)
	s, err := r.open(ctx, opts, r.options.StallTimeout)
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() {
		if !kept {
			s.close()
		}
	}()
	s.limit(initialSilence)
	if err := r.readInitial(s); err != nil {
		return nil, err
	}
	s.calm(!r.server.bookmarks)
	kept = true

	return s, nil
}

// readInitial applies the objects a stream begins with.
func (r *reflector) readInitial(s *stream) (err error) {
	l := r.beginList()
	defer func() { l.abort(err) }()
	var bound endless
	for {
		frame, err := s.next()
		if errors.Is(err, ErrStalled) || bound.passed(frame.Type, l.repeats) {
			return fmt.Errorf("%s: %w", r.informer.key, errEndless)
		}
		if err != nil {
			return eofIsUnexpected(err)
		}

		if frame.Type == wire.Bookmark {
			end, it, err := initialEventsEnd(frame)
			if err == nil {
				err = r.checkBookmark(&it)
			}
			if err != nil {
				return err
			}
			if !end {
				return errNoStream
			}
			r.server.ends = true
			return l.finish(it.ResourceVersion)
		}

		if err := l.apply(frame.Type, s.frames, wire.ListHeader{}); err != nil {
			return err
		}
	}
}

// listPaged lists page by page.
func (r *reflector) listPaged(ctx context.Context) (err error) {
	l := r.beginList()
	defer func() { l.abort(err) }()
	opts := r.listOptions()
	opts.Limit = r.server.pageSize(r.options)
	r.informer.count(countLists)

	for range maxPages {
		header, err := r.listPage(ctx, opts, l)
		if opts.Continue != "" && apierrors.IsResourceExpired(err) {
			// The server forgets the version of the list faster than the pages
			// are read. A list in a single response has a single version: start
			// over with that.
			l.restart()
			opts.Limit, opts.Continue = 0, ""
			r.informer.count(countLists)
			header, err = r.listPage(ctx, opts, l)
		}

		if err != nil {
			r.server.shrink(opts.Limit, err)
			return err
		}
		if header.Continue == "" {
			return l.finish(header.ResourceVersion)
		}
		if header.Continue == opts.Continue {
			return fmt.Errorf("list %s: server repeats a page: %w", r.informer.key, ErrBudget)
		}
		opts.Continue = header.Continue
	}

	return fmt.Errorf("list %s: more than %d pages: %w", r.informer.key, maxPages, ErrBudget)
}

func (r *reflector) listPage(ctx context.Context, opts metav1.ListOptions, l *listing) (wire.ListHeader, error) {
	p, err := r.openPage(ctx, opts, r.options.StallTimeout)
	if err != nil {
		return wire.ListHeader{}, err
	}
	defer p.close()
	r.kind.unnamed, r.kind.inPage = 0, true
	for {
		err := p.next()
		if errors.Is(err, io.EOF) {
			err = r.checkListKind(p.header(), p.count, r.kind.unnamed)
			r.kind.inPage = err != nil
			return p.header(), err
		}
		if err != nil {
			return wire.ListHeader{}, err
		}
		if err := l.apply(wire.Added, p.items, p.header()); err != nil {
			return wire.ListHeader{}, err
		}
	}
}

// checkBytes fails if storing an object in place of old would exceed the
// cluster's memory budget. It is checked before storing: a server that is
// retried repeatedly must not get one more object in with each try.
func (r *reflector) checkBytes(old, o *Object) error {
	growth := int64(o.Size()) + store.EntryBytes
	if old != nil {
		growth -= int64(old.Size())
	}
	limit := r.options.MaxClusterBytes
	if limit <= 0 || growth <= 0 || r.informer.reserve(growth, limit) {
		return nil
	}
	return fmt.Errorf("%s: cluster's informers take more than %d bytes: %w", r.informer.key, limit, ErrBudget)
}

// reserve charges the cluster's budget for an object that is about to be
// stored. It reports false if that exceeds the limit. The informers of a
// cluster fill one budget concurrently: without the reservation each would find
// room that does not suffice for all of them.
func (i *informer) reserve(growth, limit int64) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for {
		taken := i.cluster.bytes.Load()
		if taken+growth > limit {
			return false
		}
		if i.cluster.bytes.CompareAndSwap(taken, taken+growth) {
			i.mu.charged += growth // until the exact size is known
			return true
		}
	}
}

// checkRoom is checkBytes for an object of a stream, and also checks the number
// of objects.
func (r *reflector) checkRoom(o *Object) error {
	old := r.informer.mu.store.Get(o.GetNamespace(), o.GetName())
	if limit := r.options.MaxObjects; limit > 0 && old == nil && r.informer.mu.store.Count >= limit {
		return fmt.Errorf("%s: more than %d objects: %w", r.informer.key, limit, ErrBudget)
	}
	return r.checkBytes(old, o)
}

// follow applies a live stream until it ends; a regular end is nil.
func (r *reflector) follow(s *stream) error {
	for {
		if err := s.wait(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			if errors.Is(err, ErrStalled) {
				r.server.bookmarks = false // must be seen again before silence means anything
			}
			return err
		}

		if err := r.applyNext(s); err != nil {
			return err
		}
	}
}

// applyNext applies the next frame, which has begun to arrive.
func (r *reflector) applyNext(s *stream) error {
	frame, err := s.next()
	if err != nil {
		return eofIsUnexpected(err)
	}
	r.session.unordered = r.session.unordered && frame.Type == wire.Added
	if frame.Type == wire.Bookmark {
		it, err := s.frames.Scan()
		if err == nil {
			err = r.checkBookmark(&it)
		}
		if err == nil {
			err = r.at.distrust
		}
		if err != nil {
			return err
		}
		if !r.server.bookmarks {
			r.server.bookmarks = true
			s.calm(false)
		}
		return r.reached(it.ResourceVersion)
	}

	o, err := r.object(frame.Type, s.frames, wire.ListHeader{})
	if o == nil || err != nil {
		return err
	}
	if err := r.checkOrder(o.GetResourceVersion()); err != nil {
		return err // before it does harm
	}
	r.informer.signs.event.Store(r.informer.signs.proof.Load())

	if frame.Type == wire.Deleted {
		r.informer.remove(o)
	} else {
		if err := r.checkRoom(o); err != nil {
			r.informer.unknown(func(r *refusals) { r.add(store.NameOf(o), err) })
			return err
		}
		r.informer.put(o)
	}

	return r.reached(o.GetResourceVersion())
}
