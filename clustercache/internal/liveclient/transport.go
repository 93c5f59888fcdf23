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

type cancelBody struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancelBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// route sends lists, which account for themselves, through the client that has
// no budget for bodies.
type route struct{ unary, stream http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r *route) RoundTrip(req *http.Request) (*http.Response, error) {
	if call := callOf(req.Context()); call != nil && call.list != nil {
		return r.stream.RoundTrip(req)
	}
	return r.unary.RoundTrip(req)
}
