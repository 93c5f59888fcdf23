// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/informerpool/internal/ordering"
	"github.com/fleetcache/fleetcache/informerpool/internal/store"
	"github.com/fleetcache/fleetcache/internal/wire"
)

// maxRefused is how many objects of one list may be refused while fewer are
// accepted, so that an endless list of nonsense ends soon.
const maxRefused = 10_000

// listing is a list under way. It leaves the store alone until it is complete,
// and then becomes visible in one step: no read and no handler sees a part of
// it, even if it turns out to be of another history.
//
// The list is authoritative: it is the current state in the server's history.
// If it contradicts the store, the store is of another history, since versions
// of one history only grow. Objects that the list and the store have in common
// stay as they are, so that a list costs memory only for changed objects, and
// causes no event for unchanged ones.
type listing struct {
	draft

	reflector *reflector
	version   string // of the whole list, once it is known
	broken    error  // the proof that the store is of another history
	repeats   int    // objects that it showed again, unchanged
	over      bool
	asOf      int64 // the instant as of which a snapshot is proven, of the pool's clock; zero if this is a list
	floor     floor

	cramped error // why objects were skipped: there was no room for them
	passed  int   // how many of the skipped objects are new
	weight  int64 // memory of all skipped objects

	accepted, rejected int  // how many objects were accepted and refused
	unversioned        int  // how many of the accepted ones have no version
	senseless          bool // an object was refused for its content, not for its size
}

// beginList begins a list, which becomes that of the reflector.
func beginList(r *reflector) *listing {
	r.listing = &listing{draft: beginDraft(r.informer), reflector: r}
	r.listing.floor = r.listing.shown()
	return r.listing
}

// restart drops everything that the list has brought so far.
func (l *listing) restart() {
	l.draft.restart()
	*l = listing{draft: l.draft, reflector: l.reflector, floor: l.floor}
}

