// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/identity"
)

// View is the state of a connection that readers see. It is immutable, and
// replaced as a whole.
type View struct {
	Phase     phase.Phase
	Since     time.Time
	Connected bool
	Up        chan struct{} // closed while connected
	Epoch     identity.Epoch
	Client    *http.Client // for the informers, bound to epoch
	Server
	Labels    map[string]string // nil while they are unknown
	Connects  int
	Resets    int
	Checked   Checks
	LostSince time.Time
	// NextAttempt is when the next attempt is due; see phase.State.NextAttempt.
	NextAttempt time.Time
	phase.Failure
	phase.Answers
	// Timeline has the last changes of the phase, the latest last. It is never
	// longer than timelineLimit.
	Timeline []Transition
}

// Checks counts what was learned, while connected, of whether the server lives.
type Checks struct {
	// Healthy counts probes that were answered, and those that a sign of life
	// made unnecessary; Unhealthy those that were not answered.
	Healthy, Unhealthy int
}

// count adds what a step has learned.
func (c *Checks) count(before, now *phase.State) {
	if !before.Connected {
		return
	}
	if now.LastSuccess.After(before.LastSuccess) {
		c.Healthy++
	}
	if now.Missed > before.Missed {
		c.Unhealthy++
	}
}

// Server is what the last successful attempt to connect found.
type Server struct {
	UID     string
	Version string
	Access  resolver.Access
	// AccessSince is when the use of Access began.
	AccessSince time.Time
	// Endpoint is scheme, host and port of the address that Access leads to, or
	// of that of the last attempt while there was none.
	Endpoint string
}

// timelineLimit bounds a Timeline: with 48 bytes each, the transitions of a
// cluster take no more than 576 bytes. Their reasons are constants.
const timelineLimit = 12

// Transition is a change of phase.
type Transition struct {
	Time   time.Time
	Phase  phase.Phase
	Reason string
}

// View returns the current state.
func (c *Connection) View() *View { return c.view.Load() }

// publish shows the state to readers.
func (c *Connection) publish(before phase.State) {
	s, old := c.state, c.view.Load()
	v, fresh := *old, false
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
		v.Epoch = epoch
		fresh = true
	}

	v.Connected = s.Connected
	switch {
	case s.Connected && !before.Connected:
		v.Connects++
	case !s.Connected && before.Connected:
		v.Up = make(chan struct{})
	}

	if fresh {
		v.Client = newGuarded(c, &v)
	}
	c.view.Store(&v)
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
