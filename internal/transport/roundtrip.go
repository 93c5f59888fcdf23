// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// roundTripper is the http.RoundTripper of a Transport.
type roundTripper struct {
	s *Transport
	// stream lifts the budget of successful bodies: the reader enforces its own
	// limit.
	stream bool
}

// RoundTrip implements http.RoundTripper.
func (d *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := d.s.roundTrip(req, d.stream)
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // required by net/http's contract; net/http may not have seen the request yet
	}
	return resp, err
}

// roundTrip sends req on the current generation, in three steps: wait for the
// token bucket, enter, exchange.
func (s *Transport) roundTrip(req *http.Request, stream bool) (*http.Response, error) {
	ctx := req.Context()
	if req.URL.Host != s.base.Host || req.URL.Scheme != s.base.Scheme {
		return nil, s.fail(req, Refused, &trusted{err: fmt.Errorf("request is not addressed to the cluster: %w", ErrRefused)})
	}
	if !s.begin() {
		return nil, s.fail(req, Cut, ErrClosed)
	}
	defer s.running.Done()

	watch, enter := isWatch(req), s.enter
	if watch {
		// The protocol must not decide whether a watch with a body is sent.
		if err := h2.Check(req); err != nil {
			return nil, s.fail(req, Refused, &trusted{err: err})
		}
		enter = s.enterWatch
	} else if err := s.throttle(ctx); err != nil {
		return nil, s.failure(req, nil, err)
	}

	t, resp, err := s.dispatch(req, enter)
	if err != nil {
		return nil, err
	}
	return s.admit(req, resp, t.lane, watch, stream)
}

// dispatch admits req and sends it. If it could not be sent, dispatch admits it
// once more where there is another way: a generation whose watches turned out
// not to have HTTP/2, or one whose access was replaced.
func (s *Transport) dispatch(req *http.Request, enter entrance) (ticket, *http.Response, error) {
	for next := req; ; {
		t, err := enter(req.Context())
		if err != nil {
			return t, nil, s.failure(req, nil, err)
		}
		resp, err := s.exchange(next, t)
		if unsent(err) {
			continue // only watches and probes get here, which have no body
		}
		if again := outdated(req, t, err); again != nil {
			next = again
			continue
		}
		if resp != nil {
			resp.Request = req
		}
		return t, resp, err
	}
}

// outdated returns req, to be sent once more, if it failed since the access
// that it began with was replaced while it made its connection: an authority
// that is rotated does not know the server's new certificate. Nothing of req
// has been sent then. Otherwise it returns nil.
func outdated(req *http.Request, t ticket, err error) *http.Request {
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	if !unverified || !t.g.replaced() {
		return nil
	}
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	again := req.WithContext(req.Context()) // a shallow copy: a RoundTripper must not change req
	again.Body = body

	return again
}

// entrance admits a request to a generation.
type entrance func(context.Context) (ticket, error)

// enter admits a request to the current generation.
func (s *Transport) enter(ctx context.Context) (ticket, error) {
	return s.enterBy(func(g *generation) (ticket, error) { return g.enter(ctx) })
}

// enterWatch is like enter, but uses the connections for watches, if there are
// any.
func (s *Transport) enterWatch(ctx context.Context) (ticket, error) {
	return s.enterBy(func(g *generation) (ticket, error) {
		if g.watches.multiplexed() {
			return g.watches.enter()
		}
		return g.enter(ctx)
	})
}

// enterBy admits a request to the current generation. If a generation ends
// before the request can enter it, either a newer one has replaced it or the
// transport has been shut, so enterBy looks again.
func (s *Transport) enterBy(enter func(*generation) (ticket, error)) (ticket, error) {
	for {
		g, err := s.live()
		if err != nil {
			return ticket{}, err
		}
		if t, err := enter(g); !errors.Is(err, errGone) {
			return t, err
		}
	}
}

// exchange sends req with its ticket and returns the response unchanged. If it
// fails, it leaves the lane, and returns a *Error or an unsent one.
func (s *Transport) exchange(req *http.Request, t ticket) (*http.Response, error) {
	asked := time.Now()
	resp, err := s.send(req, t)
	if err == nil {
		t.finish(nil)
		if resp.StatusCode == http.StatusUnauthorized {
			t.g.renewToken(asked)
			s.unauthorized(t.g)
		}
		return resp, nil
	}

	if unsent(err) {
		t.leave()
		return nil, err
	}
	cut := t.ended(isWatch(req))
	if cut != nil {
		err = cut
	}
	failure := s.failure(req, t.g, err)
	if req.Context().Err() != nil || cut != nil {
		t.finish(nil) // only this request gave up: the next one makes the connection
	} else {
		t.finish(failure)
	}
	t.leave()
	if failure.Class == Unauthorized {
		s.unauthorized(t.g)
	}

	return nil, failure
}

