// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"

	"github.com/fleetcache/fleetcache/internal/dial"
	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// streamsPerLane is how many requests share one HTTP/2 connection. It is
// kube-apiserver's limit, and net/http's assumption until the server sends its
// own.
const streamsPerLane = 100

// lane is an http.Transport that never gets more requests than one HTTP/2
// connection has streams. With more, an http.Transport dials once for each
// excess request and throws most of these connections away: a hundred watches
// that resume together would cause a storm of TLS handshakes. HTTP/1.1 uses one
// lane, on which net/http may dial freely.
type lane struct {
	g         *generation
	transport *http.Transport

	// Guarded by g.mu:
	inflight int      // requests between their admission and the end of their bodies
	ready    int      // connections known to be usable
	dialing  *dialing // the connection being made, if any
	left     bool     // not one of g.lanes any more: it admits no more requests
}

// dialing is one attempt to get a connection. One request makes it while the
// others wait for the result.
type dialing struct {
	done chan struct{} // closed at the end
	err  error         // why there is no connection; set before done is closed
}

// admission is the right to send one request on a lane. If it holds a dialing,
// its request makes the connection for the requests that wait.
type admission struct {
	*lane

	dialing *dialing // nil if the connection exists
}

// enter admits a request to a lane once the lane has its connection. Waiting
// ends with ctx, or with the generation (errGone).
func (g *generation) enter(ctx context.Context) (admission, error) {
	for {
		a, wait, err := g.tryEnter()
		if err != nil || wait == nil {
			return a, err
		}
		select {
		case <-wait.done:
			if wait.err != nil && !g.replaced() { // the newer access may do better
				return admission{}, wait.err
			}
		case <-g.done:
			return admission{}, errGone
		case <-ctx.Done():
			return admission{}, fmt.Errorf("%w: %w", h2.ErrWaiting, ctx.Err())
		}
	}
}

// enterGet is like enter, for a request that a mux can send.
func (g *generation) enterGet(ctx context.Context) (admission, error) {
	if g.mux.multiplexed() {
		return g.mux.enter()
	}
	return g.enter(ctx)
}

// tryEnter admits the request, or returns the dialing to wait for.
func (g *generation) tryEnter() (_ admission, wait *dialing, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.cause != nil || g.retired {
		return admission{}, nil, errGone
	}
	l := g.laneLocked()
	if l.ready == 0 && l.dialing != nil {
		return admission{}, l.dialing, nil
	}
	return g.admitLocked(l), nil, nil
}

// admitLocked admits a request to l. If l has no connection, the request makes
// one.
func (g *generation) admitLocked(l *lane) admission {
	a := admission{lane: l}
	if l.ready == 0 {
		l.dialing = &dialing{done: make(chan struct{})}
		a.dialing = l.dialing
	}
	l.inflight++
	g.inflight++

	return a
}

// laneLocked returns the lane for the next request. It prefers a lane that has
// a connection.
func (g *generation) laneLocked() *lane {
	var cold *lane
	for _, l := range g.lanes {
		switch {
		case g.multiplexed && l.inflight >= streamsPerLane:
		case l.ready > 0:
			return l
		case cold == nil:
			cold = l
		}
	}

	if cold == nil {
		cold = g.newLane()
		g.lanes = append(g.lanes, cold)
	}
	return cold
}

func (g *generation) newLane() *lane {
	l := &lane{g: g}
	l.transport = g.newTransport(l.dial)
	switch {
	case g.mux.multiplexed():
		l.transport.IdleConnTimeout = writesIdleTimeout
	case g.mux != nil:
		l.transport.DialTLSContext = l.dialTLS
	}
	return l
}

// enterProof admits a probe. It never waits for a connection that another
// request makes, because that request may be waiting for the result of the
// probe. If anew is true, the probe gets a new connection: that of a lane that
// has none and will go on to use it, or one for this probe alone.
func (g *generation) enterProof(anew bool) (admission, error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.cause != nil || g.retired {
		return admission{}, errGone
	}
	return g.admitLocked(g.proofLaneLocked(anew)), nil
}

// proofLaneLocked returns a lane that has a connection, unless anew demands a
// new one. Otherwise it returns a lane on which no connection is being made.
func (g *generation) proofLaneLocked(anew bool) *lane {
	var cold *lane
	for _, l := range g.lanes {
		switch {
		case g.multiplexed && l.inflight >= streamsPerLane:
		case l.ready > 0 && !anew:
			return l
		case l.ready == 0 && l.dialing == nil:
			cold = l
		}
	}

	switch {
	case cold != nil:
	case len(g.lanes) == 0:
		cold = g.newLane()
		g.lanes = append(g.lanes, cold)
	default:
		cold = g.newLane()
		cold.transport.DisableKeepAlives = true
	}

	return cold
}

