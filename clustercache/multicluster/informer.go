// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// informer is a view of the one informer of a kind in a cluster, in one
// representation.
//
//	informer (one per representation) --> registration (one per handler) --> Watch
//	                                                                 |
//	                     the kind's informer in the ClusterCache <---+
//
// It holds nothing by itself: each handler holds a watch. It embeds no other
// type, so that a method that the interface gains fails to compile.
type informer struct {
	c              *remoteCache
	representation representation

	mu       sync.Mutex // protects the fields below; no other lock is taken under it
	stopped  bool
	handlers map[*registration]struct{}
	synced   *syncChecker // made by the first HasSyncedChecker
}

var _ cache.Informer = (*informer)(nil)

// AddEventHandler implements cache.Informer. It returns at once. The handler
// receives objects in the representation that the informer was requested for,
// and may keep and change them; a slow handler receives only the newest states,
// and delays no other handler.
func (i *informer) AddEventHandler(
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer. It is
// AddEventHandler, and in addition every object is delivered to the handler
// once more each period; zero means never.
func (i *informer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements cache.Informer. It is AddEventHandler.
// The option Logger is not used.
func (i *informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, o toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if h == nil {
		return nil, i.c.fail("handle events", i.representation.gvk, errNilHandler)
	}
	if i.IsStopped() {
		return nil, i.errStopped()
	}
	r := newRegistration(i)
	if err := r.connect(h); err != nil {
		return nil, err
	}
	i.mu.Lock()
	stopped := i.stopped // it may have been stopped meanwhile
	if !stopped {
		i.handlers[r] = struct{}{}
	}
	i.mu.Unlock()

	if stopped {
		r.release()
		return nil, i.errStopped()
	}
	period := i.c.s.options.SyncPeriod
	if o.ResyncPeriod != nil {
		period = *o.ResyncPeriod
	}
	r.runTimers(i.c.s.options.SyncTimeout, period)

	return r, nil
}

func (i *informer) errStopped() error {
	return i.c.fail("handle events", i.representation.gvk, clustercache.ErrReleased)
}

// RemoveEventHandler implements cache.Informer. Removing the last handler
// releases the watch of the kind. It is idempotent and does not wait for a
// running call.
func (i *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok || r.i != i {
		return fmt.Errorf("%T is no handler of this informer", handle)
	}
	i.mu.Lock()
	delete(i.handlers, r)
	i.mu.Unlock()

	r.release()

	return nil
}

// AddIndexers implements cache.Informer. The computed values can be selected by
// client.MatchingFields with the name of the index, also in a list of one
// namespace. The functions receive objects in the informer's representation.
// While one of them returns an error for an object, lists by its index fail with
// a [clustercache.IndexError].
func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	for name, index := range indexers {
		err := i.c.index(fieldIndex{
			representation: i.representation,
			field:          name,
			values: func(o client.Object) []string {
				values, err := index(o)
				if err != nil {
					panic(err) // which the index reports; client-go's does not survive it
				}
				return values
			},
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// HasSynced implements cache.Informer. It reports whether reads of the kind are
// answered from the cache now: unlike client-go's, it is false again while the
// cluster is not connected. Without a handler, calling it keeps an informer of
// the kind alive, as reading does.
func (i *informer) HasSynced() bool {
	if known(i.c.cc, i.c.key) != nil {
		return false
	}
	if i.c.reads() == clustercache.AutoWatch && !i.hasHandlers() {
		_, synced, err := i.c.cc.Cluster(i.c.key).WatchAndRead(context.Background(), i.representation.gvk)
		return err == nil && synced
	}
	// This watch shares the informer of the handlers' watches; without any, the
	// informer lingers until the next call.
	w, err := i.c.cc.Cluster(i.c.key).Watch(context.Background(), clustercache.Kind(i.representation.gvk))
	if err != nil {
		return false
	}
	defer w.Release()

	return w.HasSynced()
}

func (i *informer) hasHandlers() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.handlers) > 0
}

// wait waits until HasSynced.
func (i *informer) wait(ctx context.Context) error {
	if i.c.reads() == clustercache.AutoWatch {
		if _, _, err := i.c.cc.Cluster(i.c.key).WatchAndRead(ctx, i.representation.gvk); err != nil {
			return ended(ctx, err)
		}
	}
	return i.c.waitSynced(ctx, i.representation.gvk)
}

// HasSyncedChecker implements cache.Informer. It holds an informer of the kind
// until the first list is complete.
func (i *informer) HasSyncedChecker() toolscache.DoneChecker {
	i.mu.Lock()
	c := i.synced
	fresh := c == nil
	if fresh {
		c = &syncChecker{name: "fleetcache informer " + i.representation.gvk.String(), done: make(chan struct{})}
		i.synced = c
	}
	stopped := i.stopped
	i.mu.Unlock()

	if !fresh || stopped {
		return c
	}
	w, err := i.c.cc.Cluster(i.c.key).Watch(context.Background(), clustercache.Kind(i.representation.gvk))
	if err != nil {
		return c
	}
	if _, err := w.AddEventHandler(&firstList{done: func() { close(c.done); w.Release() }}); err != nil {
		w.Release()
		return c
	}
	i.mu.Lock()
	c.release = w.Release
	stopped = i.stopped
	i.mu.Unlock()

	if stopped { // stop did not see the watch
		w.Release()
	}

	return c
}

// firstList is a handler that only waits for the end of the first list.
type firstList struct{ done func() }

// Handle implements informerpool.Handler.
func (*firstList) Handle(informerpool.Event) {}

// Replayed implements informerpool.ReplayHandler.
func (h *firstList) Replayed(informerpool.Key) { h.done() }

// IsStopped implements cache.Informer. It is true after RemoveInformer, after
// the removal of the cluster, and after the end of its Start.
func (i *informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}

func (i *informer) stop() {
	i.mu.Lock()
	i.stopped = true
	handlers := i.handlers
	i.handlers = map[*registration]struct{}{}
	var release func()
	if i.synced != nil {
		release = i.synced.release
	}
	i.mu.Unlock()

	for r := range handlers {
		r.release()
	}
	if release != nil {
		release()
	}
}

// syncChecker reports whether something has synced.
type syncChecker struct {
	name    string
	done    chan struct{}
	release func() // protected by its owner's lock
}

var _ toolscache.DoneChecker = (*syncChecker)(nil)

// Name implements cache.DoneChecker.
func (c *syncChecker) Name() string { return c.name }

// Done implements cache.DoneChecker.
func (c *syncChecker) Done() <-chan struct{} { return c.done }
