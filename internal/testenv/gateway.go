// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/certs"
	"github.com/fleetcache/fleetcache/internal/testenv/internal/port"
)

// Gateway is an HTTP proxy in front of an API server, like an ingress or a
// layer 7 load balancer. It terminates TLS and HTTP/2 itself, and keeps its
// clients' connections whatever happens to the servers. Requests reach the
// server as requests of the administrator. Its methods are safe for concurrent
// use.
type Gateway struct {
	server    *http.Server
	listener  net.Listener
	authority certs.Pair
	serving   sync.WaitGroup

	// mu protects the fields below.
	mu       sync.Mutex
	backends []*backend
	turn     int
	old      []*backend
	answer   http.Handler
	drop     bool
	dropped  int
}

// backend is an API server as seen by the requests that began while it was set.
type backend struct {
	host      string
	transport *http.Transport
	ended     context.Context //nolint:containedctx // ends the streams
	end       context.CancelFunc
}

// Gateway starts a gateway in front of the server. It ends with the test.
func (a *APIServer) Gateway(t testing.TB) *Gateway {
	t.Helper()
	g, err := a.newGateway()
	if err != nil {
		t.Fatalf("start a gateway in front of %s: %v", a.Addr(), err)
	}
	t.Cleanup(func() {
		if err := g.close(); err != nil {
			t.Errorf("close the gateway in front of %s: %v", a.Addr(), err)
		}
	})
	return g
}

func (a *APIServer) newGateway() (*Gateway, error) {
	g := &Gateway{authority: a.cluster.authority()}
	cert := serverCert(g.authority, time.Now().Add(-validity), time.Now().Add(validity))
	err := g.SetBackend(a)
	if err != nil {
		return nil, err
	}
	if g.listener, err = net.Listen("tcp", net.JoinHostPort(port.Host, "0")); err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      roundTripper(g.roundTrip),
		FlushInterval:  -1,
		ModifyResponse: g.filter,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	g.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if answer := g.answers(); answer != nil {
				answer.ServeHTTP(w, r)
				return
			}
			proxy.ServeHTTP(w, r)
		}),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert.TLS()}},
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	g.serving.Go(func() { _ = g.server.ServeTLS(g.listener, "", "") }) // until close

	return g, nil
}

// Config returns a config for connecting through the gateway.
func (g *Gateway) Config() *rest.Config {
	config := configFor(g.listener.Addr().String(), g.authority.Cert, certs.Pair{})
	config.BearerToken = "gateway" // some clients refuse a config without credentials
	return config
}

// SetBackend sends all requests that begin from now on to another API server,
// or to several in turn. Open streams stay where they are until EndStreams.
func (g *Gateway) SetBackend(servers ...*APIServer) error {
	backends := make([]*backend, 0, len(servers))
	for _, a := range servers {
		config, err := rest.TLSConfigFor(a.Config())
		if err != nil {
			return fmt.Errorf("prepare for %s: %w", a.Addr(), err)
		}
		b := &backend{host: a.Addr(), transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
		b.ended, b.end = context.WithCancel(context.Background())
		backends = append(backends, b)
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	g.old = append(g.old, g.backends...)
	g.backends = backends

	return nil
}

// EndStreams aborts the requests that began before the last SetBackend.
func (g *Gateway) EndStreams() {
	g.mu.Lock()
	old := g.old
	g.old = nil
	g.mu.Unlock()

	for _, b := range old {
		b.end()
		b.transport.CloseIdleConnections()
	}
}

// Answer answers all requests that begin from now on in place of the server.
// Nil ends that.
func (g *Gateway) Answer(with http.Handler) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = with
}

// DropEvents withholds the events of all watches, including open ones, and
// forwards only bookmarks, as a defective proxy or a server with a failing
// conversion webhook does. The initial objects of a streamed list are
// forwarded.
func (g *Gateway) DropEvents(drop bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop = drop
}

// Dropped returns how many events have been withheld so far.
func (g *Gateway) Dropped() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dropped
}

func (g *Gateway) answers() http.Handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.answer
}

// dropEvent reports whether to withhold an event, and counts it.
func (g *Gateway) dropEvent() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.drop {
		g.dropped++
	}
	return g.drop
}

// backendKey is the context key of a request's backend.
type backendKey struct{}

// next returns the backend whose turn it is.
func (g *Gateway) next() *backend {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn++
	return g.backends[g.turn%len(g.backends)]
}

// rewrite directs a request to the current backend.
func (g *Gateway) rewrite(r *httputil.ProxyRequest) {
	b := g.next()
	r.SetURL(&url.URL{Scheme: "https", Host: b.host})
	r.Out.Host = b.host
	r.Out.Header.Del("Authorization")
	if watches(r.In) {
		r.Out.Header.Set("Accept", "application/json") // one event a line
	}
	r.Out = r.Out.WithContext(context.WithValue(r.Out.Context(), backendKey{}, b))
}

func (g *Gateway) roundTrip(r *http.Request) (*http.Response, error) {
	b := r.Context().Value(backendKey{}).(*backend)
	ctx, cancel := context.WithCancel(r.Context())
	release := context.AfterFunc(b.ended, cancel)
	resp, err := b.transport.RoundTrip(r.WithContext(ctx))
	done := func() { release(); cancel() }
	if err != nil {
		done()
		return nil, err
	}
	resp.Body = &closing{ReadCloser: resp.Body, done: done}

	return resp, nil
}

// filter removes events from a watch while they are to be dropped.
func (g *Gateway) filter(resp *http.Response) error {
	if !watches(resp.Request) {
		return nil
	}
	resp.Body = &events{
		ReadCloser: resp.Body,
		lines:      bufio.NewReader(resp.Body),
		listing:    resp.Request.URL.Query().Get("sendInitialEvents") == "true",
		drop:       g.dropEvent,
	}
	return nil
}

// watches reports whether a request is a watch.
func watches(r *http.Request) bool {
	watch, err := strconv.ParseBool(r.URL.Query().Get("watch"))
	return err == nil && watch
}

func (g *Gateway) close() error {
	err := g.server.Close()
	g.serving.Wait()
	g.mu.Lock()
	g.old = append(g.old, g.backends...)
	g.mu.Unlock()

	g.EndStreams()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closing is a body whose Close is reported.
type closing struct {
	io.ReadCloser

	done func()
}

// Close implements io.Closer.
func (c *closing) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}

// events is the body of a watch, with one event per line, from which some
// events are removed.
type events struct {
	io.ReadCloser

	lines   *bufio.Reader
	listing bool // the objects of a streamed list are not complete yet
	drop    func() bool
	rest    []byte
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		line, err := e.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		bookmark := bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`))
		if e.listing || bookmark || !e.drop() {
			e.rest = line
		}
		if bookmark && bytes.Contains(line, []byte(`"k8s.io/initial-events-end":"true"`)) {
			e.listing = false
		}
	}

	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}
