// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/transport"
)

const (
	// proofAge is how old the last proof of who answers may be for a read or a
	// write to ride on it. A connected cluster is asked that often: behind a
	// proxy that keeps our connections there may be another cluster at any
	// time.
	proofAge = time.Minute
	// proofSoon is the same for a list, and for a watch that goes on where
	// another ended.
	proofSoon = 5 * time.Second
	// versionAge is the time between two questions after the API server's
	// version.
	versionAge = 5 * time.Minute
	// versionRetry is the same where the last one was not answered, and one
	// before was: the server may have been starting, as another version.
	versionRetry = 30 * time.Second
	// busyAge is how old the last proof may be for informers to go on while the
	// server answers 429 to the question who answers. It is as short as
	// overloads are, and bounds for how long a server that may be another one
	// by now is read where nothing but its silence speaks for that.
	busyAge = 5 * time.Minute
	// proofRetry is the time between two questions that were not answered.
	proofRetry = 5 * time.Second
	// withheldAge is the time between two questions who answers to a server
	// that forbids them. Each is a refusal in its audit log.
	withheldAge = 5 * time.Minute
	// proofTries is how often a request asks because a connection was made
	// meanwhile, and proofPause the wait before the second time, which doubles.
	proofTries = 9
	proofPause = 10 * time.Millisecond
)

var (
	// errOtherCluster indicates that another cluster answers at the address
	// than before.
	errOtherCluster = fmt.Errorf("%w: another cluster answers", ErrNotConnected)
	// errMoved indicates that another history began while a request was under
	// way.
	errMoved = fmt.Errorf("%w: another history began during the request", ErrNotConnected)
	// errUnsteady indicates that connections were made faster than who answers
	// could be asked.
	errUnsteady = fmt.Errorf("%w: connections do not last", ErrNotConnected)
)

// prover keeps the proof of who answers: when the namespace kube-system was
// last read with the expected UID, and which connections that was no proof for.
// A question proves the connection it went over and all that were made before
// that one: another cluster can take the place behind an address from some time
// on, and the connections made before are the old one's.
//
//	dial ──► pending ──► question over it, or over a newer connection ──► proven
//	          ├─ a request that dialled waits here, before its first byte is sent
//	          ├─ one that was given it by the pool waits here, too
//	          └─ another cluster answers ──► closed
//
// There is one question at a time, whatever the number of requests that wait
// for it.
type prover struct {
	c     *cluster
	tick  *timetable.Timer                   // renews the proof in time
	other atomic.Pointer[informerpool.Epoch] // in which another cluster answered; nil: none

	mu     sync.Mutex             // protects what follows; only ClusterCache.life is locked under it
	seq    uint64                 // numbers connections and questions, in the order of time
	open   map[*provenConn]uint64 // connections without a proof, by when they were made
	uid    string                 // of who is proven; empty: nothing was yet
	sent   time.Time              // when the question was sent that the last proof answered; zero: none
	proven uint64                 // the number of that question
	cut    uint64                 // when a watch last ended, in the same order: who answers may have changed just then
	broke  uint64                 // when one last ended before its time
	flight *question
	// streams are the connections of watches that were not asked themselves
	// yet, and confirming is the question that does so.
	streams    map[*provenConn]struct{}
	confirming *question

	failing  time.Time // since when questions fail; zero: the last one did not
	withheld time.Time // when the server last forbade the question

	versioned time.Time // when the server's version was last asked for
	upgraded  bool      // another process may have taken the server's place since
	secretive bool      // it was not answered then
	outspoken bool      // it was answered once
}

// claim is who is expected to answer.
type claim struct {
	view *view
	age  time.Duration // how old the proof may be
	warm bool          // watches follow: their connection is made before the question, so that one question proves it, too
}

func (p *prover) init(c *cluster) {
	p.c = c
	p.open, p.streams = map[*provenConn]uint64{}, map[*provenConn]struct{}{}
	p.tick = timetable.NewTimer(p.renew)
}

// elsewhere reports whether another cluster answered, and its epoch has not
// begun yet. An answer to a question of an epoch that is over by now says
// nothing.
func (p *prover) elsewhere() bool {
	epoch := p.other.Load()
	return epoch != nil && *epoch == p.c.view.Load().epoch
}

// presumed reports whether an identity was concluded, because the right to ask
// is missing. No request waits for a proof of it. That there is an API server
// at all is asked as often as who answers is elsewhere.
func presumed(uid string) bool { return strings.HasPrefix(uid, presumedPrefix) }

// prove returns nil if the cluster of the claim is known to answer, and asks if
// need be.
func (p *prover) prove(ctx context.Context, want claim) error {
	if presumed(want.view.uid) {
		return nil
	}
	return p.until(ctx, want, func() bool {
		return p.youngLocked(want.age) && (!want.warm || p.proven >= p.cut) && p.pendingLocked() == 0
	})
}

// youngLocked reports whether the last proof is at most so old, by both clocks:
// the monotonic one stands still while a machine sleeps, the other one is set.
func (p *prover) youngLocked(age time.Duration) bool {
	now := time.Now()
	return !p.sent.IsZero() && now.Sub(p.sent) <= age && now.Round(0).Sub(p.sent.Round(0)) <= age
}

