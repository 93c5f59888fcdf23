// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/goroutine"
)

// clusterSubscription delivers the events of clusters, on a goroutine that
// Start of the ClusterCache waits for.
type clusterSubscription struct {
	cc      *ClusterCache
	handler func(ClusterEvent)
	ctx     context.Context //nolint:containedctx // ended by stop
	cancel  context.CancelFunc
	failed  atomic.Int64  // calls of the handler that panicked
	worker  atomic.Uint64 // the goroutine of the last call
	done    chan struct{} // closed once the handler is called no more

	mu struct { // taken before the locks of the broadcaster
		sync.Mutex

		queue  *clusterSubscriber // nil before start
		paused bool
	}
}

func newClusterSubscription(cc *ClusterCache, handler func(ClusterEvent)) *clusterSubscription {
	s := &clusterSubscription{cc: cc, handler: handler, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *clusterSubscription) start() {
	s.cc.used()
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ctx.Err() != nil || s.mu.queue != nil {
		return
	}
	s.mu.queue = s.cc.events.subscribe()
	if s.mu.paused { // before there is anything to deliver
		s.cc.events.pause(s.mu.queue, true)
	}
	queue := s.mu.queue
	if !s.cc.spawn(func() { s.run(queue) }) {
		s.cc.events.unsubscribe(queue)
		close(s.done)
	}
}

func (s *clusterSubscription) run(queue *clusterSubscriber) {
	defer close(s.done)
	defer s.cc.events.unsubscribe(queue)
	for {
		e, ok := queue.next(s.ctx)
		if !ok {
			return
		}
		s.handle(e)
	}
}

func (s *clusterSubscription) handle(e ClusterEvent) {
	err := s.cc.calls.Call("handler of cluster events", func() error {
		s.worker.Store(goroutine.ID())
		s.handler(e)
		return nil
	}, "cluster", clusterName(e.Cluster), "event", string(e.Type))
	if err != nil {
		s.failed.Add(1)
	}
}

func (s *clusterSubscription) stop() { s.cancel() }

func (s *clusterSubscription) wait(ctx context.Context) error {
	s.mu.Lock()
	started := s.mu.queue != nil
	s.mu.Unlock()

	if !started || s.worker.Load() == goroutine.ID() {
		return nil // start does nothing after stop
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *clusterSubscription) pause(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.paused = paused
	if s.mu.queue != nil {
		s.cc.events.pause(s.mu.queue, paused)
	}
}

func (s *clusterSubscription) trigger(cluster client.ObjectKey, _ schema.GroupVersionKind, _ client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.queue != nil {
		s.cc.events.replay(s.mu.queue, cluster)
	}
}

func (s *clusterSubscription) triggerAll() {
	for _, c := range s.cc.all() {
		s.trigger(c.key, schema.GroupVersionKind{}, client.ObjectKey{})
	}
}

func (s *clusterSubscription) failures() int64 { return s.failed.Load() }
