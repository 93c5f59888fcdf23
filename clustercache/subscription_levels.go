// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// levelSubscription delivers an event for each key that has changed. An event
// has the state at its delivery.
type levelSubscription[K comparable] struct {
	*worker
	levelConfig[K]

	fleet *clusters
	queue *levelQueue[K]
}

// levelConfig is what differs between the subscriptions to levels.
type levelConfig[K comparable] struct {
	callback string // for logs
	hub      *levelHub[K]
	deliver  func(key K, initial bool)
	// named returns the keys that Trigger names, and all returns all of them.
	named func(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) []K
	all   func() []K
	// listen and unlisten connect the queue to further changes, and disconnect
	// it. They may be nil.
	listen, unlisten func()
}

func newLevelSubscription[K comparable](fleet *clusters, config levelConfig[K]) *levelSubscription[K] {
	return &levelSubscription[K]{
		worker:      newWorker(fleet.ctx, fleet.shared),
		levelConfig: config,
		fleet:       fleet,
		queue:       newLevelQueue[K](),
	}
}

func (s *levelSubscription[K]) start() {
	s.fleet.used()
	if !s.begin() {
		return
	}
	// What changes during this call is put into the queue, perhaps before its
	// initial event: then that is none any more.
	s.hub.subscribe(s.queue)
	if s.listen != nil {
		s.listen()
	}
	s.triggerAll()
	for _, c := range s.fleet.all() {
		c.wants.Observe()
	}

	s.work(s.run, s.end)
}

func (s *levelSubscription[K]) run() {
	for {
		key, initial, ok := s.queue.next(s.ctx)
		if !ok {
			return
		}
		s.call(s.callback, func() { s.deliver(key, initial) })
	}
}

// end is called once the handler is called no more.
func (s *levelSubscription[K]) end() {
	s.hub.unsubscribe(s.queue)
	if s.unlisten != nil {
		s.unlisten()
	}
}

func (s *levelSubscription[K]) pause(paused bool) { s.queue.pause(paused) }

func (s *levelSubscription[K]) trigger(
	cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey,
) {
	for _, key := range s.named(cluster, gvk, object) {
		s.queue.put(key, true)
	}
}

func (s *levelSubscription[K]) triggerAll() {
	for _, key := range s.all() {
		s.queue.put(key, true)
	}
}