// ended notes that a watch ended, at its time or before. What follows it needs
// a proof that is newer: a proxy that goes to another cluster, and keeps its
// clients' connections, ends the watches in the same moment.
func (p *prover) ended(early bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.seq++
	p.cut = p.seq
	if early {
		p.broke = p.seq
	}
}

// still returns nil if an answer came from the epoch of v. Nothing of it has
// been read yet. It may have come over a connection that another request made
// meanwhile.
func (p *prover) still(ctx context.Context, v *view) error {
	switch {
	case p.elsewhere():
		return errOtherCluster
	case p.c.view.Load().epoch != v.epoch:
		return errMoved
	case p.pending():
		return p.prove(ctx, claim{view: v, age: proofAge})
	}
	return nil
}

// until asks until enough, called with the lock held, is satisfied.
func (p *prover) until(ctx context.Context, want claim, enough func() bool) error {
	for try := range proofTries {
		if try > 1 && !pause(ctx, jittered(proofPause<<(try-2))) {
			return context.Cause(ctx)
		}
		if p.elsewhere() {
			return errOtherCluster
		}
		if p.c.view.Load().epoch != want.view.epoch {
			return errMoved
		}
		p.mu.Lock()
		if p.uid != "" && p.uid != want.view.uid {
			p.mu.Unlock()
			return errMoved // what is proven is another cluster, whose epoch is about to be shown
		}
		if enough() {
			p.mu.Unlock()
			return nil
		}
		q := p.askLocked(want)
		p.mu.Unlock()
		if q == nil {
			return ErrClosed
		}
		select {
		case <-q.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if q.err != nil && p.tolerable(q.err, want) {
			return nil
		}
		if q.err != nil {
			return q.err
		}
	}
	return errUnsteady
}

// tolerable reports whether informers may go on without the proof they wanted,
// for a while: a server that is busy refuses the question, and serves them.
// There must be no other reason to doubt who answers: no connection without a
// proof, and no watch that ended before its time. Whatever else is read or
// written never goes on without a proof.
func (p *prover) tolerable(err error, want claim) bool {
	if transport.Classify(err) != transport.Throttled || !want.warm {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.youngLocked(busyAge) && p.pendingLocked() == 0 && p.proven >= p.broke
}

// provenLocked notes an answer, which came over a connection. all says that it
// proves every connection made before the question, too.
func (p *prover) provenLocked(number uint64, sent time.Time, over net.Conn, all bool) {
	p.sent, p.proven = sent, number
	if p.versioned.IsZero() {
		p.versioned = sent
	}
	for c, made := range p.open {
		if c == over || (all && made < number) {
			delete(p.open, c)
		}
	}
}

// pendingLocked returns how many connections in use have no proof.
func (p *prover) pendingLocked() int {
	n := 0
	for c := range p.open {
		if c.adopted.Load() {
			n++
		}
	}
	return n
}

// waitsLocked reports whether there are connections that only a question
// proves.
func (p *prover) waitsLocked(v *view) bool { return !presumed(v.uid) && p.pendingLocked() > 0 }

// pending reports whether there are connections in use without a proof.
func (p *prover) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.pendingLocked() > 0
}

// number returns the number of a question that is about to be sent.
func (p *prover) number() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.seq++
	return p.seq
}

// adopt notes the proof that an attempt to connect brought.
func (p *prover) adopt(f *finding) {
	p.other.Store(nil)
	p.mu.Lock()
	p.uid = f.uid
	p.provenLocked(f.number, f.sent, f.over, true)
	p.failing = time.Time{}
	if presumed(f.uid) {
		p.withheld = f.sent
	}
	p.mu.Unlock()
	p.schedule(false)
}

// renew asks if the proof is about to be too old for reads, or a connection has
// none that no request waits for.
func (p *prover) renew() {
	v := p.c.view.Load()
	if !v.connected {
		return
	}
	if p.elsewhere() { // the attempt that was to settle it has failed
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
		p.schedule(true)
		return
	}
	p.mu.Lock()
	due := time.Since(p.sent) >= proofAge || p.waitsLocked(v)
	if due {
		p.askLocked(claim{view: v})
	}
	p.mu.Unlock()
	if !due {
		p.schedule(false)
	}
}

// schedule sets the timer for the next renewal; failed says that the last one
// was not answered.
func (p *prover) schedule(failed bool) {
	v := p.c.view.Load()
	var at time.Time
	if v.connected {
		at = p.due(v, failed)
	}
	p.c.cc.timers.Set(p.tick, at)
}

// due returns when the next question is due.
func (p *prover) due(v *view, failed bool) time.Time {
	p.mu.Lock()
	at, pending := p.sent.Add(proofAge), p.waitsLocked(v)
	p.mu.Unlock()

	now := time.Now()
	switch {
	case failed || at.Before(now):
		return now.Add(proofRetry)
	case pending:
		return now
	}
	return at
}
