// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/sanitize"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// maxAsked is how many times in a row the resolver is queried because it
// reported a change during the query. After that its answer is used: a steady
// stream of changes must not keep a cluster from being connected.
const maxAsked = 3

var errOutdated = errors.New("the resolver has another answer meanwhile")

// connect resolves the access, proves it and identifies the cluster:
//  1. query the resolver;
//  2. if the access is unchanged and not in doubt, or failed last and is not due
//     again, stop without a request;
//  3. query the server's health, over a candidate connection if the access is
//     new;
//  4. query its identity, also if it answered that it is not well: what works
//     there is used, except while it starts.
//
// The access in use keeps serving meanwhile.
func (a *attempt) connect() message {
	defer a.cfg.Metrics.Tried(time.Now())
	access, asOf, err := a.resolve()
	if err != nil {
		m := message{Event: failure("", err)}
		m.Changes = asOf
		return m
	}

	revision := access.Revision()
	switch {
	case a.start.connected && revision == a.start.revision && !a.start.prove && !a.prover.pending():
		return message{Event: phase.Event{
			Kind:     phase.Succeeded,
			Revision: revision,
			Changes:  asOf,
			Unproven: true,
		}}
	case revision == a.start.held:
		return message{Event: phase.Event{
			Kind:     phase.Failed,
			Class:    phase.Same,
			Revision: revision,
			Changes:  asOf,
		}}
	}

	return a.proveUnlessOutdated(access, asOf)
}

// resolve queries the resolver, and repeats the query if a change was reported
// meanwhile: the resolver may have read its data before the change. The answer
// is at least as new as asOf, a value of Changes.
func (a *attempt) resolve() (access resolver.Access, asOf uint64, err error) {
	for range maxAsked {
		asOf = a.changes.Load()
		access, err = a.lookup.access(a.ctx)
		if err == nil {
			a.post(message{Event: phase.Event{Kind: phase.Resolved, Gen: a.gen}, labels: access.Labels()})
		}
		if a.changes.Load() == asOf || a.ctx.Err() != nil {
			break
		}
	}

	return access, asOf, err
}

// proveUnlessOutdated proves the access. If a change is reported meanwhile, it
// queries the resolver concurrently, and cancels the proof if the answer has
// changed: the proof may be waiting for an address that is no longer right.
func (a *attempt) proveUnlessOutdated(access resolver.Access, asOf uint64) message {
	ctx, cut := context.WithCancelCause(a.ctx)
	defer cut(nil)
	proven := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-proven:
				return
			case <-a.renewed:
			}
			if a.changes.Load() == asOf {
				continue // that change preceded the query of the resolver
			}
			again, newer, err := a.resolve()
			class, _ := classify(err)
			switch {
			case err == nil && again.Revision() == access.Revision():
				asOf = newer
			case err == nil, class != phase.Trouble: // otherwise the resolver failed, which is no answer
				cut(errOutdated)
				return
			}
		}
	})
	m := a.prove(ctx, access)
	close(proven)
	// A running query of the resolver is not interrupted: its answer decides
	// whether another attempt is needed.
	asking.Wait()
	m.Changes = asOf

	return m
}

// prove queries the server's health and its identity.
func (a *attempt) prove(ctx context.Context, access resolver.Access) message {
	p, revision := a.prover, access.Revision()
	found := &result{access: access}
	query := &identity.Query{}
	defer p.concluded(query)
	ctx = context.WithValue(ctx, queryKey{}, query)
	ask, identify := p.probeAside, p.transport.ProbeAnew
	if !a.start.connected || revision != a.start.revision {
		config := access.Config()
		a.endpoint, found.use = endpointOf(config.Host), &identity.Access{}
		config.Dial = p.dials(a.cfg.Dialer(access, config.Dial), found.use)
		if !access.Proxied() {
			// nil means no proxy. With any function, whatever it returns, the
			// transport's own HTTP/2 could not be used.
			config.Proxy = nil
		}
		candidate, err := p.transport.Candidate(config, revision)
		if err != nil {
			return message{Event: failure(revision, err)}
		}
		found.candidate, ask, identify = candidate, candidate.Get, candidate.Get
	}

	var err, sick error
	found.path, err = a.well(ctx, ask, found)
	if e := unhealthy(err); e != nil && (a.start.connected || !e.starting) {
		sick, err = err, nil // its identity shows whether it is the cluster
	}
	if err == nil {
		err = a.identify(ctx, identify, found)
	}
	if err == nil && presumed(found.uid) {
		// A server that shows no identity may be anything: a server behind a
		// wrong path, or one that treats the client as anonymous. Both answer
		// the health and version paths, which are public, so these prove
		// nothing.
		err = p.queries.discovers(ctx, ask)
		if err == nil && sick != nil && found.uid != a.start.uid {
			err = sick // which may be why it does not identify itself
		}
	}

	if err != nil {
		found.drop()
		switch transport.Classify(err) {
		case transport.Server, transport.Timeout, transport.Unreachable:
			err = cmp.Or(sick, err) // the cause
		}
		if transport.Classify(err) == transport.Throttled && a.start.connected && revision == a.start.revision {
			// The server is busy, and alive.
			return message{Event: phase.Event{Kind: phase.Succeeded, Revision: revision, Unproven: true}}
		}
		return message{Event: failure(revision, err)}
	}

	known := ""
	if found.candidate == nil {
		known = p.view.Load().Version
	}
	found.version = p.version(ctx, ask, known, true)
	m := message{Event: phase.Event{Kind: phase.Succeeded, Revision: revision}, found: found}
	if sick != nil {
		m.Alive, m.Err, m.Reason = true, sick, ReasonUnhealthy
	}

	return m
}

// endpointOf returns scheme, host and port of a server's address: its path and
// query may be secret, and so may a user in it.
func endpointOf(host string) string {
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return ""
	}
	return sanitize.Text((&url.URL{Scheme: u.Scheme, Host: u.Host}).String())
}

// well queries the server's health. A connection made for that query stays with
// the attempt: otherwise the identity query that each new connection triggers
// could find the other cluster again, and close the connection under the
// request. If another cluster has answered, health closes every connection
// without a proof: a later identity query, over a newer connection, could not
// prove which cluster answers on them.
func (a *attempt) well(ctx context.Context, ask getter, found *result) (path string, err error) {
	if found.candidate == nil {
		return a.health(context.WithValue(ctx, proofKey{}, true), a.cfg.ProbePath)
	}
	path, err = a.prover.queries.alive(ctx, ask, a.cfg.ProbePath)
	a.prover.signs.unhealthy.Store(unhealthy(err) != nil)

	return path, err
}

// identify queries the identity. If the access in use fails over a new
// connection, it asks over another one, and over a kept one, which may be the
// one that was refused.
func (a *attempt) identify(ctx context.Context, ask getter, found *result) (err error) {
	p := a.prover
	found.number, found.sent = p.number(), time.Now()
	found.uid, err = p.queries.identify(withIdentityQuery(ctx, &found.over), ask, found.access, a.start.uid)
	if found.candidate != nil || err == nil || withheld(err) || transport.Classify(err) == transport.Throttled {
		return err
	}
	for _, again := range []getter{ask, p.transport.ProbeAside} {
		failed, number, sent := found.over, p.number(), time.Now()
		uid, e := p.queries.identify(withIdentityQuery(ctx, &found.over), again, found.access, a.start.uid)
		if e == nil {
			p.leave(failed)
			found.uid, found.number, found.sent = uid, number, sent
			return nil
		}
	}

	return err
}
