// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// subscription is an events.Subscription. It delivers events to one handler.
type subscription struct {
	delivery

	shared  *shared
	kind    string      // of the events, for the log
	touched atomic.Bool // by Start or Stop
	stopped atomic.Bool
}

// newSubscription returns a subscription, and logs if it is not started soon:
// it delivers nothing, and holds nothing that would show that.
func newSubscription(of *shared, kind string, d delivery) events.Subscription {
	s := &subscription{shared: of, kind: kind, delivery: d}
	of.timers.Set(timetable.NewTimer(func() {
		if !s.touched.Load() {
			of.log.Info("A subscription delivers nothing: call its Start", "events", kind)
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
	Trigger(cluster client.ObjectKey, gvk schema.GroupVersionKind, object client.ObjectKey)
	TriggerAll()
	Failures() int64
}

func (s *subscription) Start() {
	s.touched.Store(true)
	if s.stopped.Load() && s.shared.ctx.Err() == nil {
		s.shared.log.Info("A subscription was stopped and delivers nothing: make another one instead of starting "+
			"it again", "events", s.kind)
	}
	s.start()
}

func (s *subscription) Stop() {
	s.touched.Store(true)
	s.stopped.Store(true)
	s.stop()
}

func (s *subscription) Close(ctx context.Context) error {
	s.Stop()
	return s.wait(ctx)
}

func (s *subscription) Pause() { s.pause(true) }

func (s *subscription) Continue() { s.pause(false) }

// worker calls the handler of a delivery, on a goroutine that Start of the
// ClusterCache waits for.
type worker struct {
	shared *shared
	ctx    context.Context //nolint:containedctx // ended by stop
	cancel context.CancelFunc
	failed atomic.Int64  // calls of the handler that panicked
	caller atomic.Uint64 // the goroutine of the last call
	done   chan struct{} // closed once the handler is called no more
	begun  atomic.Bool
}

func newWorker(ctx context.Context, of *shared) *worker {
	w := &worker{shared: of, done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// begin reports whether the caller has to call work: not after stop or another
// begin.
func (w *worker) begin() bool { return w.ctx.Err() == nil && !w.begun.Swap(true) }

// work runs a loop of calls, and calls end once the handler is called no more.
func (w *worker) work(loop, end func()) {
	ended := func() {
		end()
		close(w.done)
	}
	started := w.shared.spawn(func() {
		defer ended()
		loop()
	})
	if !started {
		ended()
	}
}

// call calls the handler, and counts its panic.
func (w *worker) call(name string, handle func(), keys ...any) {
	err := w.shared.calls.Call(name, func() error {
		w.caller.Store(callback.Goroutine())
		handle()
		return nil
	}, keys...)
	if err != nil {
		w.failed.Add(1)
	}
}

func (w *worker) stop() { w.cancel() }

func (w *worker) wait(ctx context.Context) error {
	if !w.begun.Load() || w.caller.Load() == callback.Goroutine() {
		return nil // start does nothing after stop
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *worker) Failures() int64 { return w.failed.Load() }
