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
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// maxPages bounds a list whose server never stops handing out continue tokens.
const maxPages = 10_000

// errNoStream indicates that a server took a request for a streamed list as one for a plain watch.
var errNoStream = errors.New("server does not stream lists")

// relist makes the store equal to the server's state and returns the stream of what follows.
func (f *feed) relist(ctx context.Context) (*stream, error) {
	release, err := f.pool.permits.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	began := time.Now()
	if !f.paged() {
		s, err := f.listStreamed(ctx)
		if err == nil {
			f.listed(began)
		}
		if !cannotStream(err) {
			return s, asListError(err)
		}
		f.noStreaming = true
	}
	if err := f.listPaged(ctx); err != nil {
		return nil, asListError(err)
	}
	release()
	f.listed(began)
	return f.watch(ctx)
}

// listed tells how long a list took.
func (f *feed) listed(began time.Time) {
	if f.options.OnListed != nil {
		f.options.OnListed(f.key, time.Since(began))
	}
}

func (f *feed) paged() bool { return f.options.PagedLists || f.noStreaming }

// cannotStream tells whether an error may mean that the server has no streamed lists: older ones refuse the parameters,
// the oldest overlook them. If it meant something else, the paged list that follows fails alike.
func cannotStream(err error) bool {
	return errors.Is(err, errNoStream) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotAcceptable(err)
}

// listError marks an error as that of a list.
type listError struct{ error }

// Unwrap returns what the list failed with.
func (e listError) Unwrap() error { return e.error }

func asListError(err error) error {
	if err == nil {
		return nil
	}
	return listError{err}
}

// checkGone takes the objects away when lists keep saying that the resource does not exist, as when its definition was
// deleted. One such answer may come from a server that is starting, and that of a watch is no proof.
func (f *feed) checkGone(err error) error {
	if _, list := errors.AsType[listError](err); !list || !apierrors.IsNotFound(err) {
		return err
	}
	if f.misses++; f.misses == confirmedGone {
		f.vanish()
	}
	return err
}

