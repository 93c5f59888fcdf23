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

	"github.com/fleetcache/fleetcache/internal/wire"
)

// maxPages bounds a list whose server never stops handing out continue tokens.
const maxPages = 10_000

// relist makes the store equal to the server's state and returns the stream
// that follows it.
func (f *feed) relist(ctx context.Context) (*stream, error) {
	release, err := f.pool.permits.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	began := time.Now()
	f.relisted = true
	if err := f.learnKind(ctx); err != nil {
		return nil, f.asListError(ctx, err)
	}
	var noStream error
	if !f.paged() {
		s, err := f.listStreamed(ctx)
		if err == nil {
			f.listed(began)
		}
		if !cannotStream(err) && !f.failsStreaming(err) {
			return s, f.asListError(ctx, err)
		}
		noStream = err
		f.note(err) // while the paged list runs, this is all that is known
	}

	if err := f.listPaged(ctx); err != nil {
		return nil, f.asListError(ctx, err)
	}
	if noStream != nil {
		f.account.pages(f.key)
	}
	release()
	f.listed(began)
	if !f.watchable() {
		return nil, errPolled
	}
	s, err := f.watch(ctx)
	if err != nil || !f.unordered {
		return s, err
	}
	kept := false
	defer func() {
		if !kept {
			s.close()
		}
	}()
	if err := f.listBehind(ctx, s); err != nil {
		return nil, f.asListError(ctx, err)
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
func (f *feed) listBehind(ctx context.Context, s *stream) error {
	release, err := f.pool.permits.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.timer.Stop() // nothing reads what arrives meanwhile
	from := f.resume
	if err := f.listPaged(ctx); err != nil {
		return err
	}
	f.resume, f.reach = from, from // changes from before the list are still to come
	s.calm(s.quiet)

	return nil
}

// listed reports how long a list took. A list also answers the history
// question.
func (f *feed) listed(began time.Time) {
	f.unanswered, f.away = time.Time{}, false
	f.pool.permits.listed(time.Since(began))
	if f.options.OnListed != nil {
		_ = f.pool.callApart("OnListed", f.key, func() error {
			f.options.OnListed(f.key, time.Since(began))
			return nil
		})
	}
}

// listError marks an error as one of a list.
type listError struct{ error }

// Unwrap returns the error that the list failed with.
func (e listError) Unwrap() error { return e.error }

// asListError marks the error of a list, and investigates a 404.
func (f *feed) asListError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		err = f.missing(ctx, err)
	}

	return listError{err}
}

// listStreamed lists by a watch that begins with the current objects, and
// returns the stream positioned after them.
func (f *feed) listStreamed(ctx context.Context) (*stream, error) {
	opts := streamOptions(f.listOptions())
	opts.TimeoutSeconds = f.watchSeconds()
	f.counters.watches.inc()
	s, err := f.open(ctx, opts, f.options.StallTimeout)
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
	if err := f.readInitial(s); err != nil {
		return nil, err
	}
	s.calm(!f.bookmarks)
	kept = true

	return s, nil
}

// readInitial applies the objects a stream begins with.
func (f *feed) readInitial(s *stream) (err error) {
	l := f.beginList()
	defer func() { l.abort(err) }()
	var bound endless
	for {
		frame, err := s.next()
		if errors.Is(err, ErrStalled) || bound.passed(frame.Type, l.repeats) {
			return fmt.Errorf("%s: %w", f.key, errEndless)
		}
		if err != nil {
			return eofIsUnexpected(err)
		}

		if frame.Type == wire.Bookmark {
			end, it, err := initialEventsEnd(frame)
			if err == nil {
				err = f.checkBookmark(&it)
			}
			if err != nil {
				return err
			}
			if !end {
				return errNoStream
			}
			f.ends = true
			return l.finish(it.ResourceVersion)
		}

		if err := l.apply(frame.Type, s.frames, wire.ListHeader{}); err != nil {
			return err
		}
	}
}

// listPaged lists page by page.
func (f *feed) listPaged(ctx context.Context) (err error) {
	l := f.beginList()
	defer func() { l.abort(err) }()
	opts := f.listOptions()
	opts.Limit = max(f.options.PageSize>>f.smaller, 1)
	f.counters.lists.inc()

	for range maxPages {
		header, err := f.listPage(ctx, opts, l)
		if opts.Continue != "" && apierrors.IsResourceExpired(err) {
			// The server forgets the version of the list faster than the pages
			// are read. A list in a single response has a single version: start
			// over with that.
			l.restart()
			opts.Limit, opts.Continue = 0, ""
			f.counters.lists.inc()
			header, err = f.listPage(ctx, opts, l)
		}

		if err != nil {
			f.shrink(opts.Limit, err)
			return err
		}
		if header.Continue == "" {
			return l.finish(header.ResourceVersion)
		}
		if header.Continue == opts.Continue {
			return fmt.Errorf("list %s: server repeats a page: %w", f.key, ErrBudget)
		}
		opts.Continue = header.Continue
	}

	return fmt.Errorf("list %s: more than %d pages: %w", f.key, maxPages, ErrBudget)
}

