// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
	"github.com/fleetcache/fleetcache/internal/goroutine"
)

// ClusterMapFunc returns the requests to reconcile because of a change of a
// cluster. It is called by one goroutine at a time for each controller. A panic
// is counted by Failures and loses only the event.
type ClusterMapFunc[request comparable] func(ctx context.Context, event ClusterEvent) []request

// ClusterSourceOptions configure which events a cluster source delivers, and
// how.
type ClusterSourceOptions struct {
	// Clusters selects clusters. Nil means all.
	Clusters func(cluster client.ObjectKey) bool
	// Types are the types of events to deliver. Empty means all.
	Types []ClusterEventType
	// Filter reports whether to deliver an event. Nil delivers all.
	Filter func(event ClusterEvent) bool
	// Debounce delays a request until no further event has led to it for that
	// long. Zero means that it is queued at once.
	Debounce time.Duration
	// MaxDelay is the longest that a request is delayed, however steady the
	// events are. Defaults to ten times Debounce.
	MaxDelay time.Duration
}

// TypedClusterSource is a source of a controller, and the handle on it. Stop
// and Close remove it from a running controller; the controller's Watch can add
// another one at any time. All methods may be called from many goroutines.
type TypedClusterSource[request comparable] struct {
	cc       *ClusterCache
	options  ClusterSourceOptions
	mapping  atomic.Pointer[ClusterMapFunc[request]]
	failures atomic.Int64

	mu      sync.Mutex // protects what follows; taken before the locks of cluster events and the debounce queue's
	runs    map[*clusterRun[request]]struct{}
	paused  bool
	stopped bool
}

// clusterRun is one run of a source, for one controller.
type clusterRun[request comparable] struct {
	ctx        context.Context //nolint:containedctx // the controller's life, cut short by Stop
	cancel     context.CancelFunc
	subscriber *clusterSubscriber
	debounced  *debounce.Queue[request]
	done       chan struct{}
	worker     atomic.Uint64 // the goroutine of the last call
}

var _ source.TypedSource[string] = (*TypedClusterSource[string])(nil)

// ClusterSource returns a source of a controller, for its WatchesRawSource. It
// begins with the state of every known cluster, at low priority where the queue
// has priorities, and continues with their changes. Starting it does not block.
// It ends with the controller, and another controller can start it again. If
// several options are given, the last non-zero value of each field counts.
func ClusterSource[request comparable](cc *ClusterCache, mapping ClusterMapFunc[request], opts ...ClusterSourceOptions) *TypedClusterSource[request] {
	s := &TypedClusterSource[request]{cc: cc, runs: map[*clusterRun[request]]struct{}{}}
	for _, o := range opts {
		if o.Clusters != nil {
			s.options.Clusters = o.Clusters
		}
		if o.Filter != nil {
			s.options.Filter = o.Filter
		}
		if len(o.Types) > 0 {
			s.options.Types = slices.Clone(o.Types)
		}
		s.options.Debounce = cmp.Or(o.Debounce, s.options.Debounce)
		s.options.MaxDelay = cmp.Or(o.MaxDelay, s.options.MaxDelay)
	}

	s.SetMapping(mapping)
	return s
}

// Start implements source.TypedSource. It does not block. After Stop it does
// nothing. The error is an [*OptionError] or [ErrClosed].
func (s *TypedClusterSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	s.cc.used()
	debounced, err := newDebounce(s.cc, queue, s.options.Debounce, s.options.MaxDelay)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.stopped {
		return nil
	}
	r := &clusterRun[request]{debounced: debounced, done: make(chan struct{}), subscriber: s.cc.events.subscribe()}
	r.ctx, r.cancel = context.WithCancel(ctx)
	if s.paused {
		s.pause(r, true)
	}
	if !s.cc.spawn(func() { s.run(r) }) {
		s.cc.events.unsubscribe(r.subscriber)
		r.cancel()
		return ErrClosed
	}
	s.runs[r] = struct{}{}

	return nil
}

func (s *TypedClusterSource[request]) run(r *clusterRun[request]) {
	defer close(r.done)
	defer s.ended(r)
	for {
		e, ok := r.subscriber.next(r.ctx)
		if !ok {
			return
		}
		s.handle(r, e)
	}
}

func (s *TypedClusterSource[request]) ended(r *clusterRun[request]) {
	r.cancel()
	s.cc.events.unsubscribe(r.subscriber)
	r.debounced.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, r)
}

func (s *TypedClusterSource[request]) handle(r *clusterRun[request], e ClusterEvent) {
	err := s.cc.calls.Call("mapping or filter of a ClusterSource", func() error {
		r.worker.Store(goroutine.ID())
		if !s.wants(e) {
			return nil
		}
		for _, q := range (*s.mapping.Load())(r.ctx, e) {
			r.debounced.Add(q, e.Initial)
		}
		return nil
	}, "cluster", clusterName(e.Cluster), "event", string(e.Type))
	if err != nil {
		s.failures.Add(1)
	}
}

func (s *TypedClusterSource[request]) wants(e ClusterEvent) bool {
	return (len(s.options.Types) == 0 || slices.Contains(s.options.Types, e.Type)) &&
		(s.options.Clusters == nil || s.options.Clusters(e.Cluster)) &&
		(s.options.Filter == nil || s.options.Filter(e))
}

// SetMapping replaces the mapping function. A call of the old one that has
// begun continues.
func (s *TypedClusterSource[request]) SetMapping(mapping ClusterMapFunc[request]) {
	s.mapping.Store(&mapping)
}

// Pause stops the delivery after the event that the mapping function is
// processing; later events are merged. It can be called before Start. It does
// not wait.
func (s *TypedClusterSource[request]) Pause() { s.setPaused(true) }

// Continue ends a pause: it delivers the merged events of each cluster that are
// still valid.
func (s *TypedClusterSource[request]) Continue() { s.setPaused(false) }

func (s *TypedClusterSource[request]) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	for r := range s.runs {
		s.pause(r, paused)
	}
}

func (s *TypedClusterSource[request]) pause(r *clusterRun[request], paused bool) {
	s.cc.events.pause(r.subscriber, paused)
	if paused {
		r.debounced.Pause()
	} else {
		r.debounced.Proceed()
	}
}

// Failures returns how many events could not be mapped, because the mapping
// function or a filter panicked. Each is logged.
func (s *TypedClusterSource[request]) Failures() int64 { return s.failures.Load() }

// Stop removes the source from its controllers. Delayed requests (Debounce) are
// queued at once. It is idempotent and does not wait: a call of the mapping
// function that has begun continues.
func (s *TypedClusterSource[request]) Stop() { s.stop() }

func (s *TypedClusterSource[request]) stop() []*clusterRun[request] {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.stopped = true
	var runs []*clusterRun[request]
	for r := range s.runs {
		r.cancel()
		runs = append(runs, r)
	}

	return runs
}

// Close is Stop, and then waits until no mapping function is being called, or
// until ctx ends. A Close called by a mapping function does not wait for that
// call.
func (s *TypedClusterSource[request]) Close(ctx context.Context) error {
	for _, r := range s.stop() {
		if r.worker.Load() == goroutine.ID() {
			continue
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}

	return nil
}

// String names the source in the controller's log.
func (s *TypedClusterSource[request]) String() string { return "fleetcache cluster source" }
