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

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
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

	if err := beginList(r).paged(ctx); err != nil {
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
	if err := beginList(r).paged(ctx); err != nil {
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
	if err := beginList(r).streamed(s); err != nil {
		return nil, err
	}
	s.calm(!r.server.bookmarks)
	kept = true

	return s, nil
}