// paged lists page by page.
func (l *listing) paged(ctx context.Context) (err error) {
	r := l.reflector
	defer func() { l.abort(err) }()
	opts := r.server.listOptions()
	opts.Limit = r.server.pageSize(r.options)
	r.informer.count(countLists)

	rv, err := r.server.pageByPage(&opts, func() (wire.ListHeader, error) {
		header, err := l.page(ctx, opts)
		if opts.Continue != "" && apierrors.IsResourceExpired(err) {
			// The server forgets the version of the list faster than the pages
			// are read. A list in a single response has a single version: start
			// over with that.
			l.restart()
			opts.Limit, opts.Continue = 0, ""
			r.informer.count(countLists)
			header, err = l.page(ctx, opts)
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

func (l *listing) page(ctx context.Context, opts metav1.ListOptions) (wire.ListHeader, error) {
	r := l.reflector
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

// streamed applies the objects that a stream begins with.
func (l *listing) streamed(s *stream) (err error) {
	r := l.reflector
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

// apply applies one object of the list, or one change that arrived while it was
// streamed.
func (l *listing) apply(frame string, at scanner, header wire.ListHeader) error {
	r := l.reflector
	if header.ResourceVersion != "" {
		l.version = header.ResourceVersion
	}
	switch o, err := r.object(frame, at, header); {
	case err != nil:
		return err
	case o == nil && l.rejected > maxRefused && l.rejected > l.accepted:
		return l.refusal() // the rest is not worth reading
	case o == nil:
		return nil
	case frame == wire.Deleted:
		l.accept(o)
		l.drop(store.ViewOf(o), func(earlier *Object) bool { return !ordering.Older(o, earlier) })
		return nil
	default:
		return l.admit(o)
	}
}

// accept counts an object of the list.
func (l *listing) accept(o *Object) {
	l.accepted++
	if ordering.Versionless(o.GetResourceVersion()) {
		l.unversioned++
	}
	l.refused.Forget(store.ViewOf(o), o.GetResourceVersion())
}

// admit adds an object to the list.
func (l *listing) admit(o *Object) error {
	r := l.reflector
	l.accept(o)
	if err := l.take(o); err != nil {
		return err
	}
	if n := len(l.seen) + r.informer.mu.staged.Count + l.passed; r.options.MaxObjects > 0 && n > r.options.MaxObjects {
		return fmt.Errorf("list %s: more than %d objects: %w", r.informer.key, r.options.MaxObjects, ErrBudget)
	}
	return nil
}

// refuse records a refused object of the list. It reports whether the object
// was not yet known to be refused.
func (l *listing) refuse(name types.NamespacedName, version string, why error) bool {
	_, limit := errors.AsType[*wire.LimitError](why)
	l.senseless = l.senseless || !limit
	l.rejected++
	return l.refused.Add(name, version, why)
}

func (l *listing) refusal() error {
	return refusedError(l.informer.key,
		fmt.Errorf("%d objects of a list, the last one since %w", l.rejected, l.refused.Last()))
}

// take compares an object with the cached one of its name. Only the reflector
// changes the objects of a store, and this is its goroutine, so that reading
// the store needs no lock.
func (l *listing) take(o *Object) error {
	r := l.reflector
	if earlier := r.informer.mu.staged.Of(o); earlier != nil {
		if ordering.Newer(o, earlier) { // it changed while the list was streamed
			return l.keep(earlier, o)
		}
		l.repeats++
		return nil
	}

	old := r.informer.mu.store.Of(o)
	_, seen := l.seen[old]
	switch {
	case old == nil:
	case seen && !ordering.Newer(o, old):
		l.repeats++
		return nil
	case ordering.SameState(old, o):
		l.seen[old] = struct{}{}
		return nil
	case !r.at.replace && goesBack(old, o, ordering.Opaque(r.at.reach)):
		l.contradict(fmt.Errorf("%s %s: listed at %s, cached at %s",
			r.informer.key, store.NameOf(o), o.GetResourceVersion(), old.GetResourceVersion()))
	}

	delete(l.seen, old)

	return l.keep(nil, o)
}

// keep stages an object, unless it exceeds the budget.
func (l *listing) keep(earlier, o *Object) error {
	if err := l.informer.reserve(earlier, o, l.reflector.options.MaxClusterBytes); err != nil {
		return l.pass(o, err)
	}
	l.change(func(staged *store.Store) { staged.Put(earlier, o, nil) })
	return nil
}

// pass skips an object that does not fit beside the cached ones. The end of the
// list makes room by removing the objects that the list lacks. Otherwise an
// informer that is full could never list again, whatever was deleted, or if its
// own history is over. No more is skipped than may be cached.
func (l *listing) pass(o *Object, err error) error {
	r := l.reflector
	if l.weight += int64(o.Size()); !r.informer.relation().synced || l.weight > r.options.MaxClusterBytes {
		return err
	}
	l.cramped = err
	old := r.informer.mu.store.Of(o)
	if old != nil && (!l.apart() || old.GetUID() == o.GetUID()) {
		l.seen[old] = struct{}{}
	} else {
		l.passed++
	}
	return nil
}

// drop removes an object that was deleted while the list was streamed. ends
// reports whether the delete ends a state of it.
func (l *listing) drop(name types.NamespacedName, ends func(*Object) bool) {
	i := l.informer
	if o := i.mu.staged.Get(name.Namespace, name.Name); o != nil && ends(o) {
		l.change(func(staged *store.Store) { staged.Remove(o) })
	}
	if old := i.mu.store.Get(name.Namespace, name.Name); old != nil && ends(old) {
		delete(l.seen, old)
	}
}

// apart reports whether the list is known to be of another history than the
// store.
func (l *listing) apart() bool { return l.reflector.at.replace || l.broken != nil }

// contradict records the first proof that the store is of another history.
func (l *listing) contradict(proof error) {
	if l.broken == nil {
		l.broken = fmt.Errorf("%w: %w", ErrHistory, proof)
	}
}

// goesBack reports whether a listed object cannot follow the cached one of its
// name in one history: it is older, or it is another object and no newer. If
// the versions of lists are opaque, those of two objects cannot be compared,
// and two objects without a version have the same one.
func goesBack(cached, listed *Object, opaque bool) bool {
	if listed.GetUID() == cached.GetUID() {
		return ordering.Older(listed, cached)
	}
	rv := listed.GetResourceVersion()
	return !opaque && !ordering.Versionless(rv) && (ordering.Older(listed, cached) || rv == cached.GetResourceVersion())
}

// maxLagging is how long lists may be older than what was shown before they
// began, if no informer that follows its server has shown it. Nothing else
// would end that if the server was restored since.
const maxLagging = 30 * time.Second

// floor is the highest version of a resource that informers have shown before a
// list began. An API server's list is never older, but one of several servers behind
// a balancer, or a gateway with a cache of its own, may lag: its list would
// bring back what reads have shown as deleted.
type floor struct {
	shown    string // by any informer, also one that has ended
	followed string // by an informer that follows its server
}

// shown returns the floor of a list that is about to begin. Which informers
// follow their server matters only once lists lag.
func (l *listing) shown() (f floor) {
	r, i := l.reflector, l.informer
	f.shown = i.siblings.beginList(i, r.server.epoch)
	if r.failures.lagging.IsZero() {
		return f
	}
	for _, other := range i.siblings.others(i) {
		other.mu.RLock()
		if other.mu.synced && other.mu.doubt == nil && other.mu.epoch == r.server.epoch && other.mu.follows() {
			f.followed = ordering.Further(f.followed, other.mu.shownAt())
		}
		other.mu.RUnlock()
	}

	return f
}

// lags returns an error if a list at a version is older than what was shown
// before it began. The list is repeated then. Versions of another history, and
// those that each informer counts, are not comparable.
func (l *listing) lags(rv string) error {
	r := l.reflector
	if !ordering.Behind(rv, l.floor.shown) || l.apart() || r.options.countsVersions(r.informer.key) {
		r.failures.lagging = time.Time{}
		return nil
	}
	if r.failures.lagging.IsZero() {
		r.failures.lagging = time.Now()
	}
	if time.Since(r.failures.lagging) >= maxLagging && !ordering.Behind(rv, l.floor.followed) {
		r.informer.siblings.forgetShown()
		return nil
	}
	return fmt.Errorf("%s: %w: list is at %s, and %s was shown before", r.informer.key, errLags, rv, l.floor.shown)
}
