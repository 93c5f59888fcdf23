// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Watch is one user's reference to the informer of a kind in a cluster. Until
// it is released, the informer runs whenever the cluster is connected, across
// disconnects, changed credentials, and a definition that is missing for a
// while. All methods may be called from many goroutines.
type Watch struct {
	c        *cluster
	want     *wants.Want
	once     sync.Once
	released chan struct{}

	mu            sync.Mutex // protects registrations; nothing else is locked under it
	registrations map[*Registration]struct{}
}

// watch takes a reference to a selection of a cluster, and makes that known.
func (s *clusters) watch(key client.ObjectKey, id wants.Selection) (*Watch, error) {
	c, w, err := s.acquire(key, id, false)
	if err != nil {
		return nil, err
	}
	return newWatch(c, w), nil
}

// newWatch returns a Watch to which the caller's reference belongs from now on.
func newWatch(c *cluster, want *wants.Want) *Watch {
	return &Watch{c: c, want: want, released: make(chan struct{})}
}

// Cluster returns the cluster.
func (w *Watch) Cluster() client.ObjectKey { return w.c.key }

// GVK returns the kind.
func (w *Watch) GVK() schema.GroupVersionKind { return w.want.GVK }

// Release gives up the reference. It is idempotent and does not wait. The last
// release stops the informer after Options.Informers.Linger. The cluster stays
// known.
func (w *Watch) Release() { w.end((*informerpool.Lease).Release) }

// ReleaseCluster is Release, and then disconnects and forgets the cluster
// unless it is engaged, has another watch, or is listed by the resolver while
// Options.Discover is set.
func (w *Watch) ReleaseCluster() {
	if w.end((*informerpool.Lease).Release) {
		w.c.leave()
	}
}

// drop is ReleaseCluster for a watch that was kept long enough: the informer
// does not linger.
func (w *Watch) drop() {
	if w.end((*informerpool.Lease).ReleaseNow) {
		w.c.leave()
	}
}

// retire is Release for a cluster that is gone: handlers receive the deletes
// afterwards.
func (w *Watch) retire() { w.end((*informerpool.Lease).Retire) }

// end gives up the reference, and ends the last one's lease in one of the ways
// that there are. It returns false if that was done before.
func (w *Watch) end(lease func(*informerpool.Lease)) (first bool) {
	w.once.Do(func() {
		first = true
		close(w.released)
		w.mu.Lock()
		registrations := w.registrations // to which none is added any more
		w.registrations = nil
		w.mu.Unlock()

		for r := range registrations {
			r.stop()
		}
		w.c.wants.Release(w.want, lease)
	})
	return first
}

// Close is Release, and then waits until no handler of the watch is being
// called, but for one that calls Close, or until ctx ends. If this was the last
// reference, it waits for all handlers of the informer's events.
func (w *Watch) Close(ctx context.Context) error {
	lease, _, _ := w.c.wants.Look(w.want)
	w.mu.Lock()
	registrations := slices.Collect(maps.Keys(w.registrations))
	w.mu.Unlock()

	w.Release()
	for _, r := range registrations {
		if err := r.sub.Close(ctx); err != nil {
			return err
		}
	}
	if lease == nil || w.c.wants.References(w.want) > 0 {
		return nil
	}
	return lease.Close(ctx)
}

// HasSynced reports whether the watch is synced: the cache would answer a read
// of what it selects now, in mode [CacheOnly] and without options. The cluster
// is connected, the informer has listed, and nothing says since that the cache
// differs from the server. A watch may cease to be synced, and be again.
//
// Objects that the cache refused (Informers.MaxObjectBytes), and states that
// another watch has shown to be old, are read from the API server all the same.
func (w *Watch) HasSynced() bool { return w.gone() == nil && w.c.unanswered(w.want) == nil }

