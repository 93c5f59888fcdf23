// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"sync"

	"github.com/fleetcache/fleetcache/informerpool"
)

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
// watch is released. It returns at once, whatever the state of the cluster:
// events begin when there are any. While the cluster is disconnected no event
// is delivered; afterwards, everything that changed meanwhile is. Calls come
// one at a time. A slow handler delays no other handler; the events of an
// object are merged meanwhile. The error is [ErrReleased] or [ErrClosed], or
// that the handler is nil.
func (w *Watch) AddEventHandler(h informerpool.Handler) (*Registration, error) {
	if h == nil {
		return nil, w.wrap("handle events", errNilHandler)
	}
	r := &Registration{w: w, synced: make(chan struct{})}
	r.sub = w.c.cc.pool.Subscribe(&registered{Handler: h, r: r})
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
	defer h.r.w.c.cc.calls.Enter("handler of a Watch")()
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

// stopRegistrations ends all registrations. The watch is already marked as
// released, so none is added.
func (w *Watch) stopRegistrations() {
	w.mu.Lock()
	rs := w.registrations
	w.registrations = nil
	w.mu.Unlock()

	for r := range rs {
		r.stop()
	}
}
