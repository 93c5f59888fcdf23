// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
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
	// proofAge is how old the last identity proof may be for a read or a write
	// to rely on it. A connected cluster is queried that often: at any time,
	// there may be another cluster behind a proxy that keeps our connections.
	proofAge = time.Minute
	// proofSoon is proofAge for a list, and for a watch that continues where
	// another ended.
	proofSoon = 5 * time.Second
	// versionAge is the time between two queries of the API server's version.
	versionAge = 5 * time.Minute
	// versionRetry is versionAge if the last query was not answered, and one
	// before was: the server may have been starting, as another version.
	versionRetry = 30 * time.Second
	// busyAge is how old the last proof may be for informers to continue while
	// the server answers 429 to the identity query. It is as short as overloads
	// are, and bounds how long a server is read that may be another one by now,
	// where its silence is the only evidence for that.
	busyAge = 5 * time.Minute
	// proofRetry is the time between two queries that were not answered.
	proofRetry = 5 * time.Second
	// withheldAge is the time between two identity queries to a server that
	// forbids them. Each is a refusal in its audit log.
	withheldAge = 5 * time.Minute
	// proofTries is how often a request queries because a connection was made
	// meanwhile. proofPause is the wait before the second repetition; it
	// doubles.
	proofTries = 9
	proofPause = 10 * time.Millisecond
)

var (
	// errOtherCluster indicates that another cluster than before answers at the
	// address.
	errOtherCluster = fmt.Errorf("%w: another cluster answers", ErrNotConnected)
	// ErrMoved indicates that another history began while a request was under
	// way.
	ErrMoved = fmt.Errorf("%w: another history began during the request", ErrNotConnected)
	// errUnsteady indicates that connections were made faster than the identity
	// could be queried.
	errUnsteady = fmt.Errorf("%w: connections do not last", ErrNotConnected)
)

// prover keeps the identity proof of a cluster: when the namespace kube-system
// was last read with the expected UID, and which connections that did not
// prove. A query proves the connection that it used, and all connections made
// before that one: another cluster may replace the one behind an address at
// some time, but connections made before still lead to the old one.
//
//	dial ──► pending ──► query over it, or over a newer connection ──► proven
//	          ├─ a request that is to use it waits here, before its first byte is
//	          │  sent: in the dial, or when it is given the connection
//	          └─ another cluster answers ──► closed
//
// There is one query at a time, whatever the number of requests that wait for
// it.
type prover struct {
	c    *Connection
	tick *timetable.Timer // renews the proof in time
	// opinions limits the queries that are repeated over a new connection, and
	// suspicions the connections over HTTP/1.1 that refused a request.
	opinions, suspicions rarely

	other atomic.Pointer[informerpool.Epoch] // the epoch in which another cluster answered; nil: none

	mu struct {
		sync.Mutex // only the lock of Config.Spawn is taken under it

		seq    uint64                 // numbers connections and queries in chronological order
		open   map[*provenConn]uint64 // connections without a proof, by when they were made
		last   proof
		ended  ends
		flight *question
		// streams are the connections of watches that were not queried over
		// yet, and confirming is the query that does so.
		streams    map[*provenConn]struct{}
		confirming *question

		failing  time.Time // since when queries fail; zero: the last one did not
		withheld time.Time // when the server last forbade the query
		version  versionQuery
	}
}

// proof is the last proof of the identity.
type proof struct {
	uid    string    // the proven identity; empty: none yet
	sent   time.Time // when the query was sent; zero: none
	number uint64    // of the query
}

// ends are when watches ended, in the order of connections and queries. Another
// cluster may answer since.
type ends struct {
	last  uint64
	early uint64 // before its time
}

// versionQuery is the last query of the server's version.
type versionQuery struct {
	asked          time.Time
	upgraded       bool // another process may have replaced the server since
	lastUnanswered bool // the version was not returned then
	everAnswered   bool // the version was returned once
}

