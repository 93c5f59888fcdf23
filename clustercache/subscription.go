// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/timetable"
)

// Subscription delivers events to one handler, one at a time, from Start until
// Stop. [ClusterCache.Subscribe] makes one of objects,
// [ClusterCache.SubscribeClusters] one of clusters,
// [ClusterCache.SubscribeWatches] one of watches, and
// [ClusterCache.SubscribeOwners] one of owners. The sources of
// clustercache/controller are built on it. All methods may be called from many
// goroutines, and none but Close waits.
//
//	             +----------- Trigger, TriggerAll ------------+
//	             v                                            |
//	Start --> deliver --- Pause ---> merge --- Continue ------+
//	             |
//	           Stop, end of the ClusterCache
type Subscription struct {
	cc       *ClusterCache
	kind     string // of the events, for the log
	delivery delivery
	touched  atomic.Bool // by Start or Stop
	stopped  atomic.Bool
}

// newSubscription returns a subscription, and logs if it is not started soon:
// it delivers nothing, and holds nothing that would show that.
func newSubscription(cc *ClusterCache, kind string, d delivery) *Subscription {
	s := &Subscription{cc: cc, kind: kind, delivery: d}
	cc.timers.Set(timetable.NewTimer(func() {
		if !s.touched.Load() {
			cc.log.Info("A subscription delivers nothing: call its Start", "events", kind)
		}
	}), time.Now().Add(noticeAfter))
	return s
}

// delivery is what a Subscription does for one kind of events.
type delivery interface {
	start()
	stop()
	// wait waits until the handler is not being called, unless its own call
	// waits, or until ctx ends.
	wait(ctx context.Context) error
	pause(paused bool)
	trigger(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey)
	triggerAll()
	failures() int64
}

var (
	errNilCallback = errors.New("required")
	errNotPositive = errors.New("not positive")
)

// Start begins the delivery. Starting a subscription again has no effect, and
// neither has a start after Stop, which is logged; so is a subscription that
// waits for its start for some seconds.
func (s *Subscription) Start() {
	s.touched.Store(true)
	if s.stopped.Load() && s.cc.ctx.Err() == nil {
		s.cc.log.Info("A subscription was stopped and delivers nothing: make another one instead of starting it again",
			"events", s.kind)
	}
	s.delivery.start()
}

// Stop ends the delivery, and releases the watches that an ObjectSelection
// asked for. A call of the handler that has begun continues. It is idempotent.
func (s *Subscription) Stop() {
	s.touched.Store(true)
	s.stopped.Store(true)
	s.delivery.stop()
}

// Close is Stop, and then waits until the handler and the predicates are not
// being called, or until ctx ends. A Close called by one of them does not wait
// for that call.
func (s *Subscription) Close(ctx context.Context) error {
	s.Stop()
	return s.delivery.wait(ctx)
}

// Pause stops the delivery after the event that is being handled. Caches stay
// up to date, and events are merged. It can be called before Start.
func (s *Subscription) Pause() { s.delivery.pause(true) }

// Continue ends a pause: it delivers the merged events.
func (s *Subscription) Continue() { s.delivery.pause(false) }

// Trigger delivers an object once more, marked as Resync, if it is cached and
// selected. A subscription to clusters delivers the events that make up the
// state of the cluster once more, marked as Initial, unless they are about to
// be delivered. One to watches delivers the state of those of the kind in the
// cluster, and one to owners the owner of that kind and name, whatever the
// cluster.
func (s *Subscription) Trigger(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) {
	s.delivery.trigger(cluster, gvk, object)
}

// TriggerAll delivers every object, or the state of every cluster, once more.
func (s *Subscription) TriggerAll() { s.delivery.triggerAll() }

// Failures returns how many events could not be handled: the handler or a
// predicate panicked, or an object did not fit the Representation. Each is
// logged.
func (s *Subscription) Failures() int64 { return s.delivery.failures() }
