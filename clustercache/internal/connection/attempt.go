// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// start is the part of a cluster's state that an attempt works from, as of its
// start.
type start struct {
	connected bool
	prove     bool
	revision  string
	held      string // the revision that the server must not be queried with; empty: none
	path      string
	uid       string
	// lastChance means that the cluster is disconnected if the query of its
	// health fails once more.
	lastChance bool
	sick       bool // the last query of its health was answered so
}

// attempt is one job of the workers: a connect or a probe. Its context derives
// from that of the ClusterCache, not from that of a caller.
type attempt struct {
	cfg    *Config
	lookup *lookup
	prover *prover
	post   func(message) bool

	ctx     context.Context //nolint:containedctx // the attempt waits in a queue of jobs
	cancel  context.CancelFunc
	gen     uint64
	start   start
	work    func(*attempt) message
	changes atomic.Uint64 // the latest phase.State.Changes
	// endpoint is the address of new access; belongs to work until its result
	// is posted.
	endpoint string
	renewed  chan struct{} // one slot: changes has increased
}

// bound is how many times ProbeTimeout an attempt may take in all: more than
// its requests, and queries of the resolver, take together if each takes as long
// as it may. What ignores the end of its context leaves a goroutine behind then,
// instead of an attempt without an end.
const bound = 24

func (a *attempt) run() {
	defer a.cancel()
	const name = "transport of the access"
	asOf := a.changes.Load()
	// The end of a.ctx, by contrast, is waited for: work heeds it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), bound*a.cfg.ProbeTimeout)
	defer cancel()
	m, err := callback.Until(ctx, a.cfg.Calls, name, func() (message, error) { return a.work(a), nil },
		func(late message, _ error) { late.found.drop() }, "cluster", a.lookup.name)
	if err != nil {
		m = message{Event: failure(a.start.revision, err)}
		m.Changes = asOf // without Changes, the next attempt would follow at once
	}

	m.Gen = a.gen
	a.post(m)
}

// notify passes a newer value of Changes to the attempt. It does not wait.
func (a *attempt) notify(changes uint64) {
	a.changes.Store(changes)
	timetable.Wake(a.renewed)
}
