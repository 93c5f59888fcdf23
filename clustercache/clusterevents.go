// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterEventType says what happened to a cluster.
type ClusterEventType string

// Types of a [ClusterEvent].
const (
	// Connected: the cluster can be used.
	Connected ClusterEventType = "Connected"
	// Disconnected: it cannot any more. A Connected that follows at once, with
	// another epoch, means that its history is another one now.
	Disconnected ClusterEventType = "Disconnected"
	// PhaseChanged: another phase, without a change of the two above.
	PhaseChanged ClusterEventType = "PhaseChanged"
	// Removed: the cluster is gone, and what was cached of it with it.
	Removed ClusterEventType = "Removed"
	// Silent: the cluster has answered nothing for Options.SilentAfter.
	Silent ClusterEventType = "Silent"
)

// ClusterEvent is one change of one cluster. Per cluster and subscriber,
// Connected and Disconnected alternate. Events are level-triggered: a slow
// subscriber misses what was undone before its turn, never the last state.
type ClusterEvent struct {
	Cluster client.ObjectKey
	Type    ClusterEventType
	// Phase and Reason are those after the event.
	Phase  Phase
	Reason string
	// Epoch is the history that is served; empty before the first connection.
	Epoch string
	// Time is when it happened.
	Time time.Time
	// Initial marks what had happened before the subscription began, and was
	// not overtaken since.
	Initial bool
}

// broadcaster hands cluster events to subscribers. Each holds at most four
// events for each cluster.
type broadcaster struct {
	mu     sync.Mutex                          // protects what follows; taken before a subscriber's lock
	last   map[client.ObjectKey][]ClusterEvent // what a new subscriber is told
	subs   map[*clusterSubscriber]struct{}
	closed bool
}

func newBroadcaster() *broadcaster {
	return &broadcaster{last: map[client.ObjectKey][]ClusterEvent{}, subs: map[*clusterSubscriber]struct{}{}}
}

func (b *broadcaster) publish(e ClusterEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Type {
	case Removed:
		delete(b.last, e.Cluster)
	case PhaseChanged, Silent:
		b.last[e.Cluster] = append(without(b.last[e.Cluster], e.Type), e)
	default:
		b.last[e.Cluster] = []ClusterEvent{e}
	}
	for s := range b.subs {
		s.put(e)
	}
}

// forget drops what new subscribers are told of a cluster. One that was never
// connected ends without Removed.
func (b *broadcaster) forget(cluster client.ObjectKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, cluster)
}

// subscribe returns a subscriber that is told of every known cluster's state
// first.
func (b *broadcaster) subscribe() *clusterSubscriber {
	s := &clusterSubscriber{news: make(chan struct{}, 1), pending: map[client.ObjectKey][]ClusterEvent{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, level := range b.last {
		for _, e := range level {
			e.Initial = true
			s.put(e)
		}
	}
	if b.closed {
		close(s.news)
		return s
	}
	b.subs[s] = struct{}{}
	return s
}

func (b *broadcaster) unsubscribe(s *clusterSubscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, s)
}

// pause holds a subscriber's events back, merged, or lets them go on.
func (b *broadcaster) pause(s *clusterSubscriber, paused bool) {
	b.mu.Lock() // so that news is not closed meanwhile
	defer b.mu.Unlock()
	s.mu.Lock()
	s.paused = paused
	s.mu.Unlock()
	if b.closed {
		return
	}
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (b *broadcaster) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subs)
}

// close ends every subscription, after what is pending.
func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.closed = true
	for s := range b.subs {
		close(s.news)
		delete(b.subs, s)
	}
}

// clusterSubscriber is one subscriber's queue: clusters in order, each with
// what is left to tell of it.
type clusterSubscriber struct {
	news chan struct{} // one slot; closed at the end

	mu      sync.Mutex // protects what follows
	queue   []client.ObjectKey
	pending map[client.ObjectKey][]ClusterEvent
	paused  bool
}

// put adds an event. The broadcaster's lock is held, so that nothing is sent on
// the closed channel.
func (s *clusterSubscriber) put(e ClusterEvent) {
	s.mu.Lock()
	waiting, queued := s.pending[e.Cluster]
	if !queued {
		s.queue = append(s.queue, e.Cluster)
	}
	s.pending[e.Cluster] = mergeEvent(waiting, e)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// mergeEvent adds an event to those that wait, and drops what it makes void: of
// connects and disconnects that alternate, the last two or one are left, so
// that they still alternate with those that were told.
func mergeEvent(waiting []ClusterEvent, e ClusterEvent) []ClusterEvent {
	waiting = without(waiting, PhaseChanged)
	if e.Type != PhaseChanged && e.Type != Disconnected { // neither ends a silence
		waiting = without(waiting, Silent)
	}
	flips := 0
	for _, w := range waiting {
		if w.Type == Connected || w.Type == Disconnected {
			flips++
		}
	}
	if (e.Type == Connected || e.Type == Disconnected) && flips >= 2 {
		waiting = waiting[:0]
	}
	return append(waiting, e)
}

// without returns events without those of one type. It reuses the slice.
func without(events []ClusterEvent, t ClusterEventType) []ClusterEvent {
	return slices.DeleteFunc(events, func(e ClusterEvent) bool { return e.Type == t })
}

// take returns the next event, if there is one.
func (s *clusterSubscriber) take() (ClusterEvent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || s.paused {
		return ClusterEvent{}, false
	}
	key := s.queue[0]
	waiting := s.pending[key]
	e := waiting[0]
	if len(waiting) == 1 {
		delete(s.pending, key)
		if s.queue = s.queue[1:]; len(s.queue) == 0 {
			s.queue = nil
		}
	} else {
		s.pending[key] = waiting[1:]
	}
	return e, true
}

// next waits for the next event. It returns false when ctx ends or the
// subscription did.
func (s *clusterSubscriber) next(ctx context.Context) (ClusterEvent, bool) {
	for {
		if ctx.Err() != nil {
			return ClusterEvent{}, false
		}
		if e, ok := s.take(); ok {
			return e, true
		}
		select {
		case <-ctx.Done():
			return ClusterEvent{}, false
		case _, open := <-s.news:
			if !open {
				e, ok := s.take()
				return e, ok
			}
		}
	}
}

// ClusterEvents yields the state of every known cluster, and then what happens
// to them, until ctx ends, the loop is left, or the ClusterCache stops. It
// holds back nobody, however slow the loop is. Each range over it is a
// subscription of its own.
func (cc *ClusterCache) ClusterEvents(ctx context.Context) iter.Seq[ClusterEvent] {
	return func(yield func(ClusterEvent) bool) {
		cc.used()
		s := cc.events.subscribe()
		defer cc.events.unsubscribe(s)
		for {
			e, ok := s.next(ctx)
			if !ok || !yield(e) {
				return
			}
		}
	}
}
