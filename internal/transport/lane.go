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
	inflight int      // as in generation
	ready    int      // connections known to be usable
	dialing  *dialing // the connection being made, if any
	left     bool     // not one of g.lanes any more: it admits no more requests
}

// dialing is one attempt of a lane to get a connection. One request makes it
// while the others wait for the result. It may be nil: then there is none.
type dialing struct {
	l    *lane
	done chan struct{} // closed at the end
	err  error         // why there is no connection; set before done is closed
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

// enterAside is like enterGet, but does not wait for a connection that another
// request makes.
func (g *generation) enterAside(context.Context) (admission, error) {
	if g.mux.multiplexed() {
		return g.mux.enter()
	}
	return g.enterProof(false)
}

// enterAnew admits a probe over a new connection.
func (g *generation) enterAnew(context.Context) (admission, error) { return g.enterProof(true) }

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
	return l.admitLocked(), nil, nil
}

// admitLocked admits a request to l. If l has no connection, the request makes
// one.
func (l *lane) admitLocked() admission {
	a := admission{sender: l}
	if l.ready == 0 {
		l.dialing = &dialing{l: l, done: make(chan struct{})}
		a.dialing = l.dialing
	}
	l.inflight++
	l.g.inflight++

	return a
}

// full reports whether all streams of the lane's connection are in use. The
// lock is held.
func (l *lane) full() bool { return l.g.multiplexed && l.inflight >= streamsPerLane }

// laneLocked returns the lane for the next request. It prefers a lane that has
// a connection.
func (g *generation) laneLocked() *lane {
	var cold *lane
	for _, l := range g.lanes {
		switch {
		case l.full():
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
	return g.proofLaneLocked(anew).admitLocked(), nil
}

// proofLaneLocked returns a lane that has a connection, unless anew demands a
// new one. Otherwise it returns a lane on which no connection is being made.
func (g *generation) proofLaneLocked(anew bool) *lane {
	var cold *lane
	for _, l := range g.lanes {
		switch {
		case l.full():
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
func (d *dialing) connected(info httptrace.GotConnInfo) {
	if d == nil {
		return
	}
	c, multiplexed := connOf(info.Conn)
	g := d.l.g
	g.mu.Lock()
	defer g.mu.Unlock()

	if _, open := g.cuts[c]; c != nil && open {
		g.multiplexed = multiplexed
		if !c.ready {
			c.ready = true
			d.l.ready++
		}
	}

	d.finishLocked(nil)
}

// underWay reports whether the request has no connection yet.
func (d *dialing) underWay() bool {
	if d == nil {
		return false
	}
	d.l.g.mu.Lock()
	defer d.l.g.mu.Unlock()

	return d.l.dialing == d
}

// finish ends the dialing. It is a no-op if that has already ended. If err is
// not nil, the waiting requests fail with it instead of each repeating the
// attempt.
func (d *dialing) finish(err error) {
	if d == nil {
		return
	}
	d.l.g.mu.Lock()
	defer d.l.g.mu.Unlock()

	d.finishLocked(err)
}

func (d *dialing) finishLocked(err error) {
	if d == nil || d.l.dialing != d {
		return
	}
	d.l.dialing = nil
	d.err = err
	close(d.done)
}

func (l *lane) of() *generation { return l.g }

// send implements sender.
func (l *lane) send(req *http.Request, d *dialing) (*http.Response, error) {
	req, over := track(req, d)
	return over.ended(l.roundTrip(req))
}

// roundTrip sends a request. The config's own round trippers may wait for
// something that cutting our connections does not end. A watch that shares its
// connection with other requests has to be cut without cutting that connection.
func (l *lane) roundTrip(req *http.Request) (*http.Response, error) {
	watch, next := isWatch(req), l.g.foreign
	if next == nil {
		next = l.transport
	}
	if l.g.foreign == nil && !watch {
		resp, err := next.RoundTrip(req)
		l.g.cluster.notePanic(err)
		return resp, err
	}
	ctx, release := l.g.bind(context.WithValue(req.Context(), laneKey{}, l), watch)
	resp, err := l.g.cluster.callForeign(ctx, next, req.WithContext(ctx))
	if err != nil {
		l.g.cluster.notePanic(err)
		release()
		return nil, err
	}
	resp.Body = &releasing{ReadCloser: resp.Body, release: release}

	return resp, nil
}

// sendable implements sender: net/http repeats by itself what it can.
func (l *lane) sendable(*http.Request, error) bool { return false }

// release implements sender.
func (l *lane) release() {
	l.g.mu.Lock()
	l.inflight--
	left := l.left
	l.g.mu.Unlock()

	if left {
		l.transport.CloseIdleConnections()
	}
	l.g.release()
}

// leave admits no more requests to the connection that Options.Dial returned as
// over, or, over net/http, to its lane.
func (g *generation) leave(over net.Conn) {
	g.mu.Lock()
	c := g.connLocked(over)
	if c != nil && c.l != nil {
		c.l.left = true
		g.lanes = slices.DeleteFunc(g.lanes, func(l *lane) bool { return l == c.l })
	}
	g.mu.Unlock()

	switch {
	case c == nil:
	case c.l != nil:
		c.l.transport.CloseIdleConnections()
	default:
		g.mux.transport.Leave(same(over))
	}
}

// connLocked returns the connection that Options.Dial returned as over, or nil.
func (g *generation) connLocked(over net.Conn) *conn {
	for c := range g.cuts {
		if c, ok := c.(*conn); ok && c.Conn == over {
			return c
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
	c := g.connLocked(over)
	if c == nil || c.l == nil || c.l.left || c.l.ready == 0 || c.l.full() {
		return admission{}, false
	}
	return c.l.admitLocked(), true
}

// dial is the DialContext of the lane's transport. net/http runs it
// independently of the request that needs the connection, so only the end of
// the generation can stop it.
func (l *lane) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.overflowing()
	ctx, release := l.g.bind(ctx, false)
	defer release()

	c, err := l.g.connect(ctx, network, address, l)
	if err != nil {
		return nil, err
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

// dialTLS is the DialTLSContext of a lane whose server does not support HTTP/2.
func (l *lane) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	if c := l.g.mux.take(l); c != nil {
		return c, nil
	}
	c, err := l.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	secure, err := handshake(ctx, c, l.g.tls, address)
	if err != nil {
		_ = c.Close()
		return nil, err
	}

	return secure, nil
}

// laneKey is the context key under which a request carries its lane through the
// config's own round trippers.
type laneKey struct{}

// throughLane is the innermost round tripper below the config's own ones. Those
// exist once per access, but its generations have several transports, so
// throughLane finds the lane in the request's context.
type throughLane struct{}

// RoundTrip implements http.RoundTripper.
func (throughLane) RoundTrip(req *http.Request) (*http.Response, error) {
	l, ok := req.Context().Value(laneKey{}).(*lane)
	if !ok {
		return nil, ErrRefused // the request was made up by a round tripper, with another context
	}
	return l.transport.RoundTrip(req)
}
