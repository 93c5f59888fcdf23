// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
)

// streamsPerLane is how many requests share one HTTP/2 connection:
// kube-apiserver's limit, and what net/http assumes until a server says
// otherwise.
const streamsPerLane = 100

// lane is an http.Transport that is never asked for more streams than one
// HTTP/2 connection takes. A transport that is asked for more dials once for
// every request too many, and throws most of these connections away: a hundred
// watches that resume together would be a storm of TLS handshakes. HTTP/1.1 has
// one lane, on which net/http is free to dial.
type lane struct {
	g         *generation
	transport *http.Transport

	// Guarded by g.mu:
	inflight int    // requests from admission to the end of their bodies
	ready    int    // connections that are known to be usable
	round    *round // the connection being made, if any
}

// round is one attempt to get a connection, made by one request while the
// others wait for how it ends.
type round struct {
	done chan struct{} // closed at the end
	err  error         // why there is no connection; set before done is closed
}

// ticket is the right to send one request on a lane. The holder of a round
// makes the connection for those who wait.
type ticket struct {
	*lane

	round *round // nil: the connection is there
}

// enter admits a request to a lane once the lane has its connection. Waiting
// ends with ctx, and with the generation (errGone).
func (g *generation) enter(ctx context.Context) (ticket, error) {
	for {
		t, wait, err := g.tryEnter()
		if err != nil || wait == nil {
			return t, err
		}
		select {
		case <-wait.done:
			if wait.err != nil {
				return ticket{}, wait.err
			}
		case <-g.done:
			return ticket{}, errGone
		case <-ctx.Done():
			return ticket{}, ctx.Err()
		}
	}
}

// tryEnter admits the request, or returns the round to wait for.
func (g *generation) tryEnter() (t ticket, wait *round, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.cause != nil {
		return ticket{}, nil, errGone
	}
	l := g.laneLocked()
	if l.ready == 0 && l.round != nil {
		return ticket{}, l.round, nil
	}
	t = ticket{lane: l}
	if l.ready == 0 {
		l.round = &round{done: make(chan struct{})}
		t.round = l.round
	}
	l.inflight++
	g.inflight++
	return t, nil, nil
}

// laneLocked returns the lane for the next request: one that has a connection
// before one that has not.
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
	return l
}

// enterProof admits a question who answers. It never waits for a connection
// that another request makes, since that one may wait for the answer. anew has
// the question go over a new connection: that of a lane which has none, and is
// going to use it, or one for this question alone.
func (g *generation) enterProof(anew bool) (ticket, error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.cause != nil {
		return ticket{}, errGone
	}
	l := g.proofLaneLocked(anew)
	t := ticket{lane: l}
	if l.ready == 0 {
		l.round = &round{done: make(chan struct{})}
		t.round = l.round
	}
	l.inflight++
	g.inflight++
	return t, nil
}

// proofLaneLocked picks a lane that has a connection, unless it is to be a new
// one, or one on which none is being made.
func (g *generation) proofLaneLocked(anew bool) *lane {
	var cold *lane
	for _, l := range g.lanes {
		switch {
		case g.multiplexed && l.inflight >= streamsPerLane:
		case l.ready > 0 && !anew:
			return l
		case l.ready == 0 && l.round == nil:
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

// connected counts the connection that a round brought, and ends the round as
// soon as its request has the connection, long before the response.
func (t ticket) connected(info httptrace.GotConnInfo) {
	if t.round == nil {
		return
	}
	c, multiplexed := connOf(info)
	g := t.g
	g.mu.Lock()
	defer g.mu.Unlock()

	if _, open := g.cuts[c]; c != nil && open {
		g.multiplexed = multiplexed
		if !c.ready {
			c.ready = true
			t.ready++
		}
	}
	t.finishLocked(nil)
}

// finish ends the round; a no-op without one, or if it ended before. The
// requests that waited fail with err, if there is one, instead of each trying
// the same again.
func (t ticket) finish(err error) {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()

	t.finishLocked(err)
}

func (t ticket) finishLocked(err error) {
	if t.round == nil || t.lane.round != t.round {
		return
	}
	t.lane.round = nil
	t.round.err = err
	close(t.round.done)
}

// leave undoes the admission of one request.
func (l *lane) leave() {
	g := l.g
	g.mu.Lock()
	l.inflight--
	g.inflight--
	drained := g.retired && g.inflight == 0
	g.mu.Unlock()

	if drained {
		g.end(ErrSuperseded)
	}
}

// dial is the transport's DialContext. net/http runs it apart from the request
// that wanted it, so only the end of the generation can stop it.
func (l *lane) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.overflowing()
	ctx, release := l.g.bind(ctx, false)
	defer release()

	nc, err := l.g.dialer(ctx, network, address)
	if err != nil {
		return nil, &trusted{err: err}
	}
	c := &conn{Conn: nc, l: l}
	if !l.g.add(c) { // it ended while the dial was on its way back
		_ = nc.Close()
		return nil, l.g.cause
	}
	return c, nil
}

// overflowing notes that net/http dials although the lane has a connection:
// that one takes no new streams, because the server is about to close it
// (GOAWAY) or allows fewer than usual. The next request starts a round.
func (l *lane) overflowing() {
	g := l.g
	g.mu.Lock()
	defer g.mu.Unlock()

	if !g.multiplexed || l.round != nil || l.ready == 0 {
		return
	}
	for c := range g.cuts {
		if c, ok := c.(*conn); ok && c.l == l && c.ready {
			c.ready = false
		}
	}
	l.ready = 0
}

// lost takes a closed connection out of the count.
func (l *lane) lost(c *conn) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()

	delete(l.g.cuts, c)
	if c.ready {
		c.ready = false
		l.ready--
	}
}
