// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/transport"
)

const (
	// proofTries is how often a request queries because a connection was made
	// meanwhile. proofPause is the wait before the second repetition; it
	// doubles.
	proofTries = 9
	proofPause = 10 * time.Millisecond
)

// prover queries the identity of a cluster for the requests that need it: the
// namespace kube-system with the expected UID. Package identity decides what is
// proven, and which query proves more.
//
//	dial ──► unproven ──► query over it, or over a newer connection ──► proven
//	          ├─ a request that is to use it waits here, before its first byte is
//	          │  sent: in the dial, or when it is given the connection
//	          └─ another cluster answers ──► closed
//
// There is one query at a time, whatever the number of requests that wait for
// it.
type prover struct {
	cfg       *Config
	hooks     Hooks
	transport *transport.Transport
	view      *atomic.Pointer[View]
	signs     *signs
	queries   queries
	report    func(phase.Event) // posts an event to the connection

	tick *timetable.Timer // renews the proof in time
	// opinions limits the queries that are repeated over a new connection, and
	// suspicions the connections over HTTP/1.1 that refused a request.
	opinions, suspicions *rate.Limiter

	other atomic.Pointer[identity.Epoch] // the epoch in which another cluster answered; nil: none

	mu struct {
		sync.Mutex // only the lock of Config.Spawn is taken under it

		ledger identity.Ledger[*provenConn]
		flight *question
		// confirming is the query over the connections of watches.
		confirming *question
	}
}

// need is what has to be proven of the connections of a cluster.
type need = identity.Need[*provenConn]

// expectation is the cluster that is expected to answer.
type expectation struct {
	need

	view *View
	// tolerant means that a server that is too busy for a query may be read for a
	// while without a proof.
	tolerant bool
	// by is the connection to query over; nil: any that serves.
	by *provenConn
}

// otherClusterAnswered reports whether another cluster answered, and its epoch
// has not begun yet. An answer to a query of an epoch that has ended proves
// nothing.
func (p *prover) otherClusterAnswered() bool {
	epoch := p.other.Load()
	return epoch != nil && *epoch == p.view.Load().Epoch
}

// prove returns nil if the expected cluster is known to answer, and queries
// its identity if necessary.
func (p *prover) prove(ctx context.Context, want expectation) error {
	if presumed(want.view.UID) {
		return nil
	}
	want.All = true
	return p.until(ctx, want)
}

// ended records that a watch ended, at its time or early.
func (p *prover) ended(early bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.mu.ledger.Ended(early)
}

// still returns nil if an answer came from the epoch of v. It is called before
// anything of the answer is read. The answer may have come over a connection
// that another request made meanwhile.
func (p *prover) still(ctx context.Context, v *View) error {
	switch {
	case p.otherClusterAnswered():
		return errOtherCluster
	case p.view.Load().Epoch != v.Epoch:
		return ErrMoved
	case p.pending():
		return p.prove(ctx, expectation{view: v, need: need{Age: identity.Age}})
	}

	return nil
}

// after queries the identity anew.
func (p *prover) after(ctx context.Context, v *View, over net.Conn) error {
	if presumed(v.UID) {
		return nil
	}
	k, _ := over.(*provenConn)
	err := p.until(ctx, expectation{view: v, need: need{After: p.number()}, by: k})
	if errors.Is(err, errOtherCluster) || errors.Is(err, ErrMoved) {
		return err
	}
	return nil
}

// until queries the identity until what is needed is proven. Of a server that
// withholds its identity, nothing is.
func (p *prover) until(ctx context.Context, want expectation) error {
	for try := range proofTries {
		if try > 1 && !timetable.Sleep(ctx, jittered(proofPause<<(try-2))) {
			return context.Cause(ctx)
		}
		if p.otherClusterAnswered() {
			return errOtherCluster
		}
		if p.view.Load().Epoch != want.view.Epoch {
			return ErrMoved
		}
		p.mu.Lock()
		if p.mu.ledger.Contradicts(want.view.UID) {
			p.mu.Unlock()
			return ErrMoved
		}
		if presumed(want.view.UID) || p.mu.ledger.Satisfies(want.need, time.Now()) {
			p.mu.Unlock()
			return nil
		}
		q := p.askLocked(want)
		p.mu.Unlock()

		if err := q.answered(ctx); err != nil {
			if p.tolerable(err, want) {
				return nil
			}
			return err
		}
	}

	return errUnsteady
}

// tolerable reports whether informers may continue for a while without the
// proof that they requested: a busy server refuses the query, but serves the
// informers. Other reads and writes never continue without a proof.
func (p *prover) tolerable(err error, want expectation) bool {
	if transport.Classify(err) != transport.Throttled || !want.tolerant {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.mu.ledger.Tolerates(time.Now())
}

// unproven reports whether a connection has no proof.
func (p *prover) unproven(over net.Conn) bool {
	k, _ := over.(*provenConn)
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.mu.ledger.Unproven(k)
}

// pending reports whether there are connections in use without a proof.
func (p *prover) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.mu.ledger.Pending() > 0
}

// number returns the number of a query that is about to be sent, or of a
// connection that is about to be made.
func (p *prover) number() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.mu.ledger.Number()
}

// adopt records the proof that an attempt to connect brought. With another
// epoch, which is about to begin, what answered in the present one stays true.
func (p *prover) adopt(f *result, newEpoch bool) {
	again := !newEpoch && p.otherClusterAnswered()
	if !newEpoch || !p.otherClusterAnswered() { // the epoch that another one answered in may be the next one
		p.other.Store(nil)
	}
	if again {
		p.hooks.Doubted()
	}
	p.mu.Lock()
	k, _ := f.over.(*provenConn)
	proof := identity.Proof{UID: f.uid, Sent: f.sent, Number: f.number}
	p.mu.ledger.Adopted(f.use, f.moved, proof, k, k.number())
	if presumed(f.uid) {
		p.mu.ledger.Withheld(f.sent)
	}
	p.mu.Unlock()

	p.schedule(false)
}

// renew queries the identity if the proof is about to be too old for reads, or
// a connection for which no request waits has none.
func (p *prover) renew() {
	v := p.view.Load()
	if !v.Connected {
		return
	}
	if p.otherClusterAnswered() { // the attempt that was to resolve it has failed
		p.report(phase.Event{Kind: phase.Doubted})
		p.schedule(true)
		return
	}
	now := time.Now()
	p.mu.Lock()
	due := !p.mu.ledger.Due(presumed(v.UID), now).After(now)
	if due {
		p.askLocked(expectation{view: v})
	}
	p.mu.Unlock()

	if !due {
		p.schedule(false)
	}
}

// schedule sets the timer for the next renewal; failed means that the last
// query was not answered.
func (p *prover) schedule(failed bool) {
	v, now := p.view.Load(), time.Now()
	var at time.Time
	switch {
	case v.Connected && failed:
		at = now.Add(identity.Retry)
	case v.Connected:
		p.mu.Lock()
		at = p.mu.ledger.Due(presumed(v.UID), now)
		p.mu.Unlock()
	}
	p.cfg.Timers.Set(p.tick, at)
}
