// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// errBegunBefore indicates that a stream began before a list that showed another
// history.
var errBegunBefore = errors.New("the watch began before the server's new history was listed")

// relist makes the store equal to the server's state and returns the stream
// that follows it.
func (r *reflector) relist(ctx context.Context) (s *stream, err error) {
	t, err := r.server.turn(ctx)
	if err != nil {
		return nil, err
	}
	err = errUnreturned
	defer func() { t.end(err) }()
	began := time.Now()
	r.session.relisted = true
	if err := r.kind.learn(ctx, &r.server); err != nil {
		return nil, r.asListError(ctx, err)
	}
	var noStream error
	if !r.server.paged() {
		s, err := r.listStreamed(ctx)
		if err == nil {
			r.listed(began)
		}
		if !cannotStream(err) && !r.failures.failsStreaming(err) {
			return s, r.asListError(ctx, err)
		}
		noStream = err
		r.informer.progress.note(err) // while the paged list runs, this is all that is known
	}

	if err := r.listPaged(ctx); err != nil {
		return nil, r.asListError(ctx, err)
	}
	if noStream != nil && !errors.Is(noStream, errUnversioned) {
		r.server.pages()
	}
	t.permit()
	r.listed(began)
	switch {
	case r.informer.mu.unversioned:
		return nil, r.listen(ctx)
	case !r.server.watchable():
		return nil, errPolled
	}
	if s, err = r.watch(ctx); err != nil {
		return nil, err
	}
	return r.completed(ctx, s)
}

// completed returns a stream that has begun. If that has no version, it lists
// once more.
func (r *reflector) completed(ctx context.Context, s *stream) (*stream, error) {
	if !r.at.opening.versionless() {
		return s, nil
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
	if r.informer.mu.unversioned {
		return nil, errUnversioned // the first list had no objects
	}
	kept = true

	return s, nil
}

// listBehind lists once more, after the beginning of a watch without a version,
// or of one whose server ignored it. Such a watch begins with the objects that
// exist at that moment, and so does not mention an object that was deleted
// between the earlier list and its beginning. The stream is read after the
// second list: it has every change since it began, and therefore the latest
// state of each object that it names. An object that it does not name did not
// exist when the watch began, and was not created later: the list lacks it, and
// it is deleted. If the stream names one that the list has removed, its states
// are from before that, and are not applied.
func (r *reflector) listBehind(ctx context.Context, s *stream) error {
	release, err := r.informer.pool.lists.Take(ctx) // it has its turn in the cluster
	if err != nil {
		return err
	}
	defer release()
	from, cached := r.at.resume, slices.Collect(r.informer.mu.store.All())
	s.timer.Stop() // nothing reads what arrives meanwhile
	if err := r.listPaged(ctx); err != nil {
		return err
	}
	if ordering.Behind(r.at.resume, from) { // a new history, in which the stream began at an unknown version
		return fmt.Errorf("%s: %w", r.informer.key, errBegunBefore)
	}
	r.at.resume = from // changes from before the list are still to come
	for _, o := range cached {
		if r.informer.mu.store.Of(o) == nil {
			r.at.opening.gone(o)
		}
	}
	if ordering.Versionless(from) {
		r.at.reach, r.server.undated = from, true
	}
	s.calm(s.quiet)

	return nil
}

// listed reports how long a list took. A list also answers the history
// question.
func (r *reflector) listed(began time.Time) {
	r.failures.unanswered, r.failures.away = time.Time{}, false
	if r.server.blank { // it began with all that exist if nothing does
		r.server.repeats, r.server.blank = r.informer.mu.store.Count == 0, false
	}
	r.informer.pool.lists.Succeeded(time.Since(began))
	if r.options.OnListed != nil {
		r.informer.pool.calls.Tell("OnListed", &r.informer.key, func() {
			r.options.OnListed(r.informer.key, time.Since(began))
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
		var gone bool
		if gone, err = r.absent.missing(ctx, &r.server, &r.at, err); gone {
			r.at.relist()
			r.informer.vanish()
			r.informer.pool.kept.drop(r.informer.key, err)
		}
	}

	return listError{err}
}

// listStreamed lists by a watch that begins with the current objects, and
// returns the stream positioned after them.
func (r *reflector) listStreamed(ctx context.Context) (*stream, error) {
	opts := streamOptions(r.server.listOptions())
	opts.TimeoutSeconds = r.server.watchSeconds()
	r.informer.count(countWatches)
	s, err := r.server.open(ctx, opts, r.options.StallTimeout)
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
	l := beginList(r)
	defer func() { l.abort(err) }()
	l.floor = r.shown()
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
				err = r.kind.bookmark(&it)
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

// endless bounds the initial objects of a stream. A server that treats the
// request as one for a plain watch keeps sending changes for ever, and the list
// would never be complete.
type endless struct {
	began, changing time.Time
}

// passed reports whether a frame comes too late to be part of a list.
func (b *endless) passed(frame string, repeats int) bool {
	now := time.Now()
	if b.began.IsZero() {
		b.began = now
	}
	if b.changing.IsZero() && (frame == wire.Modified || frame == wire.Deleted) {
		b.changing = now
	}
	return repeats > maxRepeats || now.Sub(b.began) > maxInitial ||
		!b.changing.IsZero() && now.Sub(b.changing) > maxChanges
}

// listPaged lists page by page.
func (r *reflector) listPaged(ctx context.Context) (err error) {
	l := beginList(r)
	defer func() { l.abort(err) }()
	l.floor = r.shown()
	opts := r.server.listOptions()
	opts.Limit = r.server.pageSize(r.options)
	r.informer.count(countLists)

	rv, err := r.server.pageByPage(&opts, func() (wire.ListHeader, error) {
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
		if err == nil && header.Continue != "" {
			err = l.lags(header.ResourceVersion)
		}
		return header, err
	})
	if err != nil {
		r.server.shrink(opts.Limit, err)
		return err
	}
	return l.finish(rv)
}

func (r *reflector) listPage(ctx context.Context, opts metav1.ListOptions, l *listing) (wire.ListHeader, error) {
	p, err := r.server.openPage(ctx, opts, r.options.StallTimeout, false)
	if err != nil {
		return wire.ListHeader{}, err
	}
	defer p.close()
	r.kind.unnamed, r.kind.inPage = 0, true
	header, err := p.read(func(at scanner) error { return l.apply(wire.Added, at, p.header()) })
	if err != nil {
		return header, err
	}
	if err := r.kind.list(header, p.count, r.kind.unnamed); err != nil {
		return header, fmt.Errorf("%s: %w", r.informer.key, err)
	}
	r.kind.inPage = false

	return header, nil
}
