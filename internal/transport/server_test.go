// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// server is an API server on loopback that counts its connections.
type server struct {
	*httptest.Server

	conns atomic.Int32
}

// serve starts a TLS server with HTTP/2, or with HTTP/1.1 only.
func serve(t *testing.T, http2 bool, handler http.HandlerFunc) *server {
	t.Helper()
	streams := 0
	if http2 {
		streams = streamsPerLane
	}
	return serveLimited(t, streams, handler)
}

// serveLimited starts a TLS server that allows the given number of streams per
// connection; 0 means HTTP/1.1.
func serveLimited(t *testing.T, streams int, handler http.HandlerFunc) *server {
	t.Helper()
	srv := &server{Server: httptest.NewUnstartedServer(handler)}
	srv.EnableHTTP2 = streams > 0
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			srv.conns.Add(1)
		}
	}
	srv.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// config returns access to the server with a bearer token.
func (s *server) config(token string) *rest.Config {
	return &rest.Config{Host: s.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: caOf(s.Server)}}
}

func caOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// newTransport returns a transport that is closed when the test ends.
func newTransport(t *testing.T, opts Options) *Transport {
	t.Helper()
	if opts.Cluster == "" {
		opts.Cluster = "fleet/one"
	}
	s := New(opts)
	t.Cleanup(s.Close)
	return s
}

// connect returns a transport that uses cfg.
func connect(t *testing.T, opts Options, cfg *rest.Config) *Transport {
	t.Helper()
	s := newTransport(t, opts)
	require.NoError(t, s.Swap(cfg, "first"))
	return s
}

// get sends a GET and returns the response with an open body.
func get(ctx context.Context, s *Transport, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+path, nil)
	if err != nil {
		return nil, err
	}
	return s.Client().Do(req)
}

// fetch sends a GET and reads the whole response.
func fetch(ctx context.Context, s *Transport, path string) (int, string, error) {
	resp, err := get(ctx, s, path)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// watch opens a stream and returns it after its first line.
func watch(t *testing.T, s *Transport) io.ReadCloser {
	t.Helper()
	resp, err := get(t.Context(), s, "/api/v1/pods?watch=true")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	t.Cleanup(func() { _ = resp.Body.Close() })
	expectLine(t, resp.Body)
	return resp.Body
}

const line = "{}\n"

func expectLine(t *testing.T, r io.Reader) {
	t.Helper()
	buf := make([]byte, len(line))
	_, err := io.ReadFull(r, buf)
	require.NoError(t, err)
	require.Equal(t, line, string(buf))
}

// streamLines writes one line, and another one for each signal, until the
// client disconnects.
func streamLines(w http.ResponseWriter, r *http.Request, more <-chan struct{}) {
	for {
		if _, err := io.WriteString(w, line); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// requireClass requires err to be a *Error of the class.
func requireClass(t *testing.T, class Class, err error) {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, class, e.Class, "%v", err)
}

// protocols runs the test over HTTP/2 and HTTP/1.1.
func protocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	t.Run("http2", func(t *testing.T) { test(t, true) })
	t.Run("http1", func(t *testing.T) { test(t, false) })
}

// generations returns how many accesses hold connections or may still open
// some.
func generations(s *Transport) int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.gens)
}

// connections returns how many connections the access in use has.
func connections(s *Transport) int {
	s.mu.Lock()
	g := s.current
	s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()

	n := 0
	for c := range g.cuts {
		if _, ok := c.(*conn); ok {
			n++
		}
	}
	return n
}
