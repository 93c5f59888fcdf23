// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// handle takes one step of the state machine and executes the actions it
// returns.
func (c *Connection) handle(m message) {
	before := c.state
	if m.Kind == phase.Resolved {
		c.relabel(m)
	}
	m.Jitter = rand.Float64()
	if !c.admit(&m) {
		return
	}
	var actions []phase.Action
	c.state, actions = phase.Next(c.cfg.Phases, before, m.Event, time.Now())
	if slices.Contains(actions, phase.Up) {
		c.transport.Open() // before readers are notified
	}
	if c.state.Phase == phase.Gone {
		c.labels = nil
	}
	c.publish(before)

	if m.Kind == phase.Succeeded && before.Missed > 0 && before.Connected && c.state.Connected {
		c.hooks.Resumed() // their pauses may have begun while nothing was answered
	}
	if !c.state.Known && c.state.Reason != before.Reason {
		c.transport.Shut(c.notConnected()) // it was never open; users of the transport get the reason, too
	}
	for _, a := range actions {
		c.act(a)
	}
	c.cfg.Timers.Set(c.tick, c.state.Deadline())
	if c.state.Connected != before.Connected {
		c.prover.schedule(false)
	}
	// Of a cluster that was not ready, which is no failure, in the same phase.
	failsFirst := before.Failed == 0 && c.state.Failed > 0 && c.state.LastSuccess.IsZero()
	switch {
	case c.state.Phase != before.Phase, failsFirst:
		c.announce(before)
	case c.state.Reason != before.Reason:
		c.hooks.ReasonChanged()
	}

	c.conclude(m)
}

// admit records the content of a message, and reports whether it is still
// relevant: results of replaced attempts are not, nor is the removal of a
// cluster that is wanted again.
func (c *Connection) admit(m *message) bool {
	switch m.Kind {
	case phase.Succeeded, phase.Failed:
		if c.state.Running == phase.None || m.Gen != c.state.Gen {
			m.found.drop()
			return false
		}
		c.attempt.cancel()
		if at := c.attempt.endpoint; at != "" && (m.Kind == phase.Succeeded || !c.state.Connected) {
			c.server.Endpoint = at
		}
		if m.Kind == phase.Succeeded {
			c.adopt(m)
		}
		if m.Kind == phase.Failed && m.Class != phase.Same && c.state.Running == phase.Connect {
			c.connectFailed(m)
		}
	case phase.Removed:
		return !c.hooks.Wanted() // wanted again since it was released
	case phase.Changed:
		// A change of its access may arrive between the end of a released
		// cluster and its being forgotten. To connect again would keep it
		// forever.
		return c.state.Phase != phase.Gone || c.cfg.Discover || c.hooks.Wanted()
	case phase.RolledBack:
		// Every informer of the cluster reports it. One new epoch serves them
		// all, and the informers that report it later recover by themselves.
		if time.Since(c.renewed) < c.cfg.RetryInterval {
			return false
		}
		c.history++
		c.mapper.Reset()
	}

	return true
}

// adopt puts the result of a connect attempt to use.
func (c *Connection) adopt(m *message) {
	f := m.found
	if f == nil {
		return // a probe, or a refresh that found no change
	}
	if f.candidate != nil {
		if err := f.candidate.Use(); err != nil {
			m.Kind, m.Class, m.Err, m.Reason = phase.Failed, phase.Trouble, err, string(transport.Classify(err))
			return
		}
	}

	f.moved = resolver.Diff(c.server.Access, f.access)&(resolver.ChangedEndpoint|resolver.ChangedProxy) != 0
	if f.moved {
		c.transport.CutStreams(f.access.Revision()) // they resume at the new address
	}
	if c.server.Access.Revision() != f.access.Revision() {
		c.server.AccessSince = time.Now()
	}
	c.server.Access, c.path = f.access, f.path
	m.NewEpoch = c.server.UID != "" && c.server.UID != f.uid
	if m.NewEpoch {
		c.mapper.Reset() // it describes what the other cluster serves
	}
	c.adoptVersion(f.version, m.NewEpoch)
	c.server.UID = f.uid
	c.prover.adopt(f, m.NewEpoch)
}

// adoptVersion records the API server's version. Another version may serve
// other kinds, and may grant what the former one refused.
func (c *Connection) adoptVersion(version string, newEpoch bool) {
	changed := c.server.Version != "" && version != "" && version != c.server.Version && !newEpoch
	c.server.Version = version
	if !changed {
		return
	}
	c.hooks.Replaced()
	c.cfg.Spawn(func() {
		ctx, cancel := context.WithTimeout(c.cfg.Context, c.cfg.RequestTimeout)
		defer cancel()
		_ = c.mapper.Refresh(ctx) // if it fails, the next look-up of a kind tries again
		c.hooks.Resumed()
	})
}

// publish shows the state to readers.
func (c *Connection) publish(before phase.State) {
	s, old := c.state, c.view.Load()
	v := *old
	v.Phase, v.Since, v.Failure, v.Answers = s.Phase, s.Since, s.Failure, s.Answers
	v.LostSince, v.NextAttempt = s.LostSince, s.NextAttempt()
	v.Checked.count(&before, &s)
	v.Labels = c.labels
	v.Server = c.server
	if s.Phase != before.Phase {
		from := max(len(old.Timeline)-timelineLimit+1, 0)
		v.Timeline = slices.Concat(old.Timeline[from:], []Transition{{
			Time:   s.Since,
			Phase:  s.Phase,
			Reason: s.Reason,
		}})
	}
	epoch := identity.Epoch(fmt.Sprintf("%s/%d", c.server.UID, c.history))
	if c.server.UID != "" && epoch != v.Epoch {
		if v.Epoch != "" {
			v.Resets++
		}
		v.Epoch, v.Client = epoch, newGuarded(&c.prover, &v)
	}

	v.Connected = s.Connected
	switch {
	case s.Connected && !before.Connected:
		v.Connects++
	case !s.Connected && before.Connected:
		v.Up = make(chan struct{})
	}

	c.view.Store(&v)
}

// relabel takes the labels of the cluster from the running attempt, whether or
// not it will succeed.
func (c *Connection) relabel(m message) {
	if c.state.Running != phase.Connect || m.Gen != c.state.Gen || c.labels != nil && maps.Equal(c.labels, m.labels) {
		return
	}
	known := c.labels != nil
	c.labels = m.labels
	c.publish(c.state)
	c.hooks.Relabeled(known)
}

// connectFailed counts a failed attempt to connect.
func (c *Connection) connectFailed(m *message) {
	c.cfg.Metrics.NotConnected(m.Reason)
	if m.Class == phase.NoAccess && c.state.Reason != m.Reason {
		c.hooks.NoAccess()
	}
}

// conclude forgets a cluster that is gone and not wanted.
func (c *Connection) conclude(m message) {
	if c.state.Phase != phase.Gone || c.state.Running != phase.None {
		return
	}
	switch {
	case !c.hooks.Wanted():
		c.hooks.Gone()
	case m.Kind == phase.Removed:
		// The cluster was requested, and seen alive, after the check that
		// released it.
		c.Ask()
	}
}
