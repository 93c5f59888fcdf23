// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
)

// handle takes one step of the state machine and executes the actions it
// returns.
func (c *cluster) handle(m message) {
	before := c.state
	m.Jitter = rand.Float64()
	if !c.admit(&m) {
		return
	}
	var actions []phase.Action
	c.state, actions = phase.Next(c.cc.phases, before, m.Event, time.Now())
	if slices.Contains(actions, phase.Up) {
		c.transport.Open() // before readers are notified
	}
	c.publish(before)

	if m.Kind == phase.Succeeded && before.Missed > 0 && before.Connected && c.state.Connected {
		c.cc.pool.Wake(c.key) // informers may be in pauses that began while nothing was answered
		c.wants.MapNow()
	}
	if !c.state.Known && c.state.Reason != before.Reason {
		c.transport.Shut(c.notConnected()) // it was never open; users of the transport get the reason, too
	}
	for _, a := range actions {
		c.act(a)
	}
	c.cc.timers.Set(c.tick, c.state.Deadline())
	if c.state.Connected != before.Connected {
		c.prover.schedule(false)
	}
	if c.state.Phase != before.Phase {
		c.announce(before)
		for _, f := range c.cc.subscriptions() {
			f.phaseChanged(c, c.state.Phase)
		}
	}

	c.conclude(m)
}

// admit records the content of a message, and reports whether it is still
// relevant: results of replaced attempts are not, nor is the removal of a
// cluster that is wanted again.
func (c *cluster) admit(m *message) bool {
	switch m.Kind {
	case phase.Succeeded, phase.Failed:
		if c.state.Running == phase.None || m.Gen != c.state.Gen {
			m.found.drop()
			return false
		}
		c.attempt.cancel()
		if m.Kind == phase.Succeeded {
			c.adopt(m)
		}
		if m.Kind == phase.Failed && c.state.Running == phase.Connect {
			c.connectFailed(m)
		}
	case phase.Removed:
		return !c.wanted() // wanted again since it was released
	case phase.Changed:
		// A change of its access may arrive between the end of a released
		// cluster and its being forgotten. To connect again would keep it
		// forever.
		return c.state.Phase != phase.Gone || c.cc.options.Discover || c.wanted()
	case phase.RolledBack:
		// Every informer of the cluster reports it. One new epoch serves them
		// all, and the informers that report it later recover by themselves.
		if time.Since(c.renewed) < c.cc.options.RetryInterval {
			return false
		}
		c.history++
		c.mapper.Reset()
	}

	return true
}

// connectFailed counts a failed attempt to connect.
func (c *cluster) connectFailed(m *message) {
	c.cc.metrics.connFailed.WithLabelValues(m.Reason).Inc()
	if m.Class == phase.NoAccess && c.state.Reason != m.Reason && c.discovered.Load() {
		c.cc.relist() // it may be gone, and not only wait for its Secret
	}
}

// conclude forgets a cluster that is gone and not wanted.
func (c *cluster) conclude(m message) {
	if c.state.Phase != phase.Gone || c.state.Running != phase.None {
		return
	}
	switch {
	case !c.wanted():
		c.cc.spawn(func() { c.cc.forget(c) })
	case m.Kind == phase.Removed:
		// The cluster was requested, and seen alive, after the check that
		// released it.
		c.post(message{Event: phase.Event{Kind: phase.Asked}})
	}
}
