// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestStopIsPromptOverHTTP stops a pool in states of the connection in which
// client-go's informers take up to a minute.
func TestStopIsPromptOverHTTP(t *testing.T) {
	arrived := make(chan struct{}, 100)
	release := make(chan struct{})
	handlers := map[string]http.HandlerFunc{
		"hangs in headers": func(_ http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
		"hangs in mid-body": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Widget","apiVersion":"exam`)
			w.(http.Flusher).Flush()
			arrived <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
		"throttles": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
			select {
			case arrived <- struct{}{}:
			default:
			}
		},
	}
	for name, handler := range handlers {
		for _, h2 := range []bool{false, true} {
			proto := map[bool]string{false: " over HTTP/1.1", true: " over HTTP/2"}[h2]
			t.Run(name+proto, func(t *testing.T) {
				server := httptest.NewUnstartedServer(handler)
				server.EnableHTTP2 = h2
				server.StartTLS()
				defer server.Close()
				stopPrompt(t, server.URL, func() { <-arrived })
			})
		}
	}
	t.Run("refuses", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		stopPrompt(t, "https://"+l.Addr().String(), nil)
	})
	t.Run("black hole", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and nothing ever answers
		require.NoError(t, err)
		defer l.Close() //nolint:errcheck // the end of the test
		stopPrompt(t, "https://"+l.Addr().String(), func() {
			conn, err := l.Accept()
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
		})
	})
	close(release)
}

func stopPrompt(t *testing.T, url string, reached func()) {
	t.Helper()
	config := &rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	source, err := informerpool.FromConfig(config)
	require.NoError(t, err)
	pool, err := informerpool.New(informerpool.Options{Source: source})
	require.NoError(t, err)
	l := pooltest.Acquire(t, pool, pooltest.Everything)
	if reached != nil {
		reached()
	} else {
		require.Eventually(t, func() bool { return l.Status().LastError != nil }, 10*time.Second, time.Millisecond)
	}
	began := time.Now()
	require.NoError(t, pool.Close(context.Background()))
	require.Less(t, time.Since(began), time.Second)
	client, err := rest.HTTPClientFor(config) // the same transport, from client-go's cache
	require.NoError(t, err)
	utilnet.CloseIdleConnectionsFor(client.Transport)
}
