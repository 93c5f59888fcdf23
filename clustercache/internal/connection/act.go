// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// awayLong is the length of a disconnect after which the cluster's informers
// are audited soon, and its kinds read again: a backup may have been restored in
// the meantime. It includes the pause before the attempt that succeeded, so that
// the server may have been away for half a minute less.
const awayLong = 90 * time.Second

var errRenewed = errors.New("another history is served")

func (c *Connection) act(a phase.Action) {
	switch a {
	case phase.StartConnect:
		c.startAttempt(c.cfg.Connect, (*attempt).connect)
	case phase.StartProbe:
		c.startAttempt(c.cfg.Probe, (*attempt).probe)
	case phase.Cancel:
		c.attempt.cancel()
	case phase.Notify:
		c.attempt.notify(c.state.Changes)
	case phase.Up:
		if !c.lost.IsZero() && time.Since(c.lost) > awayLong {
			c.hooks.Replaced()
		}
		c.mapper.Invalidate()
		close(c.view.Load().Up)
		c.hooks.Connected()
	case phase.Down:
		c.lost = time.Now()
		c.transport.Shut(c.notConnected())
		c.hooks.Disconnected()
	case phase.Renew:
		c.renewed = time.Now()
		c.hooks.Disconnected()
		// Streams of the old history must end. Those of the current access can
		// only be cut by shutting the transport.
		c.transport.Shut(errRenewed)
		c.mapper.Reset()
		c.transport.Open()
		c.hooks.Connected()
	case phase.Evict:
		c.server.UID, c.server.Version = "", ""
		c.mapper.Reset() // another cluster may take its place
		c.hooks.Evicted()
	case phase.Silence:
		c.hooks.Silent()
	}
}

// startAttempt submits work. Its result carries the generation
// that the attempt was started for.
func (c *Connection) startAttempt(submit func(func()), work func(*attempt) message) {
	a := &attempt{
		cfg:     c.cfg,
		lookup:  &c.lookup,
		prover:  &c.prover,
		post:    c.post,
		gen:     c.state.Gen,
		work:    work,
		renewed: make(chan struct{}, 1),
		start: start{
			connected: c.state.Connected,
			prove:     c.state.Prove || c.state.Replaces,
			revision:  c.server.Access.Revision(),
			path:      c.path,
			uid:       c.server.UID,
			sick:      c.signs.unhealthy.Load(),
			lastChance: c.state.Connected && c.state.Failures > 0 &&
				c.state.Failures+1 >= c.cfg.Phases.FailureThreshold,
		},
	}
	if !c.state.Held.IsZero() {
		a.start.held = c.state.Tried
	}
	a.changes.Store(c.state.Changes)
	a.ctx, a.cancel = context.WithCancel(c.cfg.Context)
	c.attempt = a
	submit(a.run)
}

// announce reports a change of phase, or the first failure.
func (c *Connection) announce(before phase.State) {
	s := c.state
	keys := []any{"cluster", c.name, "phase", s.Phase.String(), "was", before.Phase.String()}
	if s.Reason != "" {
		keys = append(keys, "reason", s.Reason)
	}
	line := "Cluster changed phase"
	if s.Phase == before.Phase {
		line = "Cluster cannot be connected"
	}
	switch {
	case s.Err == nil:
		c.cfg.Log.Info(line, keys...)
	case s.Reason == ReasonBadAccess || s.Reason == ReasonRefused: // a person has to change the Secret or the options
		c.cfg.Log.Error(errors.New(clustername.Omit(c.name, s.Err)), line, keys...)
	default:
		c.cfg.Log.Info(line, append(keys, "error", clustername.Omit(c.name, s.Err))...)
	}
	c.hooks.PhaseChanged(before.Connected == s.Connected)
}

// notConnected returns the error of requests while the cluster is not
// connected. It quotes the cause without wrapping it: wrapped, the error of an
// earlier request would look to the transport like that of the failed one.
func (c *Connection) notConnected() error {
	if err := c.state.Err; err != nil {
		return fmt.Errorf("%w: %s", ErrNotConnected, clustername.Omit(c.name, err))
	}
	if c.state.Phase == phase.Connecting {
		return ErrConnecting
	}
	return ErrNotConnected
}
