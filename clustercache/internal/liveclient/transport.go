// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// NewDeadline returns a round tripper that bounds the time of every request
// that is not a watch, up to the end of the response body.
func NewDeadline(next http.RoundTripper, after time.Duration) http.RoundTripper {
	return &deadline{next: next, after: after}
}

type deadline struct {
	next  http.RoundTripper
	after time.Duration
}

var errDeadline = errors.New("request time-out")

// RoundTrip implements http.RoundTripper.
func (d *deadline) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("watch") != "" {
		return d.next.RoundTrip(req)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), d.after, errDeadline)
	resp, err := d.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelBody{ReadCloser: resp.Body, cancel: cancel}

	return resp, nil
}

// Permission returns a context for a write, and a function that has to be called
// at its end.
type Permission func(context.Context) (context.Context, context.CancelFunc, error)

// NewPermitted returns a round tripper that sends a request that may change the
// cluster only with the permission's context, up to the end of the response
// body. explain converts the errors of requests whose context has ended.
func NewPermitted(
	next http.RoundTripper, permit Permission, explain func(context.Context, error) error,
) http.RoundTripper {
	return &permitted{next: next, permit: permit, explain: explain}
}

type permitted struct {
	next    http.RoundTripper
	permit  Permission
	explain func(context.Context, error) error
}

// RoundTrip implements http.RoundTripper.
func (p *permitted) RoundTrip(req *http.Request) (*http.Response, error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return p.next.RoundTrip(req)
	}

	ctx, done, err := p.permit(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	resp, err := p.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		done()
		return nil, p.explain(ctx, err)
	}
	resp.Body = &cancelBody{ReadCloser: resp.Body, cancel: done}

	return resp, nil
}

type cancelBody struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
