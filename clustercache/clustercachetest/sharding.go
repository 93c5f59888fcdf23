// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
)

// Sharding is an ownership.Sharding whose ownership the test decides, for
// Options.Sharding. Each cluster has a slot of its own. It begins without any.
type Sharding struct {
	order sync.Mutex // orders events; taken before mu

	mu struct {
		sync.Mutex

		slots    map[client.ObjectKey]*shard
		clusters []client.ObjectKey
		handlers map[*func(ownership.Event)]struct{}
		tokens   int64
	}
}

// shard is the slot of a cluster.
type shard struct {
	number int
	token  int64 // 0 if it is not owned
	warm   bool
	until  time.Time                       // of the ownership; zero: for ever
	clock  *time.Timer                     // ends it then
	onLoss func(func()) (stop func() bool) // as context.AfterFunc, of the ownership
	lose   context.CancelFunc
}

// begin makes contexts that are given from now on end with lose.
func (x *shard) begin() {
	ctx, lose := context.WithCancel(context.Background())
	x.lose = lose
	x.onLoss = func(f func()) func() bool { return context.AfterFunc(ctx, f) }
}

var _ ownership.Sharding = (*Sharding)(nil)

// NewSharding returns a Sharding that owns nothing.
func NewSharding() *Sharding {
	s := &Sharding{}
	s.mu.slots = map[client.ObjectKey]*shard{}
	s.mu.handlers = map[*func(ownership.Event)]struct{}{}
	return s
}

// StandBy makes the replica stand by for a cluster. The result is closed once
// every subscriber has filled its caches.
func (s *Sharding) StandBy(cluster client.ObjectKey) (filled <-chan struct{}) {
	all := make(chan struct{})
	s.change(cluster, func(x *shard) []ownership.Event {
		x.warm = true
		return []ownership.Event{s.finishable(ownership.Event{Type: ownership.Warm, Slot: x.number}, all)}
	})
	return all
}

// finishable returns an event that closes a channel once every subscriber has
// called Done. The lock is held.
func (s *Sharding) finishable(e ownership.Event, all chan struct{}) ownership.Event {
	var left atomic.Int64
	left.Store(int64(len(s.mu.handlers)) + 1)
	done := func() {
		if left.Add(-1) == 0 {
			close(all)
		}
	}
	done() // there may be no subscriber
	return e.WithDone(done)
}

// Cool ends that the replica stands by for a cluster.
func (s *Sharding) Cool(cluster client.ObjectKey) {
	s.change(cluster, func(x *shard) []ownership.Event {
		x.warm = false
		return []ownership.Event{{Type: ownership.Cool, Slot: x.number}}
	})
}

// Gain makes the replica the owner of a cluster, with a new token.
func (s *Sharding) Gain(cluster client.ObjectKey) {
	s.change(cluster, func(x *shard) []ownership.Event {
		s.mu.tokens++
		x.token = s.mu.tokens
		x.begin()
		s.setUntilLocked(x, time.Time{})
		events := []ownership.Event{{Type: ownership.Gained, Slot: x.number, Token: x.token}}
		if !x.warm {
			x.warm = true
			events = append([]ownership.Event{{Type: ownership.Warm, Slot: x.number}}, events...)
		}
		return events
	})
}

// Drain makes the replica hand over a cluster that it owns. The result is
// closed once every subscriber has ended its work. Only Lose ends the drain,
// whatever the time is.
func (s *Sharding) Drain(cluster client.ObjectKey, within time.Duration) (drained <-chan struct{}) {
	all := make(chan struct{})
	s.change(cluster, func(x *shard) []ownership.Event {
		return []ownership.Event{s.finishable(ownership.Event{
			Type:  ownership.Draining,
			Slot:  x.number,
			Token: x.token,
			Until: time.Now().Add(within),
		}, all)}
	})
	return all
}

