// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"net"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// A cluster may have several API servers behind one address. A connection leads
// to one of these members, and what a member answers is no verdict on the
// cluster: one may be draining before its end, or unable to check credentials,
// while every new connection would be well. So before a verdict the question is
// asked over another connection. If that is answered better, the first
// connection is left.

// sickPause is the time between two questions over a new connection while the
// cluster's server goes on to answer that it is not well, and between two
// connections over HTTP/1.1 that are left because they refused a request.
const sickPause = 30 * time.Second

// probe queries the server's health.
func (a *attempt) probe() message {
	began := time.Now()
	_, err := a.health(a.ctx, a.start.path)
	a.cfg.Metrics.Probed(began, err)
	if err != nil {
		return message{Event: failure(a.start.revision, err)}
	}
	return message{Event: phase.Event{Kind: phase.Succeeded, Revision: a.start.revision}}
}

// health queries the server's health over the access in use: over a kept
// connection and, if what is answered may be that of one member alone, over a
// new one. What would disconnect the cluster is asked over a new connection
// first. The better of two answers counts.
func (a *attempt) health(ctx context.Context, path string) (answered string, err error) {
	p := a.prover
	var over, fresh net.Conn
	kept := func() (string, error) { return p.queries.alive(recorded(ctx, &over), p.probeAside, path) }
	anew := func() (string, error) { return p.queries.alive(recorded(ctx, &fresh), p.transport.ProbeAnew, path) }
	if a.start.lastChance {
		answered, err = anew()
		if class, _ := classify(err); err == nil || class == phase.Unreachable || class == phase.Rejected {
			if other, again := kept(); badness(again) < badness(err) {
				answered, err = other, again
			} else if badness(again) > badness(err) {
				p.leave(over)
			}
		}
	} else {
		answered, err = kept()
		doubtful := transport.Classify(err) == transport.Unauthorized ||
			unhealthy(err) != nil && (!a.start.sick || p.signs.opinions.Allow())
		if doubtful {
			if other, again := anew(); badness(again) < badness(err) {
				answered, err = other, again
				p.leave(over)
			}
		}
	}
	p.signs.unhealthy.Store(unhealthy(err) != nil)
	if ctx.Value(proofKey{}) != nil && p.otherClusterAnswered() {
		p.condemn(over)
		p.condemn(fresh)
	}

	return answered, err
}

// badness orders what is answered to a query of the health.
func badness(err error) int {
	switch {
	case err == nil:
		return 0
	case unhealthy(err) != nil:
		return 1
	}
	return 2
}

// leave uses a connection no longer: it leads to a member that answers worse
// than another one. What it already carries goes on. A connection without a
// proof carries nothing, and is closed, since nothing will be asked over it.
func (p *prover) leave(over net.Conn) {
	k, ok := over.(*provenConn)
	if !ok {
		return
	}
	unproven := p.unproven(k)
	p.transport.Leave(k)
	if unproven {
		_ = k.Close()
	}
	p.cfg.Log.V(1).Info("Connection left, since another one is answered better", "cluster", p.queries.cluster)
	p.hooks.Resumed()
}

// suspect asks for the identity over a connection that refused a request. The
// server may have refused that request alone, such as an extension server, or
// it may be a member that refuses everything. A connection that carries one
// request at a time is left without a question.
func (p *prover) suspect(v *View, over net.Conn, multiplexed bool) {
	k, ok := over.(*provenConn)
	switch {
	case !ok, !v.Connected:
		return
	case multiplexed && !k.suspicions.Allow():
		return
	case !multiplexed:
		if p.suspicions.Allow() {
			p.leave(over)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	p.askLocked(expectation{view: v, by: k})
}
