// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// watches sends a generation's watches over HTTP/2 connections of their own.
// Their streams need neither a goroutine nor the state that net/http keeps for
// each request. There may be 100,000 of them, and most are almost always idle.
type watches struct {
	t         *Transport
	g         *generation
	lane      lane // only for counting; no request is sent on it
	transport *h2.Transport
	plain     atomic.Bool // the server does not support HTTP/2
}

// newWatches returns nil if the config requires a feature that only net/http
// has.
func newWatches(t *Transport, g *generation) *watches {
	if g.base.Scheme != "https" || g.wrapped() || g.config.Proxy != nil ||
		!slices.Contains(g.config.TLS.NextProtos, "h2") {
		return nil
	}
	w := &watches{t: t, g: g, lane: lane{g: g}}
	w.transport = h2.New(h2.Options{
		Dial:           w.dial,
		PingAfter:      pingAfter,
		PingTimeout:    pingTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxResponseHeader,
		StreamWindow:   streamWindow,
	})
	return w
}

// multiplexed reports whether watches have connections of their own. w may be
// nil.
func (w *watches) multiplexed() bool { return w != nil && !w.plain.Load() }

// enter admits a watch. It does not wait for a connection: the h2.Transport
// makes one for all watches that need it.
func (w *watches) enter() (admission, error) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()

	if w.g.cause != nil || w.g.retired {
		return admission{}, errGone
	}
	w.lane.inflight++
	w.g.inflight++

	return admission{lane: &w.lane}, nil
}

// streamDialKey marks the context of a dial for watches.
type streamDialKey struct{}

// ForStreams reports whether ctx belongs to the dial of a connection that
// carries only watches and the probes of ProbeStreams.
func ForStreams(ctx context.Context) bool { return ctx.Value(streamDialKey{}) != nil }

// ProbeStreams is like ProbeAside, but uses the connection of the watches if
// they have one of their own.
func (t *Transport) ProbeStreams(ctx context.Context, path string) (Proof, error) {
	return t.ask(ctx, path, t.enterStreams)
}

func (t *Transport) enterStreams(context.Context) (admission, error) {
	return t.enterBy(func(g *generation) (admission, error) {
		if g.watches.multiplexed() {
			return g.watches.enter()
		}
		return g.enterProof(false)
	})
}

// dial makes a connection on which HTTP/2 was negotiated.
func (w *watches) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, release := w.g.bind(context.WithValue(ctx, streamDialKey{}, true), true)
	defer release()

	c, err := w.lane.connect(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	secure, err := handshake(ctx, c, w.g.tls, address)
	if err != nil {
		_ = c.Close()
		return nil, err
	}

	return secure, nil
}

// handshake runs the TLS handshake on a connection.
func handshake(ctx context.Context, c net.Conn, config *tls.Config, address string) (net.Conn, error) {
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
	if secure.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, h2.ErrNotHTTP2
	}
	return secure, nil
}

// roundTrip sends a watch.
func (w *watches) roundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.transport.RoundTrip(req)
	if errors.Is(err, h2.ErrNotHTTP2) {
		w.plain.Store(true)
	}
	return resp, err
}

// unsent reports whether err is that of a watches' h2.Transport that sent
// nothing of the request: it has no HTTP/2, or its generation was replaced.
func unsent(err error) bool { return errors.Is(err, h2.ErrNotHTTP2) || errors.Is(err, h2.ErrRetired) }

// cut closes the h2.Transport in the background. That does not take long,
// because its connections are cut at the same time. Transport.Close waits for
// it.
func (w *watches) cut(error) {
	go func() {
		defer w.t.running.Done()
		w.transport.Close()
	}()
}
