// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"net"
	"time"

	"github.com/fleetcache/fleetcache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/seam"
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
	return seam.WithConnCheck(ctx, func(_ context.Context, c net.Conn) error {
		*over = c
		return nil
	})
}

// askLocked returns the question under way, or a new one; nil after the end of the ClusterCache.
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
		_ = p.c.seam.Warm(ctx) // a server that cannot be reached fails the question, too
	}
	p.mu.Lock()
	q.warming = false
	fresh := p.pendingLocked() > 0
	p.seq++
	number := p.seq
	p.mu.Unlock()

	sent := time.Now()
	over := p.c.seam.ProbeAside
	if fresh {
		over = p.c.seam.ProbeAnew
	}
	uid, err := p.c.kubeSystemUID(asked(ctx, &q.over), over)
	switch {
	case err == nil && uid == want.view.uid:
	case err == nil:
		err = errOtherCluster
		p.other.Store(&want.view.epoch)
		p.condemn(q.over)
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	case withheld(err):
		// The right to ask was taken away. The refresh concludes an identity instead; without it, no request would ever
		// get past here.
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	}

	p.mu.Lock()
	if err == nil {
		p.provenLocked(number, sent, q.over, fresh)
	}
	p.flight, q.err = nil, err
	close(q.done)
	p.mu.Unlock()
	p.schedule(err != nil)
	if err == nil {
		p.lookAtVersion(ctx, fresh)
	}
}

// lookAtVersion asks for the API server's version from time to time, and after it may have been another process that
// answered: servers are upgraded in place. Another version is doubt enough to ask for all again.
func (p *prover) lookAtVersion(ctx context.Context, fresh bool) {
	known := p.c.view.Load().version
	p.mu.Lock()
	p.upgraded = p.upgraded || fresh
	// Over HTTP/1.1 it may cost a connection, which is a reason for a question, and
	// that must not be one to ask for the version again.
	wanted := p.upgraded && time.Since(p.versioned) >= proofSoon
	p.mu.Unlock()
	if version := p.version(ctx, p.c.seam.ProbeAside, known, wanted); version != "" && version != known {
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
	}
}

// version asks for the API server's version if that is due, and returns known if it is not. A question that is not answered is
// not repeated before its time, whatever speaks for it: over HTTP/1.1 each that hangs costs a connection, and the new one
// would be a reason to ask again.
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
