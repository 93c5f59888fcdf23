// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/internal/certs"
)

// memnet is a TLS server that clients reach through memory, for use in bubbles
// of virtual time.
type memnet struct {
	server *http.Server
	accept chan net.Conn
	down   chan struct{}
	served sync.WaitGroup
	dials  atomic.Int32
	open   atomic.Int32 // connections not yet closed by the client

	mu    sync.Mutex // protects the fields below
	conns []*wire    // the server's sides
}

// wire is one side of a connection. It can drop everything written to it.
type wire struct {
	net.Conn

	lossy  *atomic.Bool // shared by both sides
	closed func()
}

func (w *wire) Close() error {
	w.closed()
	return w.Conn.Close()
}

func (w *wire) Write(p []byte) (int, error) {
	if w.lossy.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// newMemnet serves handler in the current bubble until the test ends.
func newMemnet(t *testing.T, http2 bool, handler http.HandlerFunc) *memnet {
	t.Helper()
	n := &memnet{accept: make(chan net.Conn), down: make(chan struct{})}
	pair, err := tls.X509KeyPair(identity().cert, identity().key)
	if err != nil {
		t.Fatal(err)
	}
	n.server = &http.Server{
		Handler: handler, Protocols: new(http.Protocols),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	n.server.Protocols.SetHTTP1(true)
	n.server.Protocols.SetHTTP2(http2)
	n.served.Go(func() { _ = n.server.ServeTLS(n, "", "") })
	t.Cleanup(func() {
		_ = n.server.Close()
		n.vanish()
		n.served.Wait()
	})
	return n
}

// Accept implements net.Listener.
func (n *memnet) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.down:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *memnet) Close() error {
	select {
	case <-n.down:
	default:
		close(n.down)
	}
	return nil
}

// Addr implements net.Listener.
func (n *memnet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial is a DialFunc to the server.
func (n *memnet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.dials.Add(1)
	ours, theirs := net.Pipe()
	lossy := new(atomic.Bool)
	near := &wire{Conn: ours, lossy: lossy, closed: sync.OnceFunc(func() { n.open.Add(-1) })}
	far := &wire{Conn: theirs, lossy: lossy, closed: func() {}}
	select {
	case n.accept <- far:
		n.open.Add(1)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()

	n.conns = append(n.conns, far)
	return near, nil
}

// blackhole makes all connections drop everything from now on, in both
// directions, without closing them.
func (n *memnet) blackhole() {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, c := range n.conns {
		c.lossy.Store(true)
	}
}

// vanish closes all connections from the server's side.
func (n *memnet) vanish() {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, c := range n.conns {
		_ = c.Conn.Close()
	}
	n.conns = nil
}

func (n *memnet) config() *rest.Config {
	return &rest.Config{Host: "https://api.example", BearerToken: "secret",
		TLSClientConfig: rest.TLSClientConfig{CAData: identity().cert}}
}

// pemPair is a certificate with its key.
type pemPair struct{ cert, key []byte }

// A certificate from validFrom to validUntil is valid both today and in the
// year 2000, the time of bubbles.
var (
	validFrom  = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
	validUntil = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
)

// identity is a server certificate.
var identity = sync.OnceValue(func() pemPair { return newIdentity(validFrom, validUntil, "api.example") })

func newIdentity(from, to time.Time, name string) pemPair {
	pair := certs.SelfSign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "canary-subject"}, DNSNames: []string{name},
		NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	})
	return pemPair{cert: pair.Cert, key: pair.Key}
}
