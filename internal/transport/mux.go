// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// mux sends a generation's GET requests, watches among them, over HTTP/2
// connections that they share. Their streams need neither a goroutine nor the
// state that net/http keeps for each request. There may be 100,000 watches, and
// most are almost always idle.
type mux struct {
	g         *generation
	closed    func() // called once the transport is closed
	transport *h2.Transport
	plain     atomic.Bool // the server does not support HTTP/2
	spare     atomic.Pointer[spare]
}

// spare is a connection on which HTTP/2 was not negotiated. It is left to
// net/http, which would make the same one.
type spare struct {
	*tls.Conn

	under *conn
	made  time.Time
}

// spareAge is how old a spare may be to be used. A server may close a connection
// that it has heard nothing on.
const spareAge = time.Second

// spareStreams keeps room on a connection for the query that proves it, and for
// the one that confirms it: watches that take all other streams may be waiting
// for their results.
const spareStreams = 2

// Unconfirmed is implemented by connections that Options.Dial returns and that
// will be passed to ProbeOver. Where it returns true, room is kept for that. It
// must not block.
type Unconfirmed interface{ Unconfirmed() bool }

// spareOn returns how many streams of a connection are kept for ProbeOver.
func spareOn(over net.Conn) int {
	if secure, ok := over.(*tls.Conn); ok {
		over = secure.NetConn()
	}
	if c, ok := over.(*conn); ok {
		if dialed, ok := c.Conn.(Unconfirmed); ok && dialed.Unconfirmed() {
			return spareStreams
		}
	}
	return 0
}

func newMux(g *generation, closed func()) *mux {
	m := &mux{g: g, closed: closed}
	m.transport = h2.New(h2.Options{
		Dial:           m.dial,
		Check:          m.check,
		Spare:          spareOn,
		PingAfter:      pingAfter,
		PingTimeout:    pingTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxResponseHeader,
		StreamWindow:   streamWindow,
	})
	return m
}

// multiplexed reports whether GET requests use m. m may be nil.
func (m *mux) multiplexed() bool { return m != nil && !m.plain.Load() }

// enter admits a request. It does not wait for a connection: the h2.Transport
// makes one for all requests that need it.
func (m *mux) enter() (admission, error) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()

	if m.g.cause != nil || m.g.retired {
		return admission{}, errGone
	}
	m.g.inflight++

	return admission{sender: m}, nil
}

func (m *mux) of() *generation { return m.g }

func (m *mux) release() { m.g.release() }

// sharedDialKey marks the context of a dial for a mux.
type sharedDialKey struct{}

// ForShared reports whether ctx belongs to the dial of a connection that GET
// requests and watches share. Each of them is checked by its ConnCheck before it
// is sent.
func ForShared(ctx context.Context) bool { return ctx.Value(sharedDialKey{}) != nil }

// dial makes a connection on which HTTP/2 was negotiated.
func (m *mux) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, release := m.g.bind(context.WithValue(ctx, sharedDialKey{}, true), false)
	defer release()

	c, err := m.g.connect(ctx, "tcp", address, nil)
	if err != nil {
		return nil, err
	}
	secure, err := handshake(ctx, c, m.g.tls, address)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	if secure.ConnectionState().NegotiatedProtocol != "h2" {
		m.plain.Store(true)
		m.keep(&spare{Conn: secure, under: c, made: time.Now()})
		return nil, h2.ErrNotHTTP2
	}

	return secure, nil
}

// keep replaces the spare, which is closed.
func (m *mux) keep(s *spare) {
	if old := m.spare.Swap(s); old != nil {
		_ = old.under.Close() // nothing was sent, so there is nothing to end
	}
}

// take returns the spare for use by l, or nil if there is none that is young
// enough.
func (m *mux) take(l *lane) *tls.Conn {
	s := m.spare.Swap(nil)
	if s == nil {
		return nil
	}
	if time.Since(s.made) > spareAge {
		_ = s.under.Close()
		return nil
	}
	m.g.mu.Lock()
	defer m.g.mu.Unlock()

	s.under.l = l
	return s.Conn
}

// handshake runs the TLS handshake on a connection.
func handshake(ctx context.Context, c net.Conn, config *tls.Config, address string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, tlsHandshakeTimeout)
	defer cancel()

	if config = config.Clone(); config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
	}

	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure, nil
}

// check calls the ConnCheck of a request, and the hook of a caller's trace.
func (m *mux) check(ctx context.Context, over net.Conn) error {
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: over})
	}
	check, _ := ctx.Value(checkKey{}).(ConnCheck)
	if check == nil {
		return nil
	}
	var dialed net.Conn
	if c, _ := connOf(over); c != nil {
		dialed = c.Conn
	}
	if err := check(ctx, dialed); err != nil {
		return &trusted{err: err}
	}
	return nil
}

// prefer returns a context whose request is sent over the connection that
// Options.Dial returned as over, if it can take the request, and before others
// that wait for a connection. over may be nil.
func prefer(ctx context.Context, over net.Conn) context.Context { return h2.Prefer(ctx, same(over)) }

// same returns a function that reports whether a connection of an h2.Transport
// is the one that Options.Dial returned as over.
func same(over net.Conn) func(net.Conn) bool {
	return func(nc net.Conn) bool {
		c, _ := connOf(nc)
		return c != nil && c.Conn == over
	}
}

// send implements sender. Like net/http, it has other bodies than those of
// watches compressed, and decompresses them, unless the request specifies an
// encoding.
func (m *mux) send(req *http.Request, _ *dialing) (*http.Response, error) {
	send := m.transport.RoundTrip
	if isWatch(req) {
		send = m.transport.Watch
	}
	compress := !isWatch(req) && !m.g.config.DisableCompression &&
		req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == ""
	if compress {
		req.Header.Set("Accept-Encoding", "gzip") // a copy of the caller's
	}
	resp, err := send(req)
	if err == nil && compress {
		decompress(resp)
	}

	return resp, err
}

// sendable reports whether a request that m failed with err can be sent again:
// nothing of it was sent, because there is no HTTP/2, or its generation was
// replaced, or it needs net/http. A server that negotiates HTTP/2, and then
// answers in another protocol, would do so again.
func (m *mux) sendable(req *http.Request, err error) bool {
	return errors.Is(err, h2.ErrNotHTTP2) && m.plain.Load() || errors.Is(err, h2.ErrRetired) || unsupported(req, err)
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

// unsupported reports whether only net/http can send a request, such as one
// that upgrades its connection. A watch that it could send is refused before:
// see Transport.roundTrip.
func unsupported(req *http.Request, err error) bool {
	return errors.Is(err, h2.ErrUnsupported) && !isWatch(req)
}

// cut closes the h2.Transport in the background. That does not take long,
// because its connections are cut at the same time. Transport.Close waits for
// it.
func (m *mux) cut(error) {
	go func() {
		defer m.closed()
		m.transport.Close()
	}()
}