// listStreamed lists by a watch that begins with the current objects, and returns it behind those.
func (f *feed) listStreamed(ctx context.Context) (*stream, error) {
	opts := streamOptions(f.listOptions())
	opts.TimeoutSeconds = f.watchSeconds()
	f.counters.watches.inc()
	s, err := f.open(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := f.readInitial(s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// readInitial applies the objects a stream begins with.
func (f *feed) readInitial(s *stream) error {
	l := f.beginList()
	defer l.abort()
	for {
		frame, err := s.next()
		if err != nil {
			return eofIsUnexpected(err)
		}
		if frame.Type == wire.Bookmark {
			end, rv, err := initialEventsEnd(frame)
			if err != nil {
				return err
			}
			if !end {
				return errNoStream
			}
			l.finish(rv)
			return nil
		}
		if err := l.apply(frame.Type, s.frames, wire.ListHeader{}); err != nil {
			return err
		}
	}
}

// listPaged lists page by page.
func (f *feed) listPaged(ctx context.Context) error {
	l := f.beginList()
	defer l.abort()
	opts := f.listOptions()
	opts.Limit = f.options.PageSize
	f.counters.lists.inc()
	for range maxPages {
		header, err := f.listPage(ctx, opts, l)
		if err != nil {
			return err
		}
		if header.Continue == "" {
			l.finish(header.ResourceVersion)
			return nil
		}
		if header.Continue == opts.Continue {
			return fmt.Errorf("list %s: server repeats a page: %w", f.key, ErrBudget)
		}
		opts.Continue = header.Continue
	}
	return fmt.Errorf("list %s: more than %d pages: %w", f.key, maxPages, ErrBudget)
}

func (f *feed) listPage(ctx context.Context, opts metav1.ListOptions, l *listing) (wire.ListHeader, error) {
	p, err := f.openPage(ctx, opts)
	if err != nil {
		return wire.ListHeader{}, err
	}
	defer p.close()
	for {
		err := p.next()
		if errors.Is(err, io.EOF) {
			return p.header(), nil
		}
		if err != nil {
			return wire.ListHeader{}, err
		}
		if err := l.apply(wire.Added, p.items, p.header()); err != nil {
			return wire.ListHeader{}, err
		}
	}
}

// listing is a list under way. In the epoch of the store it updates the store in place and ends by removing what it did
// not see, guarded by each object's version. In a new epoch it fills a second store, since versions of different epochs cannot be
// compared and no read may mix their objects.
type listing struct {
	feed  *feed
	seen  marks
	count int
	over  bool
}

func (f *feed) beginList() *listing {
	l := &listing{feed: f}
	f.kind = nil // a definition may have been replaced by one of another kind
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.synced {
		f.counters.resyncs.inc()
	}
	switch {
	case f.replace && f.synced:
		f.next = f.store.emptyCopy()
	case f.replace:
		f.store = f.store.emptyCopy()
		f.replace = false
	case f.store.count > 0:
		l.seen = make(marks, f.store.count)
	}
	return l
}

// apply takes one object of the list, or one change that came while it was streamed.
func (l *listing) apply(frame string, at scanner, header wire.ListHeader) error {
	f := l.feed
	o, err := f.object(at, header)
	if o == nil || err != nil {
		return err
	}
	if l.count++; f.options.MaxObjects > 0 && l.count > f.options.MaxObjects {
		return fmt.Errorf("list %s: more than %d objects: %w", f.key, f.options.MaxObjects, ErrBudget)
	}
	switch {
	case frame == wire.Deleted && f.replace:
		f.removeNext(o)
	case frame == wire.Deleted:
		f.remove(o)
	case f.replace:
		f.putNext(o)
	default:
		f.put(o, l.seen)
	}
	return f.checkBudget()
}

// checkBudget fails the informer while its cluster takes more memory than it may.
func (f *feed) checkBudget() error {
	if limit := f.options.MaxClusterBytes; limit > 0 && f.account.bytes.Load() > limit {
		return fmt.Errorf("%s: cluster's informers take more than %d bytes: %w", f.key, limit, ErrBudget)
	}
	return nil
}

// finish makes the list's result the informer's.
func (l *listing) finish(rv string) {
	f := l.feed
	l.over = true
	f.misses = 0
	f.resume = rv
	f.proof()
	if f.replace {
		f.replace = false
		f.swap(rv, f.known)
		return
	}
	f.sweep(l.seen, rv, f.known)
}

// abort forgets an unfinished list of a new epoch, or the first one, of which nobody has seen anything. One that was to
// bring a synced store up to date leaves what it brought: it is newer.
func (l *listing) abort() {
	if l.over {
		return
	}
	f := l.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.replace:
		f.next = nil
	case !f.synced:
		f.store = f.store.emptyCopy()
	}
	f.chargeLocked()
}

// follow applies a live stream until it ends; a regular end is nil.
func (f *feed) follow(s *stream) error {
	for {
		if err := s.wait(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := f.applyNext(s); err != nil {
			return err
		}
	}
}

// applyNext applies the frame that has begun to arrive.
func (f *feed) applyNext(s *stream) error {
	frame, err := s.next()
	if err != nil {
		return eofIsUnexpected(err)
	}
	if frame.Type == wire.Bookmark {
		it, err := s.frames.Scan(nil)
		if err != nil {
			return err
		}
		return f.reached(it.ResourceVersion)
	}
	o, err := f.object(s.frames, wire.ListHeader{})
	if o == nil || err != nil {
		return err
	}
	f.lastEvent.Store(f.lastProof.Load())
	if frame.Type == wire.Deleted {
		f.remove(o)
	} else {
		f.put(o, nil)
	}
	if err := f.reached(o.GetResourceVersion()); err != nil {
		return err
	}
	return f.checkBudget()
}

// reached notes how far the stream has come. Versions of a stream only grow; one that falls is another history's.
func (f *feed) reached(rv string) error {
	if rv == "" {
		return nil
	}
	if order, err := resourceversion.CompareResourceVersion(rv, f.resume); err == nil && order < 0 {
		return fmt.Errorf("watch %s: %w (stream went from %s to %s)", f.key, ErrHistory, f.resume, rv)
	}
	f.resume = rv
	f.advance(rv)
	return nil
}
