// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/levels"
	"github.com/fleetcache/fleetcache/internal/callback"
)

// levelSubscription delivers an event for each key that has changed, on a
// goroutine that Start of the ClusterCache waits for. An event has the state
// at its delivery.
type levelSubscription[K comparable] struct {
	cc *ClusterCache
	levelConfig[K]

	queue  *levels.Queue[K]
	ctx    context.Context //nolint:containedctx // ended by stop
	cancel context.CancelFunc
	failed atomic.Int64  // calls of the handler that panicked
	worker atomic.Uint64 // the goroutine of the last call
	done   chan struct{} // closed once the handler is called no more

	mu      sync.Mutex // protects started; nothing else is locked under it
	started bool
}

// levelConfig is what differs between the subscriptions to levels.
type levelConfig[K comparable] struct {
	callback string // for logs
	hub      *levels.Hub[K]
	deliver  func(key K, initial bool)
	// named returns the keys that Trigger names, and all returns all of them.
	named func(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) []K
	all   func() []K
	// listen and unlisten connect the queue to further changes, and disconnect
	// it. They may be nil.
	listen, unlisten func()
}

func newLevelSubscription[K comparable](cc *ClusterCache, config levelConfig[K]) *levelSubscription[K] {
	s := &levelSubscription[K]{
		cc:          cc,
		levelConfig: config,
		queue:       levels.NewQueue[K](),
		done:        make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(cc.ctx)
	return s
}

func (s *levelSubscription[K]) start() {
	s.cc.used()
	s.mu.Lock()
	again := s.started || s.ctx.Err() != nil
	s.started = s.started || !again
	s.mu.Unlock()

	if again {
		return
	}
	// What changes during this call is put into the queue, perhaps before its
	// initial event: then that is none any more.
	s.hub.Subscribe(s.queue)
	if s.listen != nil {
		s.listen()
	}
	s.triggerAll()
	for _, c := range s.cc.all() {
		c.wants.Observe()
	}

	if !s.cc.spawn(s.run) {
		s.end()
	}
}

func (s *levelSubscription[K]) run() {
	defer s.end()
	for {
		key, initial, ok := s.queue.Next(s.ctx)
		if !ok {
			return
		}
		err := s.cc.calls.Call(s.callback, func() error {
			s.worker.Store(callback.Goroutine())
			s.deliver(key, initial)
			return nil
		})
		if err != nil {
			s.failed.Add(1)
		}
	}
}

// end is called once the handler is called no more.
func (s *levelSubscription[K]) end() {
	s.hub.Unsubscribe(s.queue)
	if s.unlisten != nil {
		s.unlisten()
	}
	close(s.done)
}

func (s *levelSubscription[K]) stop() { s.cancel() }

func (s *levelSubscription[K]) wait(ctx context.Context) error {
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()

	if !started || s.worker.Load() == callback.Goroutine() {
		return nil // start does nothing after stop
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *levelSubscription[K]) pause(paused bool) { s.queue.Pause(paused) }

func (s *levelSubscription[K]) trigger(
	cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey,
) {
	for _, key := range s.named(cluster, gvk, object) {
		s.queue.Put(key, true)
	}
}

func (s *levelSubscription[K]) triggerAll() {
	for _, key := range s.all() {
		s.queue.Put(key, true)
	}
}

func (s *levelSubscription[K]) failures() int64 { return s.failed.Load() }
