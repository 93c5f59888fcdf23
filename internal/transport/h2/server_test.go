// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// served is net/http's server with a client of ours.
type served struct {
	*httptest.Server

	transport *h2.Transport
	client    *http.Client
	dials     atomic.Int32
}

// serve runs handler behind TLS and HTTP/2 until the test ends.
func serve(t testing.TB, handler http.HandlerFunc, configure ...func(*http.Server, *h2.Options)) *served {
	t.Helper()
	s := &served{Server: httptest.NewUnstartedServer(handler)}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	opts := h2.Options{Dial: s.dial}
	for _, configure := range configure {
		configure(s.Config, &opts)
	}
	s.StartTLS()
	s.transport = h2.New(opts)
	s.client = &http.Client{Transport: s.transport}
	t.Cleanup(func() {
		s.transport.Close()
		s.Close()
	})
	return s
}

func (s *served) dial(ctx context.Context, addr string) (net.Conn, error) {
	s.dials.Add(1)
	return dialTLS(ctx, addr, s.Certificate(), "h2")
}

// dialTLS connects to addr, trusting one certificate.
func dialTLS(ctx context.Context, addr string, trusted *x509.Certificate, protocol string) (net.Conn, error) {
	roots := x509.NewCertPool()
	roots.AddCert(trusted)
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: []string{protocol}}}
	return d.DialContext(ctx, "tcp", addr)
}

// get sends a request that ends when ctx does.
func (s *served) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return nil, err
	}
	return s.client.Do(req)
}

// text returns the body of path.
func (s *served) text(t testing.TB, path string) string {
	t.Helper()
	resp, err := s.get(t.Context(), path)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// hang sends the headers at once and then keeps the stream open until the
// client ends it.
func hang(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// count writes the number of bytes given by the query's n.
func count(w http.ResponseWriter, r *http.Request) {
	var n int64
	_, _ = fmt.Sscan(r.URL.Query().Get("n"), &n)
	_, _ = io.CopyN(w, endless{}, n)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte('a' + i%26)
	}
	return len(p), nil
}
