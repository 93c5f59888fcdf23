// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// ConnCheck is called with the connection over which a request is about to be
// sent, as returned by Options.Dial or by the config's own Dial. If it returns
// an error, nothing of the request is sent, and the request fails with that
// error in its chain. ConnCheck may block for as long as ctx, the context of
// the request, lasts.
type ConnCheck func(ctx context.Context, over net.Conn) error

// maxTries is the maximum number of HTTP/1.1 connections over which a checked
// request is sent: an idle one that the server had already closed, a second
// one, and one spare.
//
// net/http resends a GET if a connection that has already served another
// request is closed without a response. All of our connections look that way to
// net/http, because the identity check is sent over them first. Without a
// limit, a proxy that closed the connection of every watch caused endless
// retries.
const maxTries = 3

var errTries = fmt.Errorf("%w on each of %d connections", io.EOF, maxTries)

// checkKey is the context key of a ConnCheck.
type checkKey struct{}

// WithConnCheck returns a context whose requests are checked just before they
// are sent, and again each time they are resent. A check that ctx already has
// comes first.
func WithConnCheck(ctx context.Context, check ConnCheck) context.Context {
	if first, ok := ctx.Value(checkKey{}).(ConnCheck); ok {
		second := check
		check = func(ctx context.Context, over net.Conn) error {
			if err := first(ctx, over); err != nil {
				return err
			}
			return second(ctx, over)
		}
	}
	return context.WithValue(ctx, checkKey{}, check)
}

// passage tracks a request until it has its connection.
type passage struct {
	dialing *dialing
	check   ConnCheck       // may be nil
	ctx     context.Context //nolint:containedctx // of the request, for the check
	cancel  context.CancelCauseFunc
	refused atomic.Pointer[error]
	tries   atomic.Int32 // connections that were assigned to the request
}

// track returns req as net/http is to send it: its connection ends d, and is
// checked. The passage is nil if there is neither a dialing nor a check.
func track(req *http.Request, d *dialing) (*http.Request, *passage) {
	ctx := req.Context()
	check, _ := ctx.Value(checkKey{}).(ConnCheck)
	if d == nil && check == nil {
		return req, nil
	}
	p := &passage{
		dialing: d,
		check:   check,
		ctx:     ctx,
		cancel:  func(error) {},
	}
	if check != nil {
		ctx, p.cancel = context.WithCancelCause(ctx)
	}
	return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: p.got})), p
}

// got is the GotConn hook, which net/http calls before it writes the first byte
// of the request.
func (p *passage) got(info httptrace.GotConnInfo) {
	p.dialing.connected(info) // first, because requests are waiting for it
	if p.check == nil {
		return
	}
	c, multiplexed := connOf(info.Conn)
	var over net.Conn
	if c != nil {
		over = c.Conn
	}
	err := errTries
	if multiplexed || p.tries.Add(1) <= maxTries {
		err = p.check(p.ctx, over)
	}
	if err == nil && p.ctx.Err() != nil { // the request was given up while it was checked
		err = context.Cause(p.ctx)
	}
	if err == nil {
		return
	}
	p.refused.Store(&err)
	p.cancel(err)

	if !multiplexed {
		// HTTP/2 checks the context before it writes; HTTP/1.1 does not, so the
		// connection is cut. No other request uses it.
		if c != nil {
			c.cut(err)
		} else {
			_ = info.Conn.Close()
		}
	}
}

// ended replaces the result of a request that the check refused, and releases
// the context of the check.
func (p *passage) ended(resp *http.Response, err error) (*http.Response, error) {
	if p == nil || p.check == nil {
		return resp, err
	}
	if why := p.refused.Load(); why != nil {
		if err == nil {
			_ = resp.Body.Close()
		}
		resp, err = nil, &trusted{err: *why}
	}

	if err != nil {
		p.cancel(nil)
		return nil, err
	}
	resp.Body = &releasing{ReadCloser: resp.Body, release: func() { p.cancel(nil) }}
	return resp, nil
}
