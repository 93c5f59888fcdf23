// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/certs"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

// Front is a proxy that keeps its clients' connections while its backend
// changes.
type Front struct {
	Net     *memnet.Listener
	tls     bool
	mu      sync.Mutex // protects what follows
	shown   *tls.Certificate
	Behind  *API
	written map[string]int // writes by the uid of the cluster that got them
	cuts    map[context.Context]context.CancelFunc

	// connContext and choose, if set, lead requests to another server than
	// behind.
	ConnContext func(context.Context, net.Conn) context.Context
	Choose      func(*http.Request) *API
	// Answer, if set, returns how the proxy answers a request itself, or nil.
	Answer AnswerFunc
}

// NewFront runs a proxy until the test ends.
func NewFront(t *testing.T, secure bool, behind *API) *Front {
	t.Helper()
	f := &Front{
		Net:     memnet.Listen(),
		tls:     secure,
		Behind:  behind,
		written: map[string]int{},
		cuts:    map[context.Context]context.CancelFunc{},
	}
	server := &http.Server{Handler: f} //nolint:gosec // in memory
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if f.ConnContext != nil {
			return f.ConnContext(ctx, c)
		}
		return ctx
	}
	if secure {
		f.Renew()
		server.TLSConfig = &tls.Config{GetCertificate: f.certificate} //nolint:gosec // in memory
	}
	stop := memnet.Serve(f.Net, server)
	t.Cleanup(func() {
		f.Cut()
		stop()
	})

	return f
}

// Renew replaces the certificate of new connections.
func (f *Front) Renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shown = new(certs.Server("front").TLS())
}

func (f *Front) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown, nil
}

// Config returns how to reach the proxy.
func (f *Front) Config() *rest.Config {
	c := &rest.Config{Host: "http://front.test", BearerToken: "t", Dial: f.Net.Dial}
	if f.tls {
		c.Host, c.TLSClientConfig = "https://front.test", rest.TLSClientConfig{Insecure: true}
	}
	return c
}

// Reset breaks the connections.
func (f *Front) Reset() { f.Net.Reset() }

// Move changes the backend of all connections.
func (f *Front) Move(to *API) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Behind = to
}

// Cut ends the running requests, and no connection.
func (f *Front) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, cancel := range f.cuts {
		cancel()
	}
}

// Wrote returns the number of writes that a cluster received.
func (f *Front) Wrote(uid string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.written[uid]
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.Answer != nil {
		if answer := f.Answer(r); answer != nil {
			answer(w, r)
			return
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	f.mu.Lock()
	behind := f.Behind
	if f.Choose != nil {
		behind = f.Choose(r)
	}
	f.cuts[ctx] = cancel
	if r.Method != http.MethodGet {
		f.written[behind.Identity()]++
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.cuts, ctx)
		f.mu.Unlock()
		cancel()
	}()
	if r.Method != http.MethodGet {
		_, _ = io.Copy(io.Discard, r.Body)
		Answer(w, map[string]any{"kind": "ConfigMap", "apiVersion": "v1",
			"metadata": map[string]any{"namespace": "default", "name": "new"}})
		return
	}
	behind.ServeHTTP(w, r.WithContext(ctx))
}

// TwoClusters returns two API servers that hold objects of the same versions.
func TwoClusters(t *testing.T) (a, b *API) {
	t.Helper()
	a, b = NewAPI(t, "uid-a"), NewAPI(t, "uid-b")
	for _, name := range []string{"one", "two", "three"} {
		a.Put(name, "1", nil)
	}
	for _, name := range []string{"four", "five", "six"} {
		b.Put(name, "1", nil)
	}
	return a, b
}

// BehindProxy returns a connected cluster that can be replaced behind its
// proxy, with ConfigMaps watched and all kinds known.
func BehindProxy(t *testing.T, secure bool) (cc *clustercache.ClusterCache, proxy *Front, a, b *API) {
	t.Helper()
	a, b = TwoClusters(t)
	proxy = NewFront(t, secure, a)
	d := NewDirectory()
	d.Set(Key("a"), proxy.Config())
	o := Silent(d)
	o.Informers.StallTimeout = time.Hour // the server sends no bookmarks
	cc = Start(t, o)
	require.NoError(t, Watch(t, cc).WaitForSync(t.Context()))
	return cc, proxy, a, b
}