// WaitForSync waits until the watch is synced, as HasSynced reports, also while
// the cluster is not connected. It returns early, with the cause, when waiting
// is known not to help: the server refuses (apierrors.IsForbidden), does not
// serve the kind (meta.IsNoMatchError, [ErrNotWatchable]), or the objects are
// over a limit ([ErrBudget]); the informer keeps trying. Or the watch was
// released ([ErrReleased]), or the cache closed ([ErrClosed]).
//
// The error is a [*ClusterError]. When ctx ends, it wraps the cause of that,
// and what was still missing, such as [ErrNotConnected] with its cause.
func (w *Watch) WaitForSync(ctx context.Context) error { return w.wrap("sync", w.sync(ctx)) }

func (w *Watch) sync(ctx context.Context) error {
	for {
		v := w.c.conn.View()
		lease, changed, _ := w.c.wants.Look(w.want)
		why := w.c.unanswered(w.want)
		if gone := w.gone(); gone != nil {
			return gone
		}
		switch {
		case why == nil:
			return nil
		case !v.Connected, !w.c.conn.View().Connected:
			if err := w.pause(ctx, v.Up, why); err != nil {
				return err
			}
		case lease == nil && needsMore(why):
			return why
		case lease == nil:
			if err := w.pause(ctx, changed, why); err != nil {
				return err
			}
		default:
			if err := w.read(ctx, lease); err != nil {
				return err
			}
		}
	}
}

// read waits until the informer of a connected cluster can be read, or the
// cluster is not connected any more. The error is that of an informer that
// waiting does not help, or of the end.
func (w *Watch) read(ctx context.Context, lease *informerpool.Lease) error {
	var why, refused error
	err := lease.WaitFor(ctx, func() bool {
		// Its end by the next sign of life alone is reported to those who ask.
		_ = lease.TrustEnds(w.c.fleet.options.StaleAfter)
		refused = lease.Refusal()
		why = w.c.unanswered(w.want)
		return why == nil || refused != nil || !w.c.conn.View().Connected
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return endedAt(ctx, why)
	case err != nil:
		return translate(err)
	case why != nil && w.c.conn.View().Connected:
		return translate(refused)
	}

	return nil
}

// pause waits until changed is closed, or for the end. why is what was missing
// before; the error names what is missing at the end.
func (w *Watch) pause(ctx context.Context, changed <-chan struct{}, why error) error {
	select {
	case <-changed:
	case <-w.released:
	case <-w.c.fleet.ctx.Done():
	case <-ctx.Done():
		if now := w.c.unanswered(w.want); now != nil {
			why = now
		}
		return endedAt(ctx, why)
	}
	return nil
}

// endedAt returns the error of a wait that ctx has ended.
func endedAt(ctx context.Context, why error) error {
	if why == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), why)
}

// needsMore reports whether an error of a want without a lease ends by more
// than waiting.
func needsMore(err error) bool {
	_, bad := errors.AsType[*informerpool.KeyError](err)
	return bad || meta.IsNoMatchError(err) || errors.Is(err, ErrNotWatchable)
}

// WaitForVersion waits until the cache shows the given resourceVersion, such as
// the one that a write returned, or a later one.
func (w *Watch) WaitForVersion(ctx context.Context, resourceVersion string) error {
	lease, err := w.await(ctx)
	if err == nil {
		err = translate(lease.WaitForVersion(ctx, resourceVersion))
	}
	return w.wrap("wait for version", err)
}

// await waits until the want has a lease on an informer, and returns it.
func (w *Watch) await(ctx context.Context) (*informerpool.Lease, error) {
	for {
		lease, changed, err := w.c.wants.Look(w.want)
		if gone := w.gone(); gone != nil {
			return nil, gone
		}
		if lease != nil {
			return lease, nil
		}
		if needsMore(err) {
			return nil, err
		}
		if err == nil && !w.c.conn.View().Connected {
			err = w.c.WhyNot()
		}
		if err := w.pause(ctx, changed, err); err != nil {
			return nil, err
		}
	}
}

func (w *Watch) gone() error {
	select {
	case <-w.released:
		return ErrReleased
	case <-w.c.fleet.ctx.Done():
		return ErrClosed
	default:
		return nil
	}
}

// waits reports whether nothing is known of the watch yet.
func (w *Watch) waits() bool {
	synced, err := w.c.standing(w.want)
	return !synced && (errors.Is(err, ErrNotSynced) || errors.Is(err, ErrConnecting))
}