// Lose ends the ownership of a cluster. The replica then stands by for it,
// until Cool.
func (s *Sharding) Lose(cluster client.ObjectKey) {
	s.change(cluster, func(x *shard) []ownership.Event {
		e := ownership.Event{Type: ownership.Lost, Slot: x.number, Token: x.token}
		x.token = 0
		x.lose() // before subscribers are notified
		return []ownership.Event{e}
	})
}

// SetUntil sets when the ownership of a cluster ends by the clock, with no
// event, as that of a replica does which cannot renew its Lease. The contexts
// for writes end then, and there are none until it is set anew. A zero time
// means never.
func (s *Sharding) SetUntil(cluster client.ObjectKey, until time.Time) {
	s.change(cluster, func(x *shard) []ownership.Event {
		s.setUntilLocked(x, until)
		return nil
	})
}

func (s *Sharding) setUntilLocked(x *shard, until time.Time) {
	if x.clock != nil {
		x.clock.Stop()
	}
	x.until, x.clock = until, nil
	if until.IsZero() {
		return
	}
	x.clock = time.AfterFunc(time.Until(until), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.until.Equal(until) && x.token != 0 {
			x.lose()
			x.begin()
		}
	})
}

// Clusters returns the clusters of the last SetClusters.
func (s *Sharding) Clusters() []client.ObjectKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.clusters
}

// change changes the slot of a cluster, and delivers events.
func (s *Sharding) change(cluster client.ObjectKey, f func(*shard) []ownership.Event) {
	s.order.Lock()
	defer s.order.Unlock()

	s.mu.Lock()
	events := f(s.slotLocked(cluster))
	var handlers []*func(ownership.Event)
	for h := range s.mu.handlers {
		handlers = append(handlers, h)
	}
	s.mu.Unlock()

	for _, e := range events {
		for _, h := range handlers {
			(*h)(e.WithDone(sync.OnceFunc(e.Done)))
		}
	}
}

func (s *Sharding) slotLocked(cluster client.ObjectKey) *shard {
	x := s.mu.slots[cluster]
	if x == nil {
		x = &shard{number: len(s.mu.slots)}
		s.mu.slots[cluster] = x
	}
	return x
}

// Slot implements ownership.Sharding.
func (s *Sharding) Slot(cluster client.ObjectKey) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slotLocked(cluster).number
}

// Context implements ownership.Sharding.
func (s *Sharding) Context(
	ctx context.Context, cluster client.ObjectKey,
) (context.Context, context.CancelFunc, error) {
	s.mu.Lock()
	x := *s.slotLocked(cluster)
	s.mu.Unlock()

	if x.token == 0 || !x.until.IsZero() && !time.Now().Before(x.until) {
		return nil, nil, &ownership.NotOwnerError{Cluster: cluster, Slot: x.number}
	}
	cancel := context.CancelFunc(func() {})
	if !x.until.IsZero() {
		ctx, cancel = context.WithDeadlineCause(ctx, x.until, ownership.ErrNotOwner)
	}
	ctx, abort := context.WithCancelCause(ctx)
	stop := x.onLoss(func() { abort(ownership.ErrNotOwner) })
	return ctx, func() {
		stop()
		abort(nil)
		cancel()
	}, nil
}

// SetClusters implements ownership.Sharding.
func (s *Sharding) SetClusters(clusters []client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.clusters = clusters
}

// Subscribe implements ownership.Sharding.
func (s *Sharding) Subscribe(handler func(ownership.Event)) (unsubscribe func()) {
	s.order.Lock()
	defer s.order.Unlock()

	s.mu.Lock()
	var events []ownership.Event
	for _, x := range s.mu.slots {
		if x.warm {
			events = append(events, ownership.Event{Type: ownership.Warm, Slot: x.number})
		}
		if x.token != 0 {
			events = append(events, ownership.Event{Type: ownership.Gained, Slot: x.number, Token: x.token})
		}
	}
	s.mu.handlers[&handler] = struct{}{}
	s.mu.Unlock()

	for _, e := range events {
		handler(e)
	}

	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.handlers, &handler)
	}
}
