// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// roundTripper is the http.RoundTripper of a Transport.
type roundTripper struct {
	t *Transport
	// stream lifts the budget of successful bodies: the reader enforces its own
	// limit.
	stream bool
}

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.t.roundTrip(req, r.stream)
	if err != nil && req.Body != nil {
		_ = req.Body.Close() // required by net/http's contract; net/http may not have seen the request yet
	}
	return resp, err
}

// roundTrip sends req on the current generation, in three steps: wait for the
// token bucket, enter, exchange.
func (t *Transport) roundTrip(req *http.Request, stream bool) (*http.Response, error) {
	ctx := req.Context()
	if req.URL.Host != t.base.Host || req.URL.Scheme != t.base.Scheme {
		return nil, t.cluster.fail(req, Refused,
			&trusted{err: fmt.Errorf("request is not addressed to the cluster: %w", ErrRefused)})
	}
	if !t.begin() {
		return nil, t.cluster.fail(req, Cut, ErrClosed)
	}
	defer t.running.Done()

	watch, enter := isWatch(req), (*generation).enter
	if req.Method == http.MethodGet && h2.Check(req) == nil {
		enter = (*generation).enterGet
	}
	if watch {
		// The protocol must not decide whether a watch with a body is sent.
		if err := h2.Check(req); err != nil {
			return nil, t.cluster.fail(req, Refused, &trusted{err: err})
		}
	} else if err := t.throttle.wait(ctx); err != nil {
		return nil, t.cluster.failure(req, nil, err)
	}

	a, resp, err := t.dispatch(req, t.inUse(enter))
	if err != nil {
		return nil, err
	}
	return t.admit(req, resp, a.sender, watch, stream)
}

// dispatch admits req and sends it. If it could not be sent, dispatch admits it
// once more where there is another way: a generation that turned out not to have
// HTTP/2, one whose access was replaced, or net/http.
func (t *Transport) dispatch(req *http.Request, enter entrance) (admission, *http.Response, error) {
	for next := req; ; {
		a, err := enter(req.Context())
		if err != nil {
			return a, nil, t.cluster.failure(req, nil, err)
		}
		resp, err := t.exchange(next, a)
		if a.sendable(next, err) {
			if unsupported(next, err) {
				enter = t.inUse((*generation).enter)
			}
			continue // it has no body
		}
		if again := outdated(req, a, err); again != nil {
			next = again
			continue
		}
		if resp != nil {
			resp.Request = req
		}
		return a, resp, err
	}
}

// outdated returns req, to be sent once more, if it failed since the access
// that it began with was replaced while it made its connection: an authority
// that is rotated does not know the server's new certificate; or since the
// client certificate of its connection was. Nothing of req has been sent then.
// Otherwise it returns nil.
func outdated(req *http.Request, a admission, err error) *http.Request {
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	if !unverified && !errors.Is(err, errOldCertificate) || !a.of().replaced() {
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
type entrance func(context.Context) (admission, error)

// inUse returns the entrance to the current generation. If a generation ends
// before the request can enter it, either a newer one has replaced it or the
// transport has been shut, so the entrance looks again.
func (t *Transport) inUse(enter func(*generation, context.Context) (admission, error)) entrance {
	return func(ctx context.Context) (admission, error) {
		for {
			g, err := t.live()
			if err != nil {
				return admission{}, err
			}
			if a, err := enter(g, ctx); !errors.Is(err, errGone) {
				return a, err
			}
		}
	}
}

// exchange sends req with its admission and returns the response unchanged. If
// it fails, it releases the admission, and returns a *Error or, if req can be
// sent in another way, an error for which sendable is true.
func (t *Transport) exchange(req *http.Request, a admission) (*http.Response, error) {
	asked := time.Now()
	var resp *http.Response
	out, err := t.address(req, a.of())
	if err == nil {
		resp, err = a.send(out, a.dialing)
	}
	if err == nil {
		a.dialing.finish(nil)
		if resp.StatusCode == http.StatusUnauthorized {
			a.of().renewToken(asked)
			t.unauthorized(a.of())
		}
		return resp, nil
	}

	if a.sendable(req, err) {
		a.release()
		return nil, err
	}
	if errors.Is(err, h2.ErrSilent) && !isWatch(req) {
		// It fails like a request that the same silence outlasts. A watch was
		// answered, and lost its connection.
		err = fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	_, told := err.(*trusted) //nolint:errorlint // only the outermost one says what was waited for
	if !told && req.Context().Err() != nil && a.dialing.underWay() {
		err = fmt.Errorf("%w: %w", h2.ErrWaiting, err)
	}
	cut := a.of().endedFor(isWatch(req))
	if cut != nil {
		err = cut
	}
	failure := t.cluster.failure(req, a.of().ended(), err)
	if req.Context().Err() != nil || cut != nil {
		a.dialing.finish(nil) // only this request gave up: the next one makes the connection
	} else {
		a.dialing.finish(failure)
	}
	a.release()
	if failure.Class == Unauthorized {
		t.unauthorized(a.of())
	}

	return nil, failure
}

// address returns req as it is sent: addressed to the real server, with
// credentials.
func (t *Transport) address(req *http.Request, g *generation) (*http.Request, error) {
	ctx, release := req.Context(), func() {}
	out := req.WithContext(ctx)
	out.URL = g.rewrite(req.URL)
	out.Host = ""
	out.Header = req.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}

	if g.plugin != nil {
		ctx, release = g.bind(ctx, isWatch(req)) // which ends the wait for a plugin
	}
	err := g.authorize(ctx, out.Header, t.opts.UserAgent)
	release()
	if errors.Is(err, errOldCertificate) {
		t.turn(g)
		if !g.replaced() {
			err = nil // it is not in use: nothing but its proof is sent over it
		}
	}

	return out, err
}

// unauthorized calls Options.Unauthorized once per generation. It does nothing
// for a candidate, whose rejection is the result of its proof.
func (t *Transport) unauthorized(g *generation) {
	if g.adopted.Load() && g.rejected.CompareAndSwap(false, true) {
		t.opts.Unauthorized(g.revision)
	}
}

// admit applies the rules for responses and counts the body as running.
func (t *Transport) admit(
	req *http.Request, resp *http.Response, by sender, watch, stream bool,
) (*http.Response, error) {
	refuse := func(err error) (*http.Response, error) {
		_ = resp.Body.Close()
		by.release()
		return nil, t.cluster.fail(req, Refused, &trusted{err: err})
	}
	good := resp.StatusCode < http.StatusBadRequest
	if isRedirect(resp.StatusCode) {
		return refuse(fmt.Errorf("status %d, redirect not followed: %w", resp.StatusCode, ErrRefused))
	}
	b := &body{
		rc:     resp.Body,
		by:     by,
		method: req.Method,
		path:   req.URL.Path,
	}
	switch {
	case !good:
		b.left, b.clip = t.opts.MaxErrorBody, true
	case watch || stream:
		b.left = unlimited
	default:
		b.left = t.opts.MaxUnaryBody
		if resp.ContentLength > b.left {
			return refuse(ErrBodyTooLarge)
		}
	}

	capRetryAfter(resp.Header)
	switch g := by.of(); {
	case good && g.adopted.Load():
		b.alive = true
		t.cluster.lives()
	case good: // a candidate may turn out to be another cluster: Use decides
		g.answered.Store(t.cluster.age())
	}

	if watch && good {
		b.watch = true
		t.cluster.streams.Add(1)
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
