// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// clusterSubscription delivers the events of clusters.
type clusterSubscription struct {
	*worker

	fleet     *clusters
	handler   func(events.Cluster)
	silentFor []time.Duration // sorted
	queue     *clusterSubscriber
}

func newClusterSubscription(
	fleet *clusters, handler func(events.Cluster), silentFor []time.Duration,
) *clusterSubscription {
	return &clusterSubscription{
		worker:    newWorker(context.Background(), fleet.shared),
		fleet:     fleet,
		handler:   handler,
		silentFor: slices.Compact(slices.Sorted(slices.Values(silentFor))),
		queue:     newClusterSubscriber(),
	}
}

func (s *clusterSubscription) start() {
	s.fleet.used()
	if s.begin() {
		s.fleet.events.subscribe(s.queue)
		s.work(s.run, func() { s.fleet.events.unsubscribe(s.queue) })
	}
}

func (s *clusterSubscription) run() {
	silences := &silences{
		fleet: s.fleet,
		after: s.silentFor,
		queue: s.queue,
		of:    map[client.ObjectKey]*silence{},
	}
	defer silences.stop()

	for {
		e, ok := next(s.ctx, s.queue.changed, s.queue.take)
		if !ok {
			return
		}
		silences.consider(e.Cluster)
		s.call("handler of cluster events", func() { s.handler(e) },
			"cluster", clusterName(e.Cluster), "event", string(e.Type))
	}
}

func (s *clusterSubscription) pause(paused bool) { s.fleet.events.pause(s.queue, paused) }

func (s *clusterSubscription) Trigger(cluster client.ObjectKey, _ schema.GroupVersionKind, _ client.ObjectKey) {
	s.fleet.events.replay(s.queue, cluster)
}

func (s *clusterSubscription) TriggerAll() {
	for _, c := range s.fleet.all() {
		s.fleet.events.replay(s.queue, c.key)
	}
}

// silences deliver an event to a subscriber when a cluster has answered nothing
// for one of the times that the subscription asked for. Every silence begins
// with an event, since the phase leaves Ready, so clusters that answer need no
// timer.
type silences struct {
	fleet *clusters
	after []time.Duration // sorted
	queue *clusterSubscriber

	mu sync.Mutex                    // protects of; taken before the timers' lock
	of map[client.ObjectKey]*silence // nil once it has stopped
}

// silence is that of one cluster.
type silence struct {
	timer    *timetable.Timer
	answered time.Time // the last answer before it; zero if there was none
	since    time.Time
	reported int // how many of the times are over and reported
}

// consider looks at a cluster soon.
func (s *silences) consider(key client.ObjectKey) {
	if len(s.after) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	of := s.of[key]
	if of == nil {
		of = &silence{timer: timetable.NewTimer(func() { s.look(key) })}
		s.of[key] = of
	}
	s.fleet.timers.Set(of.timer, time.Now())
}

// look delivers the event of a time that is over, and looks again when the next
// one will be.
func (s *silences) look(key client.ObjectKey) {
	c := s.fleet.find(key)
	s.mu.Lock()
	of := s.of[key]
	if of == nil {
		s.mu.Unlock()
		return
	}
	var v *connection.View
	if c != nil {
		v = c.conn.View()
	}
	if v == nil || !isSilent(v) {
		delete(s.of, key)
		s.mu.Unlock()
		return
	}
	over := of.advance(v, s.after, time.Now())
	if of.reported < len(s.after) {
		s.fleet.timers.Set(of.timer, of.since.Add(s.after[of.reported]))
	}
	s.mu.Unlock()

	if over > 0 {
		e := c.event(events.Silent)
		e.SilentFor = over
		s.fleet.events.deliver(s.queue, e)
	}
}

// isSilent reports whether the last request to a cluster was not answered, or
// whether none was sent since it was lost.
func isSilent(v *connection.View) bool {
	return v.Phase != phase.Gone && (v.Missed > 0 || v.Phase != phase.Ready && !v.LastSuccess.IsZero())
}

// advance returns the longest of the times that are over and not reported, or
// zero.
func (s *silence) advance(v *connection.View, after []time.Duration, now time.Time) (over time.Duration) {
	if s.since.IsZero() || !s.answered.Equal(v.LastSuccess) {
		s.answered, s.since, s.reported = v.LastSuccess, v.LastSuccess, 0
		if s.since.IsZero() { // it never answered
			s.since = v.Since
		}
	}
	for ; s.reported < len(after) && !now.Before(s.since.Add(after[s.reported])); s.reported++ {
		over = after[s.reported]
	}

	return over
}

// stop ends all timers.
func (s *silences) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, of := range s.of {
		s.fleet.timers.Set(of.timer, time.Time{})
	}
	s.of = nil
}
