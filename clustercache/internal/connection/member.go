// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/identity"
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

// health queries the server's health over the access in use: over a kept
// connection and, if what is answered may be that of one member alone, over a
// new one. What would disconnect the cluster is asked over a new connection
// first. The better of two answers counts.
func (a *attempt) health(ctx context.Context, path string) (answered string, err error) {
	c := a.c
	var over, fresh net.Conn
	kept := func() (string, error) { return c.alive(recorded(ctx, &over), c.probeAside, path) }
	anew := func() (string, error) { return c.alive(recorded(ctx, &fresh), c.transport.ProbeAnew, path) }
	if a.start.lastChance {
		answered, err = anew()
		if class, _ := classify(err); err == nil || class == phase.Unreachable || class == phase.Rejected {
			if other, again := kept(); badness(again) < badness(err) {
				answered, err = other, again
			} else if badness(again) > badness(err) {
				c.leave(over)
			}
		}
	} else {
		answered, err = kept()
		doubtful := transport.Classify(err) == transport.Unauthorized ||
			unhealthy(err) != nil && (!a.start.sick || c.signs.opinions.due(sickPause))
		if doubtful {
			if other, again := anew(); badness(again) < badness(err) {
				answered, err = other, again
				c.leave(over)
			}
		}
	}
	c.signs.unhealthy.Store(unhealthy(err) != nil)
	if ctx.Value(proofKey{}) != nil && c.prover.otherClusterAnswered() {
		c.prover.condemn(over)
		c.prover.condemn(fresh)
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
func (c *Connection) leave(over net.Conn) {
	k, ok := over.(*provenConn)
	if !ok {
		return
	}
	unproven := c.prover.unproven(k)
	c.transport.Leave(k)
	if unproven {
		_ = k.Close()
	}
	c.cfg.Log.V(1).Info("Connection left, since another one is answered better", "cluster", c.name)
	c.hooks.Resumed()
}

// rarely limits how often something is done.
type rarely struct {
	mu   sync.Mutex // protects last; nothing else is locked under it
	last time.Time
}

// due reports whether the last time was at least pause ago, and counts this one
// if so.
func (r *rarely) due(pause time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	now := time.Now()
	if !r.last.IsZero() && now.Sub(r.last) < pause {
		return false
	}
	r.last = now
	return true
}

// perhapsAlone reports whether an error is the answer of a member that others
// may not give to an identity query.
func perhapsAlone(err error, expected string) bool {
	switch transport.Classify(err) {
	case transport.Unauthorized, transport.Server, transport.NotKubernetes:
		return true
	}
	return withheld(err) && !presumed(expected)
}

// secondOpinion repeats an identity query that was answered badly over a new
// connection. If the expected cluster answers there, the first connection is
// left. It reports whether that answer counts.
func (p *prover) secondOpinion(ctx context.Context, q *question, uid string, err error) bool {
	if !perhapsAlone(err, uid) || !p.opinions.due(identity.Retry) {
		return false
	}
	var over net.Conn
	found, err := p.whoAnswers(withIdentityQuery(ctx, &over), p.c.transport.ProbeAnew, uid)
	if err != nil || found != uid {
		return false
	}
	p.c.leave(q.over)
	q.over = over

	return true
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
	case multiplexed && !k.suspicions.due(identity.Soon):
		return
	case !multiplexed:
		if p.suspicions.due(sickPause) {
			p.c.leave(over)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	p.askLocked(expectation{view: v, by: k})
}
