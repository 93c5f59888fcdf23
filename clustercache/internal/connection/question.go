// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// question is one identity query.
type question struct {
	done chan struct{}
	err  error    // set before done is closed
	over net.Conn // the connection that it used; only for the goroutine that sends it
}

// withIdentityQuery returns a context that marks the requests of a query, and
// records the connection that the last of them used.
func withIdentityQuery(ctx context.Context, over *net.Conn) context.Context {
	return recorded(context.WithValue(ctx, proofKey{}, true), over)
}

// recorded returns a context that records the connection that the last of its
// requests used.
func recorded(ctx context.Context, over *net.Conn) context.Context {
	return transport.WithConnCheck(ctx, func(_ context.Context, c net.Conn) error {
		*over = c
		return nil
	})
}

// askLocked returns the query under way, or a new one; nil after Stop.
func (p *prover) askLocked(want expectation) *question {
	if p.mu.flight != nil {
		return p.mu.flight
	}
	q := &question{done: make(chan struct{})}
	if !p.c.cfg.Spawn(func() { p.ask(q, want) }) {
		return nil
	}
	p.mu.flight = q
	return q
}

// ask sends the query.
func (p *prover) ask(q *question, want expectation) {
	ctx, cancel := context.WithTimeout(p.c.cfg.Context, 2*p.c.cfg.ProbeTimeout)
	defer cancel()

	multiplexed := p.c.transport.Multiplexed()
	p.mu.Lock()
	over, anew := p.wayLocked(multiplexed)
	if k, ok := want.over.(*provenConn); ok {
		over, anew = p.overOne(k), false
	}
	fresh := p.pendingLocked() > 0
	p.mu.seq++
	number := p.mu.seq
	p.mu.Unlock()

	sent := time.Now()
	uid, err := p.whoAnswers(withIdentityQuery(ctx, &q.over), over, want.view.UID)
	if again := time.Now(); p.secondOpinion(ctx, q, want.view.UID, err) {
		uid, err, sent, anew = want.view.UID, nil, again, true
	}
	switch {
	case err == nil && uid == want.view.UID:
	case err == nil && presumed(want.view.UID):
		// The right to read the UID was granted. The refresh makes the UID the
		// identity.
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	case err == nil:
		err = errOtherCluster
		if before := p.other.Swap(&want.view.Epoch); before == nil || *before != want.view.Epoch {
			p.c.hooks.Doubted() // once: the attempt that is to resolve it may fail for hours
		}
		p.condemn(q.over)
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	case transport.Classify(err) == transport.Unauthorized:
		p.c.post(message{Event: phase.Event{Kind: phase.Unauthorized, Revision: p.c.transport.Revision()}})
	case withheld(err) && !presumed(want.view.UID):
		// The right to read the UID was withdrawn. The refresh derives an
		// identity instead; without it, no request would ever get past here.
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	}

	p.mu.Lock()
	if err == nil && p.mu.last.uid != want.view.UID {
		err = ErrMoved // an attempt found another cluster meanwhile
	}
	fresh = fresh || p.unprovenLocked(q.over) // the query made it
	if err == nil {
		p.provenLocked(number, sent, q.over, anew)
	}
	verdict := p.verdictLocked(err)
	p.mu.flight, q.err = nil, err
	close(q.done)
	p.mu.Unlock()

	if verdict != nil {
		p.c.post(*verdict)
	}
	p.c.noteBroken(err)
	p.schedule(err != nil)
	if err == nil {
		p.lookAtVersion(ctx, fresh)
	}
}

// wayLocked returns how the next query is sent. anew means that it is sent over
// a newer connection than all those without a proof. If these are all shared,
// the query needs no connection of its own: it is sent over the newest of them.
func (p *prover) wayLocked(multiplexed bool) (ask getter, anew bool) {
	t := p.c.transport
	var newest *provenConn
	for c, made := range p.mu.open {
		switch {
		case !c.adopted.Load():
		case !c.shared || !multiplexed:
			return t.ProbeAnew, true
		case newest == nil || made > p.mu.open[newest]:
			newest = c
		}
	}

	if newest == nil {
		return t.ProbeAside, false
	}
	return p.overOne(newest), false
}