// connected counts the connection that a dialing produced. It ends the dialing
// as soon as its request has the connection, long before the response.
func (a admission) connected(info httptrace.GotConnInfo) {
	if a.dialing == nil {
		return
	}
	c, multiplexed := connOf(info.Conn)
	g := a.g
	g.mu.Lock()
	defer g.mu.Unlock()

	if _, open := g.cuts[c]; c != nil && open {
		g.multiplexed = multiplexed
		if !c.ready {
			c.ready = true
			a.ready++
		}
	}

	a.finishLocked(nil)
}

// connects reports whether the request has no connection yet.
func (a admission) connects() bool {
	a.g.mu.Lock()
	defer a.g.mu.Unlock()

	return a.dialing != nil && a.lane.dialing == a.dialing
}

// finish ends the dialing. It is a no-op if there is none or it has already
// ended. If err is not nil, the waiting requests fail with it instead
// of each repeating the attempt.
func (a admission) finish(err error) {
	a.g.mu.Lock()
	defer a.g.mu.Unlock()

	a.finishLocked(err)
}

func (a admission) finishLocked(err error) {
	if a.dialing == nil || a.lane.dialing != a.dialing {
		return
	}
	a.lane.dialing = nil
	a.dialing.err = err
	close(a.dialing.done)
}

// ended returns the cause if requests on the lane have been ended, or else nil.
// Watches may be ended before the rest.
func (l *lane) ended(watch bool) error {
	if cause := l.g.ended(); cause != nil {
		return cause
	}
	if watch && l.g.unwatched.Load() {
		return ErrSuperseded
	}
	return nil
}

// release undoes the admission of one request.
func (l *lane) release() {
	g := l.g
	g.mu.Lock()
	l.inflight--
	g.inflight--
	drained := g.retired && g.inflight == 0
	left := l.left
	g.mu.Unlock()

	switch {
	case drained:
		g.end(ErrSuperseded)
	case left:
		l.transport.CloseIdleConnections()
	}
}

// leave admits no more requests to the connection that Options.Dial returned as
// over, or, over net/http, to its lane.
func (g *generation) leave(over net.Conn) {
	g.mu.Lock()
	l := g.ofLocked(over)
	if l != nil && l.transport != nil {
		l.left = true
		g.lanes = slices.DeleteFunc(g.lanes, func(other *lane) bool { return other == l })
	}
	g.mu.Unlock()

	switch {
	case l == nil:
	case l.transport != nil:
		l.transport.CloseIdleConnections()
	default:
		g.mux.transport.Leave(same(over))
	}
}

// ofLocked returns the lane of the connection that Options.Dial returned as
// over, or nil.
func (g *generation) ofLocked(over net.Conn) *lane {
	for c := range g.cuts {
		if c, ok := c.(*conn); ok && c.Conn == over {
			return c.l
		}
	}
	return nil
}

// enterOver admits a request to the lane of a connection of net/http. It
// reports whether there is one that can take the request.
func (g *generation) enterOver(over net.Conn) (admission, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.cause != nil || g.retired {
		return admission{}, false
	}
	l := g.ofLocked(over)
	if l == nil || l.transport == nil || l.left || l.ready == 0 || g.multiplexed && l.inflight >= streamsPerLane {
		return admission{}, false
	}
	return g.admitLocked(l), true
}

// dial is the DialContext of the lane's transport. net/http runs it
// independently of the request that needs the connection, so only the end of
// the generation can stop it.
func (l *lane) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.overflowing()
	ctx, release := l.g.bind(ctx, false)
	defer release()

	c, err := l.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// connect makes a connection that the end of the generation cuts.
func (l *lane) connect(ctx context.Context, network, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dial.Timeout) // net/http sets no deadline
	defer cancel()

	nc, err := l.g.dialer(ctx, network, address)
	if err != nil {
		return nil, &trusted{err: err}
	}
	c := &conn{Conn: nc, l: l}
	if !l.g.add(c) { // the generation ended during the dial
		_ = nc.Close()
		return nil, l.g.cause
	}

	return c, nil
}

// overflowing records that net/http dials although the lane has a connection:
// that connection accepts no new streams, because the server is about to close
// it (GOAWAY) or allows fewer than usual. The next request starts a dialing.
func (l *lane) overflowing() {
	g := l.g
	g.mu.Lock()
	defer g.mu.Unlock()

	if !g.multiplexed || l.dialing != nil || l.ready == 0 {
		return
	}
	for c := range g.cuts {
		if c, ok := c.(*conn); ok && c.l == l && c.ready {
			c.ready = false
		}
	}
	l.ready = 0
}

// lost removes a closed connection from the count.
func (l *lane) lost(c *conn) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()

	delete(l.g.cuts, c)
	if c.ready {
		c.ready = false
		l.ready--
	}
}