// send sends req through the lane.
func (s *Transport) send(req *http.Request, t ticket) (*http.Response, error) {
	ctx, over := t.passage(req.Context())
	return over.ended(s.sendWith(ctx, req, t))
}

func (s *Transport) sendWith(ctx context.Context, req *http.Request, t ticket) (*http.Response, error) {
	watch := isWatch(req)
	if t.g.foreign == nil && (t.transport == nil || !watch) {
		out, err := s.address(ctx, req, t.g)
		if err != nil {
			return nil, err
		}
		if t.transport == nil {
			return t.g.watches.roundTrip(out)
		}
		resp, err := t.transport.RoundTrip(out)
		s.panicked(err)
		return resp, err
	}

	// The config's own round trippers may wait for something that cutting our
	// connections does not end. A watch that shares its connection with other
	// requests has to be cut without cutting that connection.
	ctx, release := t.g.bind(context.WithValue(ctx, laneKey{}, t.lane), watch)
	out, err := s.address(ctx, req, t.g)
	if err != nil {
		release()
		return nil, err
	}
	next := t.g.foreign
	if next == nil {
		next = t.transport
	}
	var resp *http.Response
	err = callback.Apart("WrapTransport", func() (err error) { // the round tripper is the operator's code, possibly on a goroutine of ours
		resp, err = next.RoundTrip(out)
		return err
	})
	if err != nil {
		s.panicked(err)
		release()
		return nil, err
	}
	resp.Body = &releasing{ReadCloser: resp.Body, release: release}

	return resp, nil
}

// panicked reports a panic that a request ran into to Options.Panicked.
func (s *Transport) panicked(err error) {
	if p, ok := errors.AsType[*callback.PanicError](err); ok && s.opts.Panicked != nil {
		s.opts.Panicked(p)
	}
}

// address returns req as it is sent: addressed to the real server, with
// credentials.
func (s *Transport) address(ctx context.Context, req *http.Request, g *generation) (*http.Request, error) {
	out := req.WithContext(ctx)
	out.URL = g.rewrite(req.URL)
	out.Host = ""
	out.Header = req.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}

	return out, g.authorize(out.Header, s.opts.UserAgent)
}

// unauthorized calls Options.Unauthorized once per generation. It does nothing
// for a candidate, whose rejection is the result of its proof.
func (s *Transport) unauthorized(g *generation) {
	if g.adopted.Load() && g.rejected.CompareAndSwap(false, true) {
		s.opts.Unauthorized(g.revision)
	}
}

// admit applies the rules for responses and counts the body as running.
func (s *Transport) admit(req *http.Request, resp *http.Response, l *lane, watch, stream bool) (*http.Response, error) {
	refuse := func(err error) (*http.Response, error) {
		_ = resp.Body.Close()
		l.leave()
		return nil, s.fail(req, Refused, &trusted{err: err})
	}
	good := resp.StatusCode < http.StatusBadRequest
	if isRedirect(resp.StatusCode) {
		return refuse(fmt.Errorf("status %d, redirect not followed: %w", resp.StatusCode, ErrRefused))
	}
	b := &body{
		rc:     resp.Body,
		s:      s,
		l:      l,
		method: req.Method,
		path:   req.URL.Path,
	}
	switch {
	case !good:
		b.left, b.clip = s.opts.MaxErrorBody, true
	case watch || stream:
		b.left = unlimited
	default:
		b.left = s.opts.MaxUnaryBody
		if resp.ContentLength > b.left {
			return refuse(ErrBodyTooLarge)
		}
	}

	capRetryAfter(resp.Header, s.opts.MaxRetryAfter)
	switch {
	case good && l.g.adopted.Load():
		b.alive = true
		s.lives()
	case good: // a candidate may turn out to be another cluster: Use decides
		l.g.answered.Store(s.age())
	}

	if watch && good {
		b.watch = true
		s.streams.Add(1)
		resp.Header = slim(resp.Header)
	}
	resp.Body = b

	return resp, nil
}

// slim keeps only the headers needed to read a stream, because a watch retains
// them for as long as it runs.
func slim(h http.Header) http.Header {
	kept := make(http.Header, 2)
	for _, name := range []string{"Content-Type", "Content-Encoding"} {
		if values := h[name]; len(values) > 0 {
			kept[name] = values[:1:1]
		}
	}
	return kept
}

// isRedirect reports whether a client would follow a redirect with this status.
// 304 is not one: it answers a conditional request.
func isRedirect(status int) bool {
	return status >= http.StatusMultipleChoices && status < http.StatusBadRequest && status != http.StatusNotModified
}

// isWatch reports whether req requests a stream of events, in the form that all
// clients use.
func isWatch(req *http.Request) bool {
	if req.Method != http.MethodGet || !strings.Contains(req.URL.RawQuery, "watch=") {
		return false
	}
	value := req.URL.Query().Get("watch")
	return value == "true" || value == "1"
}
