// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// registration is one handler of an informer, which holds the watch.
type registration struct {
	i       *informer
	watch   *clustercache.Watch
	events  *clustercache.Registration
	checker *syncChecker
	once    sync.Once // closes checker.done

	mu       sync.Mutex // protects the fields below; no other lock is taken under it
	released bool
	late     *time.Timer
	resync   *time.Timer
}

var _ toolscache.ResourceEventHandlerRegistration = (*registration)(nil)

func newRegistration(i *informer) *registration {
	return &registration{
		i: i,
		checker: &syncChecker{
			name: "fleetcache handler of " + i.representation.gvk.String(),
			done: make(chan struct{}),
		},
	}
}

// connect acquires the watch.
func (r *registration) connect(h toolscache.ResourceEventHandler) error {
	w, err := r.i.c.cc.Cluster(r.i.c.key).Watch(context.Background(), clustercache.Kind(r.i.representation.gvk))
	if err != nil {
		return err
	}
	r.watch = w
	r.events, err = w.AddEventHandler(&handler{
		to:             h,
		representation: r.i.representation,
		cluster:        clustername.Of(r.i.c.key),
		log:            r.i.c.s.options.Logger,
		misfits:        &r.i.c.s.misfits,
		replayed:       r.settle,
		gone:           r.i.c.gone,
	})
	if err != nil {
		w.Release()
	}

	return err
}

// runTimers starts the timers: the end of the wait for the first list, and
// resyncs.
func (r *registration) runTimers(giveUp, period time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.released {
		return
	}
	if giveUp > 0 && !r.HasSynced() {
		r.late = time.AfterFunc(giveUp, r.settle)
	}
	if period > 0 {
		r.resync = time.AfterFunc(period, func() { r.resyncNow(period) })
	}
}

func (r *registration) resyncNow(period time.Duration) {
	r.events.Resync()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.released {
		r.resync.Reset(period)
	}
}

// settle makes the registration count as synced.
func (r *registration) settle() { r.once.Do(func() { close(r.checker.done) }) }

// HasSynced reports whether every object of the first list was delivered to the
// handler, or Options.SyncTimeout has passed.
func (r *registration) HasSynced() bool {
	select {
	case <-r.checker.done:
		return true
	default:
		return false
	}
}

// HasSyncedChecker completes when HasSynced does.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker { return r.checker }

// release ends the registration and releases the watch. It is idempotent and
// does not wait.
func (r *registration) release() {
	r.mu.Lock()
	r.released = true
	for _, t := range []*time.Timer{r.late, r.resync} {
		if t != nil {
			t.Stop()
		}
	}
	r.mu.Unlock()

	r.watch.Release()
}
