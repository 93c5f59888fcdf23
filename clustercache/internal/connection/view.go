// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"net/http"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
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
