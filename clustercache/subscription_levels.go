// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
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
	s.TriggerAll()
	for _, c := range s.fleet.all() {
		c.wants.Observe()
	}

	s.work(s.run, s.end)
}

func (s *levelSubscription[K]) run() {
	for {
		of, ok := next(s.ctx, s.queue.changed, s.queue.take)
		if !ok {
			return
		}
		s.call(s.callback, func() { s.deliver(of.key, of.initial) })
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

func (s *levelSubscription[K]) Trigger(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) {
	for _, key := range s.named(cluster, gvk, object) {
		s.queue.put(key, true)
	}
}

func (s *levelSubscription[K]) TriggerAll() {
	for _, key := range s.all() {
		s.queue.put(key, true)
	}
}

// OwnerEvent names an owner of declarations whose reads may be answered
// differently than before.
type OwnerEvent struct {
	Owner Owner
	// Initial marks an event that was caused by no change: by the beginning of
	// the subscription, by Trigger, or by objects that existed when the
	// watch began.
	Initial bool
}

func newWatchSubscription(fleet *clusters, handler func(events.Watch)) delivery {
	return newLevelSubscription(fleet, levelConfig[status.WatchKey]{
		callback: "handler of watch events",
		hub:      &fleet.watches,
		deliver:  func(key status.WatchKey, initial bool) { handler(newWatchEvent(fleet, key, initial)) },
		named: func(key client.ObjectKey, gvk schema.GroupVersionKind, _ client.ObjectKey) []status.WatchKey {
			keys := watchKeys(fleet.find(key))
			return slices.DeleteFunc(keys, func(k status.WatchKey) bool { return !gvk.Empty() && k.GVK != gvk })
		},
		all: func() []status.WatchKey { return watchKeys(fleet.all()...) },
	})
}

// newWatchEvent returns the state of a watch.
func newWatchEvent(fleet *clusters, key status.WatchKey, initial bool) events.Watch {
	e := events.Watch{Key: key, Initial: initial, Time: time.Now()}
	c := fleet.find(key.Cluster)
	var w *wants.Want
	if c != nil {
		w = c.wants.Find(selectionOf(key))
	}
	if w == nil {
		e.Ended = true
		return e
	}
	e.Synced, e.Err = c.standing(w)
	e.Reason = ReasonOf(e.Err)

	return e
}

// ownerObjects passes the changes of objects on to the owners that declared
// them. It implements informerpool.BriefHandler: an object that came and went
// may have been read meanwhile.
type ownerObjects struct {
	declared *declared
	call     func(owner Owner, initial bool)

	mu   sync.Mutex // protects held; taken before the lock of the timers
	held map[Owner]*held
}

func (h *ownerObjects) Brief() bool { return true }

// Handle calls the owners of an object.
func (h *ownerObjects) Handle(e informerpool.Event) {
	c := h.declared.fleet.find(e.Key.Cluster)
	if c == nil {
		return
	}
	for _, owner := range h.declared.touched(c, e) {
		h.call(owner, e.Initial)
	}
}

// held is an owner that is slowed down, for a while after it was called.
type held struct {
	due     bool // it is to be called at the end
	initial bool // for no change
}

// hold reports whether an owner has to wait, and calls it afterwards.
func (h *ownerObjects) hold(owner Owner, initial bool) bool {
	slow := h.declared.leavers.isSlow(owner)
	h.mu.Lock()
	defer h.mu.Unlock()

	if x := h.held[owner]; x != nil {
		x.due, x.initial = true, initial && (x.initial || !x.due)
		return true
	}
	if slow {
		h.held[owner] = &held{}
		h.declared.fleet.timers.Set(timetable.NewTimer(func() { h.letGo(owner) }), time.Now().Add(slowCalls))
	}

	return false
}

func (h *ownerObjects) letGo(owner Owner) {
	h.mu.Lock()
	x := h.held[owner]
	delete(h.held, owner)
	h.mu.Unlock()

	if x.due {
		h.call(owner, x.initial)
	}
}

func newOwnerSubscription(d *declared, handler func(OwnerEvent)) delivery {
	objects := &ownerObjects{declared: d, held: map[Owner]*held{}}
	sub := d.fleet.pool.Subscribe(objects)
	s := newLevelSubscription(d.fleet, levelConfig[Owner]{
		callback: "handler of owner events",
		hub:      &d.fleet.owners,
		deliver: func(owner Owner, initial bool) {
			if !objects.hold(owner, initial) {
				handler(OwnerEvent{owner, initial})
			}
		},
		named: func(_ client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) []Owner {
			owners := d.all()
			named := Owner{GVK: gvk, ObjectKey: object} // also if it declares nothing
			owners = slices.DeleteFunc(owners, func(o Owner) bool {
				return o.GVK != gvk || o.ObjectKey != object || o == named
			})
			return append(owners, named)
		},
		all:    d.all,
		listen: func() { d.listen(sub) },
		unlisten: func() {
			sub.Stop()
			d.unlisten(sub)
		},
	})
	objects.call = s.queue.put

	return s
}