// expectation is the cluster that is expected to answer.
type expectation struct {
	view *View
	age  time.Duration // how old the proof may be
	// anew means that the proof must be newer than the last end of a watch.
	anew bool
	// over is the connection to query over; nil: any that serves.
	over net.Conn
}

func (p *prover) init(c *Connection) {
	p.c = c
	p.mu.open, p.mu.streams = map[*provenConn]uint64{}, map[*provenConn]struct{}{}
	p.tick = timetable.NewTimer(p.renew)
}

// otherClusterAnswered reports whether another cluster answered, and its epoch
// has not begun yet. An answer to a query of an epoch that has ended proves
// nothing.
func (p *prover) otherClusterAnswered() bool {
	epoch := p.other.Load()
	return epoch != nil && *epoch == p.c.view.Load().Epoch
}

// presumed reports whether an identity was derived, because the right to query
// it is missing. No request waits for a proof of it. Instead, discovery is
// queried as often as the identity would be, to see that there is an API server
// at all.
func presumed(uid string) bool { return strings.HasPrefix(uid, presumedPrefix) }

// prove returns nil if the expected cluster is known to answer, and queries
// its identity if necessary.
func (p *prover) prove(ctx context.Context, want expectation) error {
	if presumed(want.view.UID) {
		return nil
	}
	return p.until(ctx, want, func() bool {
		return p.youngLocked(want.age) && (!want.anew || p.mu.last.number >= p.mu.ended.last) && p.pendingLocked() == 0
	})
}

// youngLocked reports whether the last proof is at most as old as age, by both
// clocks: the monotonic clock stands still while a machine sleeps, and the wall
// clock may be set.
func (p *prover) youngLocked(age time.Duration) bool {
	now := time.Now()
	return !p.mu.last.sent.IsZero() && now.Sub(p.mu.last.sent) <= age &&
		now.Round(0).Sub(p.mu.last.sent.Round(0)) <= age
}

// ended records that a watch ended, at its time or early. Later requests need a
// newer proof: a proxy that switches to another cluster and keeps its clients'
// connections ends the watches at the same moment.
func (p *prover) ended(early bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.mu.seq++
	p.mu.ended.last = p.mu.seq
	if early {
		p.mu.ended.early = p.mu.seq
	}
}

// still returns nil if an answer came from the epoch of v. It is called before
// anything of the answer is read. The answer may have come over a connection
// that another request made meanwhile.
func (p *prover) still(ctx context.Context, v *View) error {
	switch {
	case p.otherClusterAnswered():
		return errOtherCluster
	case p.c.view.Load().Epoch != v.Epoch:
		return ErrMoved
	case p.pending():
		return p.prove(ctx, expectation{view: v, age: proofAge})
	}

	return nil
}

// Witnessed returns a context for requests, and a function to call after their
// answers, which queries the identity over the connection of the last of them.
// It returns an error if another cluster answers now, or another history began
// since: then it is not known which the answers belong to. Without an answer to
// the query, the proof that admitted the requests stands.
func (c *Connection) Witnessed(ctx context.Context) (_ context.Context, same func() error) {
	v := c.view.Load()
	var over net.Conn
	ctx = recorded(ctx, &over)
	return ctx, func() error { return c.prover.after(ctx, v, over) }
}

// after queries the identity anew.
func (p *prover) after(ctx context.Context, v *View, over net.Conn) error {
	if presumed(v.UID) {
		return nil
	}
	answered := p.number()
	err := p.until(ctx, expectation{view: v, age: proofAge, over: over}, func() bool {
		return p.mu.last.number > answered
	})
	if errors.Is(err, errOtherCluster) || errors.Is(err, ErrMoved) {
		return err
	}
	return nil
}

