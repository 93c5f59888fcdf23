// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
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
// its own history gets there, in practice for ever.
func (r *reflector) guard(ctx context.Context) error {
	current, err := r.server.currentVersion(ctx, !r.failures.unanswered.IsZero())
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
	if ordering.Versionless(r.at.resume) || ordering.Ordered(r.at.resume) {
		return err
	}
	return fmt.Errorf("%s: %w: the list is at %s, and a watch from there fails: %w",
		r.informer.key, ErrVersion, wire.Excerpt(r.at.resume), err)
}
