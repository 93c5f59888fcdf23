// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// broadcaster delivers cluster events to subscribers. Each subscriber queues at
// most nine events for each cluster.
type broadcaster struct {
	mu     sync.Mutex                            // protects the fields below; taken before a subscriber's lock
	last   map[client.ObjectKey][]events.Cluster // the initial events of a new subscriber
	subs   map[*clusterSubscriber]struct{}
	closed bool
}

func newBroadcaster() *broadcaster {
	return &broadcaster{last: map[client.ObjectKey][]events.Cluster{}, subs: map[*clusterSubscriber]struct{}{}}
}

func (b *broadcaster) publish(e events.Cluster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Type {
	case events.Relabeled: // later subscribers read the labels anyway
	case events.Removed:
		delete(b.last, e.Cluster)
	case events.PhaseChanged, events.Silent, events.Gained:
		b.last[e.Cluster] = append(without(b.last[e.Cluster], e.Type), e)
	case events.Lost:
		if b.last[e.Cluster] = without(b.last[e.Cluster], events.Gained); len(b.last[e.Cluster]) == 0 {
			delete(b.last, e.Cluster)
		}
	default:
		b.last[e.Cluster] = append(lasting(b.last[e.Cluster]), e)
	}

	for s := range b.subs {
		s.put(e)
	}
}

// forget drops a cluster's initial events for new subscribers. A cluster that
// was never connected ends without Removed.
func (b *broadcaster) forget(cluster client.ObjectKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, cluster)
}

// subscribe adds a subscriber, which first receives the state of every known
// cluster.
func (b *broadcaster) subscribe(s *clusterSubscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, level := range b.last {
		for _, e := range level {
			e.Initial = true
			s.put(e)
		}
	}

	if b.closed {
		close(s.changed)
		return
	}
	b.subs[s] = struct{}{}
}

func (b *broadcaster) unsubscribe(s *clusterSubscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, s)
}

// pause withholds a subscriber's events, which are merged meanwhile, or ends
// the pause.
func (b *broadcaster) pause(s *clusterSubscriber, paused bool) {
	b.mu.Lock() // so that close does not close s.changed meanwhile
	defer b.mu.Unlock()

	s.mu.Lock()
	s.paused = paused
	s.mu.Unlock()

	if !b.closed {
		timetable.Wake(s.changed)
	}
}

// replay delivers the state of a cluster to a subscriber once more, unless it
// is about to be delivered.
func (b *broadcaster) replay(s *clusterSubscriber, cluster client.ObjectKey) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if _, subscribed := b.subs[s]; subscribed {
		s.putAgain(cluster, b.last[cluster])
	}
}

// deliver adds an event for one subscriber, unless its subscription has ended.
func (b *broadcaster) deliver(s *clusterSubscriber, e events.Cluster) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if _, subscribed := b.subs[s]; subscribed {
		s.put(e)
	}
}

func (b *broadcaster) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subs)
}

// close ends every subscription once its pending events are taken.
func (b *broadcaster) close() {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.closed {
		return
	}
	b.closed = true
	for s := range b.subs {
		close(s.changed)
		delete(b.subs, s)
	}
}

// clusterSubscriber is one subscriber's queue: clusters in order, each with its
// pending events.
type clusterSubscriber struct {
	changed chan struct{} // one slot; closed at the end

	mu      sync.Mutex // protects the fields below
	queue   []client.ObjectKey
	pending map[client.ObjectKey][]events.Cluster
	paused  bool
}

func newClusterSubscriber() *clusterSubscriber {
	return &clusterSubscriber{changed: make(chan struct{}, 1), pending: map[client.ObjectKey][]events.Cluster{}}
}

// put adds an event. The caller holds the broadcaster's lock, so put cannot
// send on the closed channel.
func (s *clusterSubscriber) put(e events.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(e)
}

func (s *clusterSubscriber) putLocked(e events.Cluster) {
	waiting, queued := s.pending[e.Cluster]
	if !queued {
		s.queue = append(s.queue, e.Cluster)
	}
	s.pending[e.Cluster] = mergeEvent(waiting, e)
	timetable.Wake(s.changed)
}

// putAgain adds the events that are the state of a cluster once more. If it is
// waiting to be known as connected or disconnected, it adds none.
func (s *clusterSubscriber) putAgain(cluster client.ObjectKey, level []events.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()

	waiting := slices.Clone(s.pending[cluster])
	if slices.ContainsFunc(waiting, flips) {
		return
	}
	for _, e := range level {
		e.Initial = !slices.Contains(waiting, e) // one that waits is delivered for the first time
		s.putLocked(e)
	}
}

// flips reports whether an event is one of those that alternate.
func flips(e events.Cluster) bool { return e.Type == events.Connected || e.Type == events.Disconnected }

func removes(e events.Cluster) bool { return e.Type == events.Removed }

// mergeEvent adds an event to those that wait, and drops those that it
// supersedes. Of alternating connects and disconnects it keeps the last one or
// two, so that they still alternate with those already delivered. An initial
// one may repeat a delivered one, so it is dropped without its counterpart.
// Events before and after a removal are of two clusters, so the second does not
// hide that the first was removed.
func mergeEvent(waiting []events.Cluster, e events.Cluster) []events.Cluster {
	switch e.Type { // of these, one supersedes nothing else
	case events.Gained, events.Lost:
		return append(without(without(waiting, events.Gained), events.Lost), e)
	case events.Relabeled:
		return append(without(waiting, events.Relabeled), e)
	}
	if i := slices.IndexFunc(waiting, removes); i >= 0 { // there is no other
		since := waiting[i+1:]
		if removes(e) {
			return append(append(waiting[:i], lasting(since)...), e)
		}
		return append(waiting[:i+1], mergeEvent(since, e)...)
	}
	waiting = without(waiting, events.PhaseChanged)
	if e.Type != events.PhaseChanged && e.Type != events.Disconnected { // neither ends a silence
		waiting = without(waiting, events.Silent)
	}
	first := slices.IndexFunc(waiting, flips)
	switch {
	case !flips(e) || first < 0 || !slices.ContainsFunc(waiting[first+1:], flips): // fewer than three
	case waiting[first].Initial:
		waiting = slices.Delete(waiting, first, first+1)
	default:
		waiting = lasting(waiting)
	}

	return append(waiting, e)
}

// without returns a list without the events of one type. It reuses the slice.
func without(list []events.Cluster, t events.ClusterType) []events.Cluster {
	return slices.DeleteFunc(list, func(e events.Cluster) bool { return e.Type == t })
}

// lasting returns the events of a list that no connect or disconnect supersedes.
// It reuses the slice.
func lasting(list []events.Cluster) []events.Cluster {
	return slices.DeleteFunc(list, func(e events.Cluster) bool {
		return e.Type != events.Gained && e.Type != events.Lost && e.Type != events.Relabeled
	})
}

// take returns the next event, if there is one.
func (s *clusterSubscriber) take() (events.Cluster, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if len(s.queue) == 0 || s.paused {
		return events.Cluster{}, false
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
