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

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// subscription is an events.Subscription. It delivers events to one handler.
type subscription struct {
	cc       *ClusterCache
	kind     string // of the events, for the log
	delivery delivery
	touched  atomic.Bool // by Start or Stop
	stopped  atomic.Bool
}

// newSubscription returns a subscription, and logs if it is not started soon:
// it delivers nothing, and holds nothing that would show that.
func newSubscription(cc *ClusterCache, kind string, d delivery) events.Subscription {
	s := &subscription{cc: cc, kind: kind, delivery: d}
	cc.timers.Set(timetable.NewTimer(func() {
		if !s.touched.Load() {
			cc.log.Info("A subscription delivers nothing: call its Start", "events", kind)
		}
	}), time.Now().Add(noticeAfter))
	return s
}

// delivery is what a subscription does for one kind of events.
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

func (s *subscription) Start() {
	s.touched.Store(true)
	if s.stopped.Load() && s.cc.ctx.Err() == nil {
		s.cc.log.Info("A subscription was stopped and delivers nothing: make another one instead of starting it again",
			"events", s.kind)
	}
	s.delivery.start()
}

func (s *subscription) Stop() {
	s.touched.Store(true)
	s.stopped.Store(true)
	s.delivery.stop()
}

func (s *subscription) Close(ctx context.Context) error {
	s.Stop()
	return s.delivery.wait(ctx)
}

func (s *subscription) Pause() { s.delivery.pause(true) }

func (s *subscription) Continue() { s.delivery.pause(false) }

func (s *subscription) Trigger(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey) {
	s.delivery.trigger(cluster, gvk, object)
}

func (s *subscription) TriggerAll() { s.delivery.triggerAll() }

func (s *subscription) Failures() int64 { return s.delivery.failures() }