// unlisten ends the delivery of the watch's objects to a subscription.
func (w *Watch) unlisten(sub *informerpool.Subscription) {
	w.c.wants.Unlisten(w.want, sub)
	if lease, _, _ := w.c.wants.Look(w.want); lease != nil {
		sub.Remove(lease)
	}
}

func (w *Watch) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return clusterError(op, w.c.key, w.want.GVK, err)
}

// Status returns a snapshot of the watch.
func (w *Watch) Status() status.Watch { return w.c.watchStatus(w.want) }

// Registration is a handler of the events of one [Watch].
type Registration struct {
	w      *Watch
	sub    *informerpool.Subscription
	synced chan struct{}
	once   sync.Once
}

var errNilHandler = errors.New("handler is nil")

// AddEventHandler delivers every object of the watch to a handler, marked as
// initial, and then its changes, without a gap, until the registration or the
// watch is released. Calls come one at a time; while the handler is busy, the
// events of an object are merged. The error is [ErrReleased] or [ErrClosed], or
// that the handler is nil.
func (w *Watch) AddEventHandler(h informerpool.Handler) (*Registration, error) {
	if h == nil {
		return nil, w.wrap("handle events", errNilHandler)
	}
	r := &Registration{w: w, synced: make(chan struct{})}
	r.sub = w.c.fleet.pool.Subscribe(&registered{Handler: h, r: r})
	if !w.keep(r) {
		r.sub.Stop()
		return nil, w.wrap("handle events", w.gone())
	}
	w.c.wants.Listen(w.want, r.sub)

	return r, nil
}

// registered is a handler that notifies its registration when every object that
// was there has been delivered.
type registered struct {
	informerpool.Handler

	r *Registration
}

// Handle implements informerpool.Handler.
func (h *registered) Handle(e informerpool.Event) {
	defer h.r.w.c.fleet.calls.Enter("handler of a Watch")()
	h.Handler.Handle(e)
}

// Brief implements informerpool.BriefHandler.
func (h *registered) Brief() bool {
	inner, ok := h.Handler.(informerpool.BriefHandler)
	return ok && inner.Brief()
}

// Replayed implements informerpool.ReplayHandler.
func (h *registered) Replayed(key informerpool.Key) {
	if inner, ok := h.Handler.(informerpool.ReplayHandler); ok {
		inner.Replayed(key)
	}
	h.r.once.Do(func() { close(h.r.synced) })
}

// Synced returns a channel that is closed once every object that was there has
// been delivered to the handler. It stays open if the registration is released
// before.
func (r *Registration) Synced() <-chan struct{} { return r.synced }

// HasSynced reports whether every object that was there has been delivered to
// the handler.
func (r *Registration) HasSynced() bool {
	select {
	case <-r.synced:
		return true
	default:
		return false
	}
}

// Resync delivers every object to the handler once more, as updates that are
// marked as a resync and are no change. It does not wait.
func (r *Registration) Resync() {
	if lease, _, _ := r.w.c.wants.Look(r.w.want); lease != nil {
		r.sub.Resync(lease)
	}
}

// Release ends the registration. It is idempotent and does not wait: a call of
// the handler that has begun continues.
func (r *Registration) Release() {
	r.w.mu.Lock()
	delete(r.w.registrations, r)
	r.w.mu.Unlock()

	r.stop()
}

// Close is Release, and then waits for a running call of the handler, or until
// ctx ends. A Close called by the handler itself does not wait.
func (r *Registration) Close(ctx context.Context) error {
	r.Release()
	return r.sub.Close(ctx)
}

func (r *Registration) stop() {
	r.w.c.wants.Unlisten(r.w.want, r.sub)
	r.sub.Stop()
}

// keep records a registration, so that it ends with the watch. It returns false
// if the watch has ended.
func (w *Watch) keep(r *Registration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.gone() != nil {
		return false
	}
	if w.registrations == nil {
		w.registrations = map[*Registration]struct{}{}
	}
	w.registrations[r] = struct{}{}

	return true
}
