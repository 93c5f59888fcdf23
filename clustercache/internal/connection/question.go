// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/identity"
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
	way, by := p.mu.ledger.Way(multiplexed)
	if want.by != nil {
		way, by = identity.Over, want.by
	}
	fresh := p.mu.ledger.Pending() > 0
	number := p.mu.ledger.Number()
	p.mu.Unlock()
	asking := &identity.Query{}
	ctx = context.WithValue(ctx, queryKey{}, asking)

	sent := time.Now()
	uid, err := p.whoAnswers(withIdentityQuery(ctx, &q.over), p.getter(way, by), want.view.UID)
	if again := time.Now(); p.secondOpinion(ctx, q, want.view.UID, err) {
		uid, err, sent = want.view.UID, nil, again
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
	if err == nil && p.mu.ledger.Last().UID != want.view.UID {
		err = ErrMoved // an attempt found another cluster meanwhile
	}
	k, _ := q.over.(*provenConn)
	fresh = fresh || p.mu.ledger.Unproven(k) // the query made it
	if err == nil {
		p.mu.ledger.Proven(number, sent, k, k.number())
	}
	p.mu.ledger.Concluded(asking)
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

// getter returns what sends a query that way.
func (p *prover) getter(way identity.Way, by *provenConn) getter {
	switch way {
	case identity.Anew:
		return p.c.transport.ProbeAnew
	case identity.Over:
		return func(ctx context.Context, path string) (transport.Proof, error) {
			return p.c.transport.ProbeOver(ctx, path, by)
		}
	default:
		return p.c.transport.ProbeAside
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
	due := p.mu.ledger.AsksWithheld(time.Now())
	p.mu.Unlock()

	if due {
		found, err := p.c.kubeSystemUID(ctx, ask)
		if !withheld(err) {
			return found, err
		}
		p.mu.Lock()
		p.mu.ledger.Withheld(time.Now())
		p.mu.Unlock()
	}

	return uid, p.c.discovers(ctx, ask)
}

// verdictLocked records how a query ended, and returns the message that follows
// for the cluster: none, unless queries fail for a while or have done so.
func (p *prover) verdictLocked(err error) *message {
	var verdict identity.Verdict
	switch class := transport.Classify(err); {
	case err == nil:
		verdict = p.mu.ledger.Answered()
	case errors.Is(err, errOtherCluster), errors.Is(err, ErrMoved),
		class == transport.Throttled, class == transport.Cut, class == transport.Canceled:
		return nil // these are reported in other ways, or caused by us
	default:
		verdict = p.mu.ledger.Failed(time.Now())
	}
	switch verdict {
	case identity.Recognized:
		return &message{Event: phase.Event{Kind: phase.Recognized}}
	case identity.Unrecognized:
		m := failure("", err)
		m.Kind = phase.Unrecognized
		return &m
	default:
		return nil
	}
}

// lookAtVersion queries the API server's version periodically, and when another
// process may have answered: servers are upgraded in place. Another version is
// reason enough to query everything again.
func (p *prover) lookAtVersion(ctx context.Context, fresh bool) {
	known := p.c.view.Load().Version
	p.mu.Lock()
	wanted := p.mu.ledger.Replaced(fresh, time.Now())
	p.mu.Unlock()

	if version := p.version(ctx, p.c.probeAside, known, wanted); version != "" && version != known {
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	}
}

// version queries the API server's version if that is due, and returns known
// otherwise.
func (p *prover) version(ctx context.Context, ask getter, known string, wanted bool) string {
	p.mu.Lock()
	due := p.mu.ledger.AsksVersion(wanted, time.Now())
	p.mu.Unlock()

	if !due {
		return known
	}
	version := p.c.serverVersion(ctx, ask)
	p.mu.Lock()
	p.mu.ledger.VersionAnswered(version != "")
	p.mu.Unlock()
	return version
}
