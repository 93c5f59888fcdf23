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

// answered waits for a query, and returns its error, or that of ctx. A nil query
// is one after Stop.
func (q *question) answered(ctx context.Context) error {
	if q == nil {
		return ErrClosed
	}
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// askLocked returns the query under way, or a new one; nil after Stop.
func (p *prover) askLocked(want expectation) *question {
	return p.flyLocked(&p.mu.flight, func(q *question) { p.ask(q, want) })
}

// flyLocked returns the query in flight, or sends a new one; nil after Stop.
func (p *prover) flyLocked(flight **question, send func(*question)) *question {
	if *flight == nil {
		q := &question{done: make(chan struct{})}
		if !p.cfg.Spawn(func() { send(q) }) {
			return nil
		}
		*flight = q
	}
	return *flight
}

// ask sends the query.
func (p *prover) ask(q *question, want expectation) {
	ctx, cancel := context.WithTimeout(p.cfg.Context, 2*p.cfg.ProbeTimeout)
	defer cancel()

	multiplexed := p.transport.Multiplexed()
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
		p.report(phase.Event{Kind: phase.Doubted})
	case err == nil:
		err = errOtherCluster
		if before := p.other.Swap(&want.view.Epoch); before == nil || *before != want.view.Epoch {
			p.hooks.Doubted() // once: the attempt that is to resolve it may fail for hours
		}
		p.condemn(q.over)
		p.report(phase.Event{Kind: phase.Doubted})
	case transport.Classify(err) == transport.Unauthorized:
		p.report(phase.Event{Kind: phase.Unauthorized, Revision: p.transport.Revision()})
	case withheld(err) && !presumed(want.view.UID):
		// The right to read the UID was withdrawn. The refresh derives an
		// identity instead; without it, no request would ever get past here.
		p.report(phase.Event{Kind: phase.Doubted})
	}

	p.mu.Lock()
	if err == nil && p.mu.ledger.Last().UID != want.view.UID {
		err = ErrMoved // an attempt found another cluster meanwhile
	}
	k, _ := q.over.(*provenConn)
	fresh = fresh || p.mu.ledger.Unproven(k) // the query made it
	if err == nil {
		p.mu.ledger.Proven(number, sent, k, k.number())
		if k != nil && p.mu.ledger.IsConfirmed(k) {
			k.confirmed.Store(true)
		}
	}
	p.mu.ledger.Concluded(asking)
	verdict := p.verdictLocked(err)
	p.mu.flight, q.err = nil, err
	close(q.done)
	p.mu.Unlock()

	if verdict != nil {
		p.report(*verdict)
	}
	p.noteBroken(err)
	p.schedule(err != nil)
	if err == nil {
		p.lookAtVersion(ctx, fresh)
	}
}

// getter returns what sends a query that way.
func (p *prover) getter(way identity.Way, by *provenConn) getter {
	switch way {
	case identity.Anew:
		return p.transport.ProbeAnew
	case identity.Over:
		return func(ctx context.Context, path string) (transport.Proof, error) {
			return p.transport.ProbeOver(ctx, path, by)
		}
	default:
		return p.transport.ProbeAside
	}
}

// whoAnswers queries the identity where uid answered before. Where that is
// withheld, it queries something else that only an API server answers, and
// periodically checks whether the identity is still withheld.
func (p *prover) whoAnswers(ctx context.Context, ask getter, uid string) (string, error) {
	if !presumed(uid) {
		return p.queries.kubeSystemUID(ctx, ask)
	}
	p.mu.Lock()
	due := p.mu.ledger.AsksWithheld(time.Now())
	p.mu.Unlock()

	if due {
		found, err := p.queries.kubeSystemUID(ctx, ask)
		if !withheld(err) {
			return found, err
		}
		p.mu.Lock()
		p.mu.ledger.Withheld(time.Now())
		p.mu.Unlock()
	}

	return uid, p.queries.discovers(ctx, ask)
}

// verdictLocked records how a query ended, and returns the event that follows
// for the cluster: none, unless queries fail for a while or have done so.
func (p *prover) verdictLocked(err error) *phase.Event {
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
		return &phase.Event{Kind: phase.Recognized}
	case identity.Unrecognized:
		e := failure("", err)
		e.Kind = phase.Unrecognized
		return &e
	default:
		return nil
	}
}

// lookAtVersion queries the API server's version periodically, and when another
// process may have answered: servers are upgraded in place. Another version is
// reason enough to query everything again.
func (p *prover) lookAtVersion(ctx context.Context, fresh bool) {
	known := p.view.Load().Version
	p.mu.Lock()
	wanted := p.mu.ledger.Replaced(fresh, time.Now())
	p.mu.Unlock()

	if version := p.version(ctx, p.probeAside, known, wanted); version != "" && version != known {
		p.report(phase.Event{Kind: phase.Doubted})
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
	version := p.queries.version(ctx, ask)
	p.mu.Lock()
	p.mu.ledger.VersionAnswered(version != "")
	p.mu.Unlock()
	return version
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
	if !perhapsAlone(err, uid) || !p.opinions.Allow() {
		return false
	}
	var over net.Conn
	found, err := p.whoAnswers(withIdentityQuery(ctx, &over), p.transport.ProbeAnew, uid)
	if err != nil || found != uid {
		return false
	}
	p.leave(q.over)
	q.over = over

	return true
}

// probeAside queries path. If that needs a new connection, or finds one that has
// no proof, an identity query follows.
func (p *prover) probeAside(ctx context.Context, path string) (transport.Proof, error) {
	if ctx.Value(proofKey{}) == nil {
		ctx = transport.WithConnCheck(ctx, func(_ context.Context, over net.Conn) error {
			if p.unproven(over) {
				p.soon()
			}
			return nil
		})
	}
	return p.transport.ProbeAside(ctx, path)
}

// soon starts a query that no request waits for. Connections that lead to
// another cluster for a moment are detected in that moment.
func (p *prover) soon() {
	v := p.view.Load()
	if !v.Connected || presumed(v.UID) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.askLocked(expectation{view: v})
}