// until queries the identity until enough, called with the lock held, returns
// true.
func (p *prover) until(ctx context.Context, want expectation, enough func() bool) error {
	for try := range proofTries {
		if try > 1 && !timetable.Sleep(ctx, jittered(proofPause<<(try-2))) {
			return context.Cause(ctx)
		}
		if p.otherClusterAnswered() {
			return errOtherCluster
		}
		if p.c.view.Load().Epoch != want.view.Epoch {
			return ErrMoved
		}
		p.mu.Lock()
		if p.mu.last.uid != "" && p.mu.last.uid != want.view.UID {
			p.mu.Unlock()
			return ErrMoved // another cluster is proven, whose epoch is about to begin
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

// tolerable reports whether informers may continue for a while without the
// proof that they requested: a busy server refuses the query, but serves the
// informers. There must be no other reason to doubt the identity: no connection
// without a proof, and no watch that ended early. Other reads and writes never
// continue without a proof.
func (p *prover) tolerable(err error, want expectation) bool {
	if transport.Classify(err) != transport.Throttled || !want.anew {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.youngLocked(busyAge) && p.pendingLocked() == 0 && p.mu.last.number >= p.mu.ended.early
}

// provenLocked records an answer that came over a connection. It proves that
// connection, and those made before it. anew means that the connection was made
// for the query, and so is newer than all those made before the query.
func (p *prover) provenLocked(number uint64, sent time.Time, over net.Conn, anew bool) {
	p.mu.last.sent, p.mu.last.number = sent, number
	if p.mu.version.asked.IsZero() {
		p.mu.version.asked = sent
	}
	k, _ := over.(*provenConn)
	before := p.mu.open[k] // 0 if it was proven before
	if anew {
		before = max(before, number)
	}
	for c, made := range p.mu.open {
		if c == k || made < before {
			delete(p.mu.open, c)
		}
	}
}

// pendingLocked returns how many connections in use have no proof.
func (p *prover) pendingLocked() int {
	n := 0
	for c := range p.mu.open {
		if c.adopted.Load() {
			n++
		}
	}
	return n
}

// unprovenLocked reports whether a connection has no proof.
func (p *prover) unprovenLocked(over net.Conn) bool {
	k, _ := over.(*provenConn)
	_, pending := p.mu.open[k]
	return pending
}

// waitsLocked reports whether there are connections that only a query proves.
func (p *prover) waitsLocked(v *View) bool { return !presumed(v.UID) && p.pendingLocked() > 0 }

// pending reports whether there are connections in use without a proof.
func (p *prover) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.pendingLocked() > 0
}

// number returns the number of a query that is about to be sent.
func (p *prover) number() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.mu.seq++
	return p.mu.seq
}

// adopt records the proof that an attempt to connect brought. With another
// epoch, which is about to begin, what answered in the present one stays true.
func (p *prover) adopt(f *result, newEpoch bool) {
	again := !newEpoch && p.otherClusterAnswered()
	if !newEpoch {
		p.other.Store(nil)
	}
	if again {
		p.c.hooks.Doubted()
	}
	p.mu.Lock()
	p.mu.last.uid = f.uid
	p.provenLocked(f.number, f.sent, f.over, !f.kept)
	p.mu.failing = time.Time{}
	if presumed(f.uid) {
		p.mu.withheld = f.sent
	}
	p.mu.Unlock()

	p.schedule(false)
}

// renew queries the identity if the proof is about to be too old for reads, or
// a connection for which no request waits has none.
func (p *prover) renew() {
	v := p.c.view.Load()
	if !v.Connected {
		return
	}
	if p.otherClusterAnswered() { // the attempt that was to resolve it has failed
		p.c.post(message{Event: phase.Event{Kind: phase.Doubted}})
		p.schedule(true)
		return
	}
	p.mu.Lock()
	due := time.Since(p.mu.last.sent) >= proofAge || p.waitsLocked(v)
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
	v := p.c.view.Load()
	var at time.Time
	if v.Connected {
		at = p.due(v, failed)
	}
	p.c.cfg.Timers.Set(p.tick, at)
}

// due returns when the next query is due.
func (p *prover) due(v *View, failed bool) time.Time {
	p.mu.Lock()
	at, pending := p.mu.last.sent.Add(proofAge), p.waitsLocked(v)
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
