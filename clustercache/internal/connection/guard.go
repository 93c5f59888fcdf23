// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// guard is the round tripper of lists and watches. It sends a request, and
// returns its answer, only if the server is known to be the cluster of the
// epoch that the request is for.
type guard struct {
	p    *prover
	next http.RoundTripper
	view *View
}

func newGuarded(p *prover, v *View) *http.Client {
	inner := p.transport.StreamClient()
	return &http.Client{
		Transport:     &guard{p: p, next: inner.Transport, view: v},
		CheckRedirect: inner.CheckRedirect,
	}
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	q := req.URL.Query()
	// An informer that will read what a watch carries asks for bookmarks. One
	// that does not merely asks whether it may watch, and believes nothing that
	// its own requests do not show.
	watch := q.Has("watch") && q.Has("allowWatchBookmarks")
	question := q.Has("watch") && !watch
	want := expectation{view: g.view, need: need{Age: identity.Soon, Anew: !question}, tolerant: !question}
	if q.Has("continue") || question {
		want.Age = identity.Age // a page is one of a list that began with a proof
	}
	first := watch && g.isFirst()
	if !first {
		if err := g.p.prove(req.Context(), want); err != nil {
			return nil, g.changed(err)
		}
		want.Age = identity.Age // by the time it is sent
	}
	check := g.p.over(want)
	if first {
		check = g.overNew(&want)
	}
	resp, over, err := g.p.send(g.next, req, g.view, check)
	g.p.noteOutcome(resp, err)
	g.p.noteBroken(err)
	if errors.Is(err, ErrMoved) {
		return nil, g.changed(err)
	}
	if err != nil {
		return nil, err
	}
	if first {
		g.p.carried(want.Over)
		err = g.p.prove(req.Context(), want)
	} else {
		err = g.p.still(req.Context(), g.view)
	}
	if err == nil && watch {
		err = g.p.confirmOver(req.Context(), g.view, over)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, g.changed(err)
	}
	if watch && (q.Get("sendInitialEvents") == "" || q.Get("fieldSelector") == "") {
		resp.Body = newWatchBody(g.p, req, resp.Body)
	}

	return resp, nil
}

// isFirst reports whether a watch may be sent before the identity is proven,
// since no connection that watches share is: it will make one, or use one that
// was just made. The query that proves it follows the answer, so that one query
// is both the proof and the confirmation, and nothing of the answer is read
// before.
func (g *guard) isFirst() bool {
	p := g.p
	if presumed(g.view.UID) || p.otherClusterAnswered() || !p.transport.Multiplexed() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.mu.ledger.First()
}

// overNew returns the check of the connection that a first watch is about to
// use, and has want be what is to be proven once that is answered. A connection
// that others have proven meanwhile is treated as any other.
func (g *guard) overNew(want *expectation) transport.ConnCheck {
	return func(ctx context.Context, conn net.Conn) error {
		want.Over, _ = conn.(*provenConn)
		if g.p.unproven(conn) && g.p.transport.Multiplexed() {
			return nil
		}
		before := *want
		before.All = true
		want.Anew, want.Age = false, identity.Age // by the time it is sent
		return g.p.until(ctx, before)
	}
}

// send sends a request over a connection that passes a check, and returns that,
// too. A 401 makes it suspect.
func (p *prover) send(next http.RoundTripper, req *http.Request, v *View, check transport.ConnCheck) (
	*http.Response, net.Conn, error) {
	var over net.Conn
	ctx := transport.WithConnCheck(recorded(req.Context(), &over), check)
	resp, err := next.RoundTrip(req.WithContext(ctx))
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		p.suspect(v, over, resp.ProtoMajor > 1)
	}
	return resp, over, err
}

// noteOutcome records whether a request of an informer succeeded.
func (p *prover) noteOutcome(resp *http.Response, err error) {
	class := transport.Classify(err)
	switch {
	case err == nil && resp.StatusCode < http.StatusBadRequest:
		if p.signs.recovery.succeeded(time.Now()) {
			p.hooks.Recovered()
		}
	case err == nil &&
		(resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError),
		class == transport.Unreachable, class == transport.Timeout:
		p.signs.recovery.failed()
	}
}

// noteBroken reports an error of a request. A probe follows at once if the
// server refuses or breaks connections.
func (p *prover) noteBroken(err error) { p.noteCut(phase.Broken, err) }

// noteCut reports an error of a request, or of a stream, which is Torn: a probe
// follows soon unless the server answers before. No event is reported for
// streams that end normally.
func (p *prover) noteCut(kind phase.Kind, err error) {
	if err == nil {
		return
	}
	if class, _ := classify(err); class == phase.Unreachable && p.view.Load().Connected {
		p.report(phase.Event{Kind: kind})
	}
}

// changed returns identity.ErrEpochChanged if the epoch of the request has
// ended: the informer continues with the next one at once. Until that has
// begun, the informer retries after a while.
func (g *guard) changed(err error) error {
	if g.p.view.Load().Epoch != g.view.Epoch {
		return identity.ErrEpochChanged
	}
	return err
}

// liveGuard is the round tripper of live reads and writes. It sends no request
// to a cluster whose identity was not proven lately, or over a connection
// without a proof, and returns no answer from another history than the one
// requested.
type liveGuard struct {
	p    *prover
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *liveGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	v := g.p.view.Load()
	want := expectation{view: v, need: need{Age: identity.Age}}
	err := g.p.hooks.WhyNot()
	if v.Connected {
		err = g.p.prove(req.Context(), want)
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // net/http's contract
		}
		return nil, err
	}

	resp, _, err := g.p.send(g.next, req, v, g.p.over(want))
	g.p.noteBroken(err)
	if err != nil || req.Method != http.MethodGet {
		return resp, err
	}
	if err := g.p.still(req.Context(), v); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}

	return resp, nil
}

// watchBody is the body of a watch.
type watchBody struct {
	io.ReadCloser

	p     *prover
	ctx   context.Context //nolint:containedctx // of the request: if it ended, the server did not end the watch
	until time.Time       // when the server was to end it, as requested
}

// newWatchBody returns the body of a watch that has just been answered.
func newWatchBody(p *prover, req *http.Request, body io.ReadCloser) *watchBody {
	b := &watchBody{ReadCloser: body, p: p, ctx: req.Context()}
	if seconds, err := strconv.Atoi(req.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		b.until = time.Now().Add(time.Duration(seconds)*time.Second - time.Second)
	}
	return b
}

// Read implements io.Reader.
func (b *watchBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil && b.ctx.Err() == nil {
		b.p.ended(!errors.Is(err, io.EOF) || b.until.IsZero() || time.Now().Before(b.until))
		if err != io.EOF { // a connection that broke wraps it
			b.p.noteCut(phase.Torn, err)
		}
	}
	return n, err
}