// overOne returns a getter that prefers one connection.
func (p *prover) overOne(k *provenConn) getter {
	return func(ctx context.Context, path string) (transport.Proof, error) {
		return p.c.transport.ProbeOver(ctx, path, k)
	}
}

// whoAnswers queries the identity where uid answered before. Where that is
// withheld, it queries something else that only an API server answers, and
// periodically checks whether the identity is still withheld.
func (p *prover) whoAnswers(ctx context.Context, ask getter, uid string) (string, error) {
	if !presumed(uid) {
		return p.c.kubeSystemUID(ctx, ask)
	}
	p.mu.Lock()
	due := time.Since(p.mu.withheld) >= withheldAge
	p.mu.Unlock()

	if due {
		found, err := p.c.kubeSystemUID(ctx, ask)
		if !withheld(err) {
			return found, err
		}
		p.mu.Lock()
		p.mu.withheld = time.Now()
		p.mu.Unlock()
	}

	return uid, p.c.discovers(ctx, ask)
}

// verdictLocked records how a query ended, and returns the message that follows
// for the cluster: none, unless queries fail for a while or have done so. A
// server may answer probes, and everything else, with successes without
// content.
func (p *prover) verdictLocked(err error) *message {
	switch class := transport.Classify(err); {
	case err == nil && p.mu.failing.IsZero():
		return nil
	case err == nil:
		p.mu.failing = time.Time{}
		return &message{Event: phase.Event{Kind: phase.Recognized}}
	case errors.Is(err, errOtherCluster), errors.Is(err, ErrMoved),
		class == transport.Throttled, class == transport.Cut, class == transport.Canceled:
		return nil // these are reported in other ways, or caused by us
	case p.mu.failing.IsZero():
		p.mu.failing = time.Now()
		return nil
	case time.Since(p.mu.failing) < proofRetry:
		return nil
	}

	m := failure("", err)
	m.Kind = phase.Unrecognized
	return &m
}

// lookAtVersion queries the API server's version periodically, and when another
// process may have answered: servers are upgraded in place. Another version is
// reason enough to query everything again.
func (p *prover) lookAtVersion(ctx context.Context, fresh bool) {
	known := p.c.view.Load().Version
	p.mu.Lock()
	p.mu.version.upgraded = p.mu.version.upgraded || fresh
	// Over HTTP/1.1 this may cost a connection, which is a reason for an
	// identity query, and that must not cause another query of the version.
	wanted := p.mu.version.upgraded && time.Since(p.mu.version.asked) >= proofSoon
	p.mu.Unlock()

	if version := p.version(ctx, p.c.probeAside, known, wanted); version != "" && version != known {
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	}
}

// version queries the API server's version if that is due, and returns known
// otherwise. A query that is not answered is not repeated early for any reason:
// over HTTP/1.1 each one that hangs costs a connection, and the new connection
// would be a reason to query again.
func (p *prover) version(ctx context.Context, ask getter, known string, wanted bool) string {
	p.mu.Lock()
	age := versionAge
	if p.mu.version.lastUnanswered && p.mu.version.everAnswered {
		age = versionRetry
	}
	due := (wanted && !p.mu.version.lastUnanswered) || time.Since(p.mu.version.asked) >= age
	if due {
		p.mu.version.asked, p.mu.version.upgraded = time.Now(), false
	}
	p.mu.Unlock()

	if !due {
		return known
	}
	version := p.c.serverVersion(ctx, ask)
	p.mu.Lock()
	p.mu.version.lastUnanswered = version == ""
	p.mu.version.everAnswered = p.mu.version.everAnswered || !p.mu.version.lastUnanswered
	p.mu.Unlock()
	return version
}
