// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
)

// rateSeconds is the number of seconds that a rate is the average of.
const rateSeconds = 5

// meter counts the events of clusters. Its zero value is ready for use, and its
// methods are safe for concurrent use.
type meter struct {
	mu     sync.Mutex // protects counts
	counts map[client.ObjectKey]*count
}

// count counts the events of a cluster: all, and those of the last seconds.
type count struct {
	all     int
	seconds [rateSeconds + 1]struct {
		at     int64 // in Unix time
		events int
	}
}

// count counts an event, unless the object has not changed.
func (m *meter) count(e events.Object) {
	if e.Initial || e.Resync || e.Evicted {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts[e.Cluster]
	if c == nil {
		if m.counts == nil {
			m.counts = map[client.ObjectKey]*count{}
		}
		c = &count{}
		m.counts[e.Cluster] = c
	}
	c.add(time.Now().Unix())
}

func (c *count) add(now int64) {
	second := &c.seconds[now%int64(len(c.seconds))]
	if second.at != now {
		second.at, second.events = now, 0
	}
	second.events++
	c.all++
}

// read returns the number of events of a cluster, and how many a second there
// were on average in the last rateSeconds that are over.
func (m *meter) read(cluster client.ObjectKey, now time.Time) (received int, rate float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts[cluster]
	if c == nil {
		return 0, 0
	}
	recent := 0
	for _, second := range c.seconds {
		if age := now.Unix() - second.at; age >= 1 && age <= rateSeconds {
			recent += second.events
		}
	}
	return c.all, float64(recent) / rateSeconds
}
