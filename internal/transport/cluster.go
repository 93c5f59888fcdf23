// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/internal/callback"
)

// cluster is what all generations of a Transport share: the name in errors, and
// what was seen of the cluster.
type cluster struct {
	name    string
	born    time.Time
	life    atomic.Int64 // age at the last proof of life; 0 means none yet
	streams atomic.Int64
	deaf    atomic.Int64 // round trippers of configs that were left behind
	// panicked is Options.Panicked.
	panicked func(*callback.PanicError)
}

// age returns the nanoseconds since the Transport was made, plus one, so that
// it is never 0.
func (c *cluster) age() int64 { return int64(time.Since(c.born)) + 1 }

func (c *cluster) lives() { c.livedAt(c.age()) }

// livedAt records a proof of life, unless a later one is known.
func (c *cluster) livedAt(age int64) {
	for last := c.life.Load(); age > last; last = c.life.Load() {
		if c.life.CompareAndSwap(last, age) {
			break
		}
	}
}

// maxDeaf is how many calls of a config's round trippers may go on after their
// request has been given up.
const maxDeaf = 4

// callForeign sends a request through round trippers of the operator, possibly
// on a goroutine of ours. They may wait for a token, and ignore the request's
// context: then the request fails without them, and once maxDeaf are left
// behind, every request does until one of them returns.
func (c *cluster) callForeign(
	ctx context.Context, next http.RoundTripper, req *http.Request,
) (*http.Response, error) {
	const name = "WrapTransport"
	if c.deaf.Load() >= maxDeaf {
		return nil, &trusted{err: &callback.DeafError{Callback: name, Cause: os.ErrDeadlineExceeded}}
	}
	resp, err := callback.Until(ctx, nil, name, func() (*http.Response, error) {
		return next.RoundTrip(req)
	}, func(late *http.Response, err error) {
		c.deaf.Add(-1)
		if err == nil && late != nil {
			_ = late.Body.Close()
		}
	})
	if deaf, ok := errors.AsType[*callback.DeafError](err); ok {
		c.deaf.Add(1)
		return nil, &trusted{err: deaf}
	}
	return resp, err
}

// notePanic reports a panic that a request ran into to Options.Panicked.
func (c *cluster) notePanic(err error) {
	if p, ok := errors.AsType[*callback.PanicError](err); ok && c.panicked != nil {
		c.panicked(p)
	}
}

// failure turns err into the *Error of req. ended is why the generation that it
// ran on has ended, or nil.
func (c *cluster) failure(req *http.Request, ended, err error) *Error {
	if done := req.Context().Err(); done != nil && ended == nil {
		if !errors.Is(err, done) {
			err = done
		}
		err = contextError(req.Context(), err)
	}

	return c.failed(operation(req.Method, req.URL.Path), err)
}

// contextError adds the cause of ctx's end to err. The cause comes from the
// caller, so it may be shown.
func contextError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return &trusted{err: fmt.Errorf("%w: %w", ctx.Err(), cause)}
	}
	return err
}

// failed turns err into the *Error of an operation.
func (c *cluster) failed(op string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok { // from the request that tried to connect on behalf of this one
		again := *e
		again.Op = op
		return &again
	}
	return c.error(op, Classify(err), redact(err))
}

func (c *cluster) fail(req *http.Request, class Class, err error) *Error {
	return c.error(operation(req.Method, req.URL.Path), class, err)
}

func (c *cluster) error(op string, class Class, err error) *Error {
	return &Error{
		Cluster: c.name,
		Op:      op,
		Class:   class,
		Err:     err,
	}
}

func operation(method, path string) string { return clip(method + " " + path) }

// judge returns the error that a response stands for, or nil.
func (c *cluster) judge(req *http.Request, status int, header http.Header) error {
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	foreign := media == "text/html" || media == "application/xhtml+xml"
	switch {
	case status >= 200 && status < 300 && !foreign:
		return nil
	// An HTML page with 403 or 404 says nothing about an API server behind it.
	// Other failures mean the same whether a proxy or an API server reports
	// them.
	case foreign && (status < 300 || status == http.StatusForbidden || status == http.StatusNotFound):
		return c.fail(req, NotKubernetes, fmt.Errorf("status %d: an HTML page, %w", status, ErrNotKubernetes))
	}

	return c.fail(req, classifyStatus(status), answerOf(status))
}
