// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"net"
	"net/http"

	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// guard is the round tripper of lists and watches. It sends a request, and
// returns its answer, only if the server is known to be the cluster of the
// epoch that the request is for.
type guard struct {
	c    *Connection
	next http.RoundTripper
	view *View
}

func newGuarded(c *Connection, v *View) *http.Client {
	inner := c.transport.StreamClient()
	return &http.Client{
		Transport:     &guard{c: c, next: inner.Transport, view: v},
		CheckRedirect: inner.CheckRedirect,
	}
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	q := req.URL.Query()
	// An informer that will read what a watch carries asks for bookmarks. One
	// that does not merely asks whether it may watch, and believes nothing that
	// its own requests do not show.
	question := q.Has("watch") && !q.Has("allowWatchBookmarks")
	want := expectation{view: g.view, need: need{Age: identity.Soon, Anew: !question}, tolerant: !question}
	if q.Has("continue") || question {
		want.Age = identity.Age // a page is one of a list that began with a proof
	}
	if err := g.c.prover.prove(req.Context(), want); err != nil {
		return nil, g.changed(err)
	}
	want.Age = identity.Age // by the time it is sent
	resp, err := g.c.send(g.next, req, want)
	g.c.noteOutcome(resp, err)
	g.c.noteBroken(err)
	if errors.Is(err, ErrMoved) {
		return nil, g.changed(err)
	}
	if err != nil {
		return nil, err
	}
	if err := g.c.prover.still(req.Context(), g.view); err != nil {
		_ = resp.Body.Close()
		return nil, g.changed(err)
	}
	if question {
		return resp, nil
	}
	if q.Has("watch") {
		err = g.c.prover.confirm(req.Context(), g.view)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, g.changed(err)
	}
	if q.Has("watch") && (q.Get("sendInitialEvents") == "" || q.Get("fieldSelector") == "") {
		resp.Body = newWatchBody(&g.c.prover, req, resp.Body)
	}

	return resp, nil
}

// send sends a request over a connection that is proven. A 401 makes that
// connection suspect.
func (c *Connection) send(next http.RoundTripper, req *http.Request, want expectation) (*http.Response, error) {
	var over net.Conn
	ctx := transport.WithConnCheck(recorded(req.Context(), &over), c.prover.over(want))
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		c.prover.suspect(want.view, over, resp.ProtoMajor > 1)
	}
	return resp, err
}

// changed returns identity.ErrEpochChanged if the epoch of the request has
// ended: the informer continues with the next one at once. Until that has
// begun, the informer retries after a while.
func (g *guard) changed(err error) error {
	if g.c.view.Load().Epoch != g.view.Epoch {
		return identity.ErrEpochChanged
	}
	return err
}

// liveGuard is the round tripper of live reads and writes. It sends no request
// to a cluster whose identity was not proven lately, or over a connection
// without a proof, and returns no answer from another history than the one
// requested.
type liveGuard struct {
	c    *Connection
	next http.RoundTripper
}

// Guard returns the round tripper of live reads and writes. next is one of the
// connection's transport.
func (c *Connection) Guard(next http.RoundTripper) http.RoundTripper {
	return &liveGuard{c: c, next: next}
}

// OtherCluster returns an error if another cluster has answered, and its epoch
// has not begun yet: caches may hold objects of both.
func (c *Connection) OtherCluster() error {
	if c.prover.otherClusterAnswered() {
		return errOtherCluster
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (g *liveGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	v := g.c.view.Load()
	want := expectation{view: v, need: need{Age: identity.Age}}
	err := g.c.hooks.WhyNot()
	if v.Connected {
		err = g.c.prover.prove(req.Context(), want)
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // net/http's contract
		}
		return nil, err
	}

	resp, err := g.c.send(g.next, req, want)
	g.c.noteBroken(err)
	if err != nil || req.Method != http.MethodGet {
		return resp, err
	}
	if err := g.c.prover.still(req.Context(), v); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}

	return resp, nil
}
