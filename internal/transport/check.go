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

// ConnCheck is told which connection a request is about to be sent over, as
// Options.Dial or the config's own Dial returned it. An error refuses: nothing
// of the request is sent then, and it fails with that error in its chain. It
// may wait, for as long as ctx, which is the request's.
type ConnCheck func(ctx context.Context, over net.Conn) error

// maxTries is how many connections of HTTP/1.1 a checked request is sent over:
// one that was idle and that the server had closed, one more, and one for good
// measure.
//
// net/http sends a GET once more when a connection that has served another
// request is closed without an answer. To it, ours all have: the question who
// answers goes first. Where a proxy closed the connection of every watch, it
// never ended.
const maxTries = 3

var errTries = fmt.Errorf("%w on each of %d connections", io.EOF, maxTries)

// checkKey is where a context holds a ConnCheck.
type checkKey struct{}

// WithConnCheck returns a context whose requests are checked just before they
// are sent, and before each time that net/http sends them again. Watches that
// travel over HTTP/2 are not: their transport has no idle connections of
// others.
func WithConnCheck(ctx context.Context, check ConnCheck) context.Context {
	return context.WithValue(ctx, checkKey{}, check)
}

// passage is a request on its way to a connection.
type passage struct {
	t       ticket
	check   ConnCheck       // may be nil
	ctx     context.Context //nolint:containedctx // of the request, for the check
	cancel  context.CancelCauseFunc
	refused atomic.Pointer[error]
	tries   atomic.Int32 // connections that the request was given
}

// passage returns the context to send a request with. The passage is nil if
// nothing has to be known of the connection.
func (t ticket) passage(ctx context.Context) (context.Context, *passage) {
	check, _ := ctx.Value(checkKey{}).(ConnCheck)
	if t.transport == nil || (t.round == nil && check == nil) {
		return ctx, nil
	}
	p := &passage{t: t, check: check, ctx: ctx, cancel: func(error) {}}
	if check != nil {
		ctx, p.cancel = context.WithCancelCause(ctx)
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: p.got}), p
}

// got is called by net/http before the first byte of the request is written.
func (p *passage) got(info httptrace.GotConnInfo) {
	p.t.connected(info) // at once: requests wait for it
	if p.check == nil {
		return
	}
	c, multiplexed := connOf(info)
	var over net.Conn
	if c != nil {
		over = c.Conn
	}
	err := errTries
	if multiplexed || p.tries.Add(1) <= maxTries {
		err = p.check(p.ctx, over)
	}
	if err == nil {
		return
	}
	p.refused.Store(&err)
	p.cancel(err)
	if !multiplexed {
		// HTTP/2 looks at the context before it writes, HTTP/1.1 does not. The
		// connection is this request's alone.
		if c != nil {
			c.cut(err)
		} else {
			_ = info.Conn.Close()
		}
	}
}

// ended turns how a request ended into what is known of it.
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
