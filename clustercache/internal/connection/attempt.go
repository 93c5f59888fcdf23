// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// fallbackPath is queried where the probe path is forbidden or missing. Every
// Kubernetes API has it, and the default rules let every client read it.
const fallbackPath = "/version"

// discoveryPath is queried where everything else is forbidden: the default
// rules let every authenticated client read it.
const discoveryPath = "/api"

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
	c       *Connection
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
	calls, asOf := a.c.cfg.Calls, a.changes.Load()
	// The end of a.ctx, by contrast, is waited for: work heeds it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), bound*a.c.cfg.ProbeTimeout)
	defer cancel()
	m, err := callback.Until(ctx, calls, name, func() (m message, err error) {
		err = calls.Call(name, func() error {
			m = a.work(a)
			return nil
		}, "cluster", a.c.name)
		return m, err
	}, func(late message, _ error) { late.found.drop() })
	if err != nil {
		m = failure(a.start.revision, err)
		m.Changes = asOf // without Changes, the next attempt would follow at once
	}

	m.Gen = a.gen
	a.c.post(m)
}

// notify passes a newer value of Changes to the attempt. It does not wait.
func (a *attempt) notify(changes uint64) {
	a.changes.Store(changes)
	select {
	case a.renewed <- struct{}{}:
	default:
	}
}

// result is the result of a connect attempt.
type result struct {
	candidate *transport.Candidate // nil: the access already in use was proven
	access    resolver.Access
	uid       string
	version   string // not queried without a candidate
	path      string
	use       *identity.Access // of the candidate's connections; nil without a candidate
	moved     bool             // which lead to another address
	number    uint64           // number of the identity query
	sent      time.Time        // when that query was sent
	over      net.Conn         // the connection of that query
}

// drop closes the candidate of a result that is not adopted.
func (f *result) drop() {
	if f != nil && f.candidate != nil {
		f.candidate.Close()
	}
}

// getter sends one GET and returns what the answer proves.
type getter func(ctx context.Context, path string) (transport.Proof, error)

// probe queries the server's health.
func (a *attempt) probe() message {
	began := time.Now()
	_, err := a.health(a.ctx, a.start.path)
	a.c.cfg.Metrics.Probed(began, err)
	if err != nil {
		return failure(a.start.revision, err)
	}
	return message{Event: phase.Event{Kind: phase.Succeeded, Revision: a.start.revision}}
}

// alive queries path, or else the fallback, and returns the path that was
// answered. A server that authenticates the client and forbids both paths is
// alive, and so is a server that is too busy to answer. One that answers that
// its checks fail is so as well, and results in an unhealthyError.
func (c *Connection) alive(ctx context.Context, ask getter, path string) (answered string, err error) {
	err = c.askOnce(ctx, ask, path)
	class := transport.Classify(err)
	if path != fallbackPath && (class == transport.Forbidden || class == transport.NotFound) {
		path = fallbackPath
		err = c.askOnce(ctx, ask, path)
	}
	c.signs.busy.noteProbe(err)
	if class := transport.Classify(err); class == transport.Forbidden || class == transport.Throttled {
		return path, nil
	}
	return path, err
}

func (c *Connection) askOnce(ctx context.Context, ask getter, path string) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProbeTimeout)
	defer cancel()
	proof, err := ask(ctx, path)
	return diagnose(proof, err)
}

// failure returns the message for an attempt that ended with err.
func failure(revision string, err error) message {
	m := message{Event: phase.Event{Kind: phase.Failed, Revision: revision, Err: err}}
	m.Class, m.Reason = classify(err)
	m.Early = errors.Is(err, resolver.ErrNotReady)
	m.Alive = unhealthy(err) != nil
	return m
}

// Reason returns the reason of an error, in one word.
func Reason(err error) string {
	_, reason := classify(err)
	return reason
}

// classify returns the class and the reason of an error.
func classify(err error) (phase.Class, string) {
	if _, ok := errors.AsType[*resolver.RefusedError](err); ok {
		return phase.Policy, ReasonRefused
	}
	if _, ok := errors.AsType[*resolver.KubeconfigError](err); ok {
		return phase.Trouble, ReasonBadAccess
	}
	if unhealthy(err) != nil {
		return phase.Trouble, ReasonUnhealthy
	}
	switch {
	case goneForSure(err):
		return phase.NoCluster, ReasonClusterNotFound
	case errors.Is(err, resolver.ErrNoAccess):
		return phase.NoAccess, ReasonNoAccess
	case errors.Is(err, resolver.ErrKeyMissing):
		return phase.Trouble, ReasonBadAccess
	}

	class := transport.Classify(err)
	switch class {
	case transport.Unauthorized:
		return phase.Rejected, string(class)
	case transport.Refused:
		return phase.Policy, string(class)
	case transport.Throttled:
		return phase.Busy, string(class)
	case transport.Unreachable:
		if _, ok := errors.AsType[*net.DNSError](err); ok {
			return phase.Trouble, string(class) // says nothing about the server
		}
		return phase.Unreachable, string(class)
	default:
		return phase.Trouble, string(class)
	}
}