// shrink makes the pages of the next list smaller after one was too large: the
// objects in it may be valid.
func (f *feed) shrink(limit int64, err error) {
	if e, ok := errors.AsType[*wire.LimitError](err); ok && e.What == wire.ResponseBytes && limit > 1 {
		f.smaller++
	}
}

func (f *feed) listPage(ctx context.Context, opts metav1.ListOptions, l *listing) (wire.ListHeader, error) {
	p, err := f.openPage(ctx, opts, f.options.StallTimeout)
	if err != nil {
		return wire.ListHeader{}, err
	}
	defer p.close()
	f.unnamed, f.inPage = 0, true
	for {
		err := p.next()
		if errors.Is(err, io.EOF) {
			err = f.checkListKind(p.header(), p.count, f.unnamed)
			f.inPage = err != nil
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
func (f *feed) checkBytes(old, o *Object) error {
	growth := int64(o.Size()) + entryBytes
	if old != nil {
		growth -= int64(old.Size())
	}
	limit := f.options.MaxClusterBytes
	if limit <= 0 || growth <= 0 || f.reserve(growth, limit) {
		return nil
	}
	return fmt.Errorf("%s: cluster's informers take more than %d bytes: %w", f.key, limit, ErrBudget)
}

// reserve charges the cluster's account for an object that is about to be
// stored. It reports false if that exceeds the limit. The informers of a
// cluster fill one budget concurrently: without the reservation each would find
// room that does not suffice for all of them.
func (e *entry) reserve(growth, limit int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		taken := e.account.bytes.Load()
		if taken+growth > limit {
			return false
		}
		if e.account.bytes.CompareAndSwap(taken, taken+growth) {
			e.charged += growth // until the exact size is known
			return true
		}
	}
}

// checkRoom is checkBytes for an object of a stream, and also checks the number
// of objects.
func (f *feed) checkRoom(o *Object) error {
	old := f.store.get(o.GetNamespace(), o.GetName())
	if limit := f.options.MaxObjects; limit > 0 && old == nil && f.store.count >= limit {
		return fmt.Errorf("%s: more than %d objects: %w", f.key, limit, ErrBudget)
	}
	return f.checkBytes(old, o)
}

// follow applies a live stream until it ends; a regular end is nil.
func (f *feed) follow(s *stream) error {
	for {
		if err := s.wait(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			if errors.Is(err, ErrStalled) {
				f.bookmarks = false // must be seen again before silence means anything
			}
			return err
		}

		if err := f.applyNext(s); err != nil {
			return err
		}
	}
}

// applyNext applies the next frame, which has begun to arrive.
func (f *feed) applyNext(s *stream) error {
	frame, err := s.next()
	if err != nil {
		return eofIsUnexpected(err)
	}
	f.unordered = f.unordered && frame.Type == wire.Added
	if frame.Type == wire.Bookmark {
		it, err := s.frames.Scan()
		if err == nil {
			err = f.checkBookmark(&it)
		}
		if err == nil {
			err = f.distrust
		}
		if err != nil {
			return err
		}
		if !f.bookmarks {
			f.bookmarks = true
			s.calm(false)
		}
		return f.reached(it.ResourceVersion)
	}

	o, err := f.object(frame.Type, s.frames, wire.ListHeader{})
	if o == nil || err != nil {
		return err
	}
	if err := f.checkOrder(o.GetResourceVersion()); err != nil {
		return err // before it does harm
	}
	f.lastEvent.Store(f.lastProof.Load())

	if frame.Type == wire.Deleted {
		f.remove(o)
	} else {
		if err := f.checkRoom(o); err != nil {
			f.unknown(func(r *refusals) { r.add(nameOf(o), err) })
			return err
		}
		f.put(o)
	}

	return f.reached(o.GetResourceVersion())
}

// checkOrder fails if a stream shows a version before the one it has reached:
// versions of one history only grow. The initial objects of a watch without a
// version have no order.
func (f *feed) checkOrder(rv string) error {
	if !f.unordered && behind(rv, f.resume) {
		return fmt.Errorf("watch %s: %w (stream went from %s to %s)", f.key, ErrHistory, f.resume, rv)
	}
	return nil
}

// reached records how far the stream has come.
func (f *feed) reached(rv string) error {
	if rv == "" {
		return nil
	}
	if err := f.checkOrder(rv); err != nil {
		return err
	}
	if behind(rv, f.resume) {
		rv = f.resume
	}
	rv = further(f.resume, rv)
	on := rv != f.resume
	f.resume, f.reach = rv, rv
	if on {
		f.followed()
	}
	f.advance(rv, on)

	return nil
}
