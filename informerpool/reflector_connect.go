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
	"github.com/fleetcache/fleetcache/internal/wire"
)

// connect waits for the cluster and returns a live stream that continues the
// store.
func (r *reflector) connect(ctx context.Context) (*stream, error) {
	epoch, err := r.server.ready(ctx)
	if err != nil {
		return nil, err
	}
	if epoch != r.server.epoch {
		if !r.at.replace && r.informer.relation().synced {
			r.at.replaces(r.informer.relation().era())
		}
		r.server.epoch, r.at.resume, r.at.reach = epoch, "", ""
		r.informer.published.definition.Store(nil)
		r.informer.mu.Lock()
		r.informer.mu.seen.loosen()
		r.informer.mu.Unlock()
		r.kind.forget()
	}

	if ordering.Ordered(r.at.resume) && r.server.watchable() && r.at.distrust == nil {
		s, list, err := r.resume(ctx)
		if !list {
			return s, err
		}
	}

	if s, err := r.restore(ctx); s != nil || err != nil {
		return s, err
	}
	return r.relist(ctx)
}

// resume returns the stream that continues the last one, if the history
// question is answered. list reports that a list is due instead.
func (r *reflector) resume(ctx context.Context) (s *stream, list bool, err error) {
	if err := r.kind.learn(ctx, &r.server); err != nil { // known since the first list, if there was one
		return nil, false, err
	}
	var unsure error
	err = r.server.ask(ctx, func() (err error) {
		if !r.session.proven {
			unsure = r.guard(ctx)
		}
		if unsure != nil {
			return unsure
		}
		r.informer.count(countResumes)
		s, err = r.watch(ctx)
		return err
	})
	if unsure != nil {
		return nil, r.failures.listsInstead(unsure), unsure
	}
	return s, errors.Is(err, errPolled), asResumeError(err)
}

// guard asks the history question: does the server's history reach the version
// that the informer has seen? A server whose etcd was restored from an older
// snapshot accepts a resourceVersion from the future and then is silent until
// its own history gets there, in practice for ever. The answer to another
// informer serves as well, if it confirms that.
func (r *reflector) guard(ctx context.Context) error {
	confirms, mine := r.informer.testimony.consult(ctx, claim{r.server.epoch, r.at.resume, r.ended})
	if confirms != nil {
		r.failures.unanswered = time.Time{}
		r.server.relies(confirms)
		return nil
	}
	current, err := r.server.inquire(ctx, mine, !r.failures.unanswered.IsZero())
	if storageFails(err) && time.Since(r.failures.forgot) >= memoryPause {
		if r.server.remembers(ctx, r.at.resume) {
			return nil
		}
		r.failures.forgot = time.Now()
	}
	if err != nil {
		return err
	}
	r.failures.unanswered = time.Time{}
	if ordering.Behind(current, r.at.resume) {
		return fmt.Errorf("%s: %w (server is at %s, cache at %s)", r.informer.key, ErrHistory, current, r.at.resume)
	}
	return nil
}

// watch opens the live stream from the resourceVersion that was reached.
func (r *reflector) watch(ctx context.Context) (*stream, error) {
	s, err := r.openWatch(ctx)
	r.at.begin(r.server.repeats || ordering.Versionless(r.at.resume))
	if apierrors.IsMethodNotSupported(err) {
		return nil, errPolled
	}
	if err != nil {
		return nil, r.untaken(err)
	}
	s.calm(!r.server.bookmarks)
	since := r.informer.relation().detached
	r.informer.progress.accepted(r.at.resume)
	if r.failures.away {
		r.failures.away = false
		r.informer.pool.audits.resumed(r.informer, since)
	}

	return s, nil
}

// openWatch opens a watch from the resourceVersion that was reached.
func (r *reflector) openWatch(ctx context.Context) (*stream, error) {
	opts := r.server.listOptions()
	opts.ResourceVersion = r.at.resume
	opts.AllowWatchBookmarks = true
	opts.TimeoutSeconds = r.server.watchSeconds()
	r.session.lasts = time.Duration(*opts.TimeoutSeconds) * time.Second
	r.informer.count(countWatches)
	s, err := r.server.open(ctx, opts, r.options.StallTimeout)
	if apierrors.IsMethodNotSupported(err) {
		r.server.unwatchable = time.Now().Add(fallbackAge)
	}
	return s, err
}

// untaken adds to the error of a watch that its version is not valid, if
// nothing else is known to be wrong.
func (r *reflector) untaken(err error) error {
	if !ordering.Opaque(r.at.resume) {
		return err
	}
	return fmt.Errorf("%s: %w: the list is at %s, and a watch from there fails: %w",
		r.informer.key, ErrVersion, wire.Excerpt(r.at.resume), err)
}

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
	release, err := r.informer.pool.permit(ctx) // it has its turn in the cluster
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
