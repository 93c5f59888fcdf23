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
	"strings"
	"time"

	"github.com/fleetcache/fleetcache/internal/callback"
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
		return nil, t.fail(req, Refused,
			&trusted{err: fmt.Errorf("request is not addressed to the cluster: %w", ErrRefused)})
	}
	if !t.begin() {
		return nil, t.fail(req, Cut, ErrClosed)
	}
	defer t.running.Done()

	watch, enter := isWatch(req), t.enter
	if req.Method == http.MethodGet && h2.Check(req) == nil {
		enter = t.enterGet
	}
	if watch {
		// The protocol must not decide whether a watch with a body is sent.
		if err := h2.Check(req); err != nil {
			return nil, t.fail(req, Refused, &trusted{err: err})
		}
	} else if err := t.throttle(ctx); err != nil {
		return nil, t.failure(req, nil, err)
	}

	a, resp, err := t.dispatch(req, enter)
	if err != nil {
		return nil, err
	}
	return t.admit(req, resp, a.lane, watch, stream)
}

// dispatch admits req and sends it. If it could not be sent, dispatch admits it
// once more where there is another way: a generation that turned out not to have
// HTTP/2, one whose access was replaced, or net/http.
func (t *Transport) dispatch(req *http.Request, enter entrance) (admission, *http.Response, error) {
	for next := req; ; {
		a, err := enter(req.Context())
		if err != nil {
			return a, nil, t.failure(req, nil, err)
		}
		resp, err := t.exchange(next, a)
		if a.transport == nil && a.g.mux.sendable(next, err) {
			if unsupported(next, err) {
				enter = t.enter
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
	if !unverified && !errors.Is(err, errOldCertificate) || !a.g.replaced() {
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

// enter admits a request to the current generation.
func (t *Transport) enter(ctx context.Context) (admission, error) {
	return t.enterBy(func(g *generation) (admission, error) { return g.enter(ctx) })
}

// enterGet is like enter, for a request that a mux can send.
func (t *Transport) enterGet(ctx context.Context) (admission, error) {
	return t.enterBy(func(g *generation) (admission, error) { return g.enterGet(ctx) })
}

// enterBy admits a request to the current generation. If a generation ends
// before the request can enter it, either a newer one has replaced it or the
// transport has been shut, so enterBy looks again.
func (t *Transport) enterBy(enter func(*generation) (admission, error)) (admission, error) {
	for {
		g, err := t.live()
		if err != nil {
			return admission{}, err
		}
		if a, err := enter(g); !errors.Is(err, errGone) {
			return a, err
		}
	}
}

// exchange sends req with its admission and returns the response unchanged. If
// it fails, it releases the admission, and returns a *Error or, if nothing of
// req was sent and there is another way, an error for which mux.sendable is
// true.
func (t *Transport) exchange(req *http.Request, a admission) (*http.Response, error) {
	asked := time.Now()
	resp, err := t.send(req, a)
	if err == nil {
		a.finish(nil)
		if resp.StatusCode == http.StatusUnauthorized {
			a.g.renewToken(asked)
			t.unauthorized(a.g)
		}
		return resp, nil
	}

	if a.transport == nil && a.g.mux.sendable(req, err) {
		a.release()
		return nil, err
	}
	if errors.Is(err, h2.ErrSilent) && !isWatch(req) {
		// It fails like a request that the same silence outlasts. A watch was
		// answered, and lost its connection.
		err = fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	_, told := err.(*trusted) //nolint:errorlint // only the outermost one says what was waited for
	if !told && req.Context().Err() != nil && a.connects() {
		err = fmt.Errorf("%w: %w", h2.ErrWaiting, err)
	}
	cut := a.ended(isWatch(req))
	if cut != nil {
		err = cut
	}
	failure := t.failure(req, a.g, err)
	if req.Context().Err() != nil || cut != nil {
		a.finish(nil) // only this request gave up: the next one makes the connection
	} else {
		a.finish(failure)
	}
	a.release()
	if failure.Class == Unauthorized {
		t.unauthorized(a.g)
	}

	return nil, failure
}

// send sends req through the lane.
func (t *Transport) send(req *http.Request, a admission) (*http.Response, error) {
	ctx, over := a.passage(req.Context())
	return over.ended(t.sendWith(ctx, req, a))
}

func (t *Transport) sendWith(ctx context.Context, req *http.Request, a admission) (*http.Response, error) {
	watch := isWatch(req)
	if a.g.foreign == nil && (a.transport == nil || !watch) {
		out, err := t.address(ctx, req, a.g)
		if err != nil {
			return nil, err
		}
		if a.transport == nil {
			return a.g.mux.roundTrip(out)
		}
		resp, err := a.transport.RoundTrip(out)
		t.panicked(err)
		return resp, err
	}

	// The config's own round trippers may wait for something that cutting our
	// connections does not end. A watch that shares its connection with other
	// requests has to be cut without cutting that connection.
	ctx, release := a.g.bind(context.WithValue(ctx, laneKey{}, a.lane), watch)
	out, err := t.address(ctx, req, a.g)
	if err != nil {
		release()
		return nil, err
	}
	next := a.g.foreign
	if next == nil {
		next = a.transport
	}
	resp, err := t.callForeign(ctx, next, out)
	if err != nil {
		t.panicked(err)
		release()
		return nil, err
	}
	resp.Body = &releasing{ReadCloser: resp.Body, release: release}

	return resp, nil
}

// maxDeaf is how many calls of a config's round trippers may go on after their
// request has been given up.
const maxDeaf = 4

// callForeign sends a request through round trippers of the operator, possibly
// on a goroutine of ours. They may wait for a token, and ignore the request's
// context: then the request fails without them, and once maxDeaf are left
// behind, every request does until one of them returns.
func (t *Transport) callForeign(
	ctx context.Context, next http.RoundTripper, req *http.Request,
) (*http.Response, error) {
	const name = "WrapTransport"
	if t.deaf.Load() >= maxDeaf {
		return nil, &trusted{err: &callback.DeafError{Callback: name, Cause: os.ErrDeadlineExceeded}}
	}
	resp, err := callback.ApartUntil(ctx, name, func() (*http.Response, error) {
		return next.RoundTrip(req)
	}, func(late *http.Response, err error) {
		t.deaf.Add(-1)
		if err == nil && late != nil {
			_ = late.Body.Close()
		}
	})
	if deaf, ok := errors.AsType[*callback.DeafError](err); ok {
		t.deaf.Add(1)
		return nil, &trusted{err: deaf}
	}
	return resp, err
}

// panicked reports a panic that a request ran into to Options.Panicked.
func (t *Transport) panicked(err error) {
	if p, ok := errors.AsType[*callback.PanicError](err); ok && t.opts.Panicked != nil {
		t.opts.Panicked(p)
	}
}

// address returns req as it is sent: addressed to the real server, with
// credentials.
func (t *Transport) address(ctx context.Context, req *http.Request, g *generation) (*http.Request, error) {
	out := req.WithContext(ctx)
	out.URL = g.rewrite(req.URL)
	out.Host = ""
	out.Header = req.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}

	err := func() error {
		if g.plugin == nil {
			return g.authorize(ctx, out.Header, t.opts.UserAgent)
		}
		ctx, release := g.bind(ctx, isWatch(req)) // which ends the wait for a plugin
		defer release()
		return g.authorize(ctx, out.Header, t.opts.UserAgent)
	}()
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
func (t *Transport) admit(req *http.Request, resp *http.Response, l *lane, watch, stream bool) (*http.Response, error) {
	refuse := func(err error) (*http.Response, error) {
		_ = resp.Body.Close()
		l.release()
		return nil, t.fail(req, Refused, &trusted{err: err})
	}
	good := resp.StatusCode < http.StatusBadRequest
	if isRedirect(resp.StatusCode) {
		return refuse(fmt.Errorf("status %d, redirect not followed: %w", resp.StatusCode, ErrRefused))
	}
	b := &body{
		rc:     resp.Body,
		t:      t,
		l:      l,
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

	capRetryAfter(resp.Header, t.opts.MaxRetryAfter)
	switch {
	case good && l.g.adopted.Load():
		b.alive = true
		t.lives()
	case good: // a candidate may turn out to be another cluster: Use decides
		l.g.answered.Store(t.age())
	}

	if watch && good {
		b.watch = true
		t.streams.Add(1)
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

// isWatch reports whether req requests a stream of events, in the form that all
// clients use.
func isWatch(req *http.Request) bool {
	if req.Method != http.MethodGet || !strings.Contains(req.URL.RawQuery, "watch=") {
		return false
	}
	value := req.URL.Query().Get("watch")
	return value == "true" || value == "1"
}
