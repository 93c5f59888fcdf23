// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// question is one question who answers.
type question struct {
	done    chan struct{}
	err     error    // set before done is closed
	warming bool     // connections are being made that the question will prove; protected by the prover's lock
	over    net.Conn // what it went over; the asker's alone
}

// asked returns a context that marks the requests of a question, and notes the
// connection over which the last of them went.
func asked(ctx context.Context, over *net.Conn) context.Context {
	ctx = context.WithValue(ctx, proofKey{}, true)
	return transport.WithConnCheck(ctx, func(_ context.Context, c net.Conn) error {
		*over = c
		return nil
	})
}

// askLocked returns the question under way, or a new one; nil after the end of
// the ClusterCache.
func (p *prover) askLocked(want claim) *question {
	if p.flight != nil {
		return p.flight
	}
	q := &question{done: make(chan struct{}), warming: want.warm}
	if !p.c.cc.spawn(func() { p.ask(q, want) }) {
		return nil
	}
	p.flight = q
	return q
}

// ask sends the question.
func (p *prover) ask(q *question, want claim) {
	ctx, cancel := context.WithTimeout(p.c.cc.ctx, 2*p.c.cc.options.ProbeTimeout)
	defer cancel()

	if q.warming {
		_ = p.c.transport.Warm(ctx) // a server that cannot be reached fails the question, too
	}
	p.mu.Lock()
	q.warming = false
	fresh := p.pendingLocked() > 0
	p.seq++
	number := p.seq
	p.mu.Unlock()

	sent := time.Now()
	over := p.c.transport.ProbeAside
	if fresh {
		over = p.c.transport.ProbeAnew
	}
	uid, err := p.whoAnswers(asked(ctx, &q.over), over, want.view.uid)
	switch {
	case err == nil && uid == want.view.uid:
	case err == nil && presumed(want.view.uid):
		// The right to ask was granted. The refresh makes it the identity.
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	case err == nil:
		err = errOtherCluster
		p.other.Store(&want.view.epoch)
		p.condemn(q.over)
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	case withheld(err) && !presumed(want.view.uid):
		// The right to ask was taken away. The refresh concludes an identity
		// instead; without it, no request would ever get past here.
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	}

	p.mu.Lock()
	if err == nil && p.uid != want.view.uid {
		err = errMoved // an attempt found another cluster meanwhile
	}
	if err == nil {
		p.provenLocked(number, sent, q.over, fresh)
	}
	verdict := p.verdictLocked(err)
	p.flight, q.err = nil, err
	close(q.done)
	p.mu.Unlock()
	if verdict != nil {
		p.c.post(*verdict)
	}
	p.schedule(err != nil)
	if err == nil {
		p.lookAtVersion(ctx, fresh)
	}
}

// whoAnswers asks who answers where uid did. Where that is withheld, it asks
// for another answer that only an API server gives, and from time to time
// whether it is withheld still.
func (p *prover) whoAnswers(ctx context.Context, ask asker, uid string) (string, error) {
	if !presumed(uid) {
		return p.c.kubeSystemUID(ctx, ask)
	}
	p.mu.Lock()
	due := time.Since(p.withheld) >= withheldAge
	p.mu.Unlock()
	if due {
		found, err := p.c.kubeSystemUID(ctx, ask)
		if !withheld(err) {
			return found, err
		}
		p.mu.Lock()
		p.withheld = time.Now()
		p.mu.Unlock()
	}
	return uid, p.c.discovers(ctx, ask)
}

// verdictLocked notes how a question ended, and returns what that says of the
// cluster: nothing, unless questions fail for a while or have done so. A server
// may answer probes, and everything else, with successes that say nothing.
func (p *prover) verdictLocked(err error) *message {
	switch class := transport.Classify(err); {
	case err == nil && p.failing.IsZero():
		return nil
	case err == nil:
		p.failing = time.Time{}
		return &message{Event: phase.Event{Kind: phase.Recognized}}
	case errors.Is(err, errOtherCluster), errors.Is(err, errMoved), class == transport.Throttled, class == transport.Cut, class == transport.Canceled:
		return nil // each is told of in a way of its own, or is our doing
	case p.failing.IsZero():
		p.failing = time.Now()
		return nil
	case time.Since(p.failing) < proofRetry:
		return nil
	}
	m := failure("", err)
	m.Kind = phase.Unrecognized
	return &m
}

// lookAtVersion asks for the API server's version from time to time, and after
// it may have been another process that answered: servers are upgraded in
// place. Another version is doubt enough to ask for all again.
func (p *prover) lookAtVersion(ctx context.Context, fresh bool) {
	known := p.c.view.Load().version
	p.mu.Lock()
	p.upgraded = p.upgraded || fresh
	// Over HTTP/1.1 it may cost a connection, which is a reason for a question,
	// and that must not be one to ask for the version again.
	wanted := p.upgraded && time.Since(p.versioned) >= proofSoon
	p.mu.Unlock()
	if version := p.version(ctx, p.c.transport.ProbeAside, known, wanted); version != "" && version != known {
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	}
}

// version asks for the API server's version if that is due, and returns known
// if it is not. A question that is not answered is not repeated before its
// time, whatever speaks for it: over HTTP/1.1 each that hangs costs a
// connection, and the new one would be a reason to ask again.
func (p *prover) version(ctx context.Context, ask asker, known string, wanted bool) string {
	p.mu.Lock()
	age := versionAge
	if p.secretive && p.outspoken {
		age = versionRetry
	}
	due := (wanted && !p.secretive) || time.Since(p.versioned) >= age
	if due {
		p.versioned, p.upgraded = time.Now(), false
	}
	p.mu.Unlock()
	if !due {
		return known
	}
	version := p.c.serverVersion(ctx, ask)
	p.mu.Lock()
	p.secretive = version == ""
	p.outspoken = p.outspoken || !p.secretive
	p.mu.Unlock()
	return version
}
