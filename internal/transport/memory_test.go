// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"math"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// idleStreams opens n watches with client and returns the heap bytes and
// goroutines per watch, counting both sides of the connection.
func idleStreams(t *testing.T, client *http.Client, url string, n int) (bytes, goroutines float64) {
	t.Helper()
	open := func() io.ReadCloser {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			url+"/api/v1/pods?watch=true&allowWatchBookmarks=true", nil)
		require.NoError(t, err)
		req.Header.Set("Accept", "application/json")
		req.Header.Set("Accept-Encoding", "identity")
		resp, err := client.Do(req)
		require.NoError(t, err)
		expectLine(t, resp.Body)
		return resp.Body
	}
	bodies := []io.ReadCloser{open()}
	heap, count := used()
	for range n {
		bodies = append(bodies, open())
	}
	heapAfter, countAfter := used()
	for _, body := range bodies {
		require.NoError(t, body.Close())
	}
	return (heapAfter - heap) / float64(n), (countAfter - count) / float64(n)
}

func used() (heap, goroutines float64) {
	var stats runtime.MemStats
	for last := uint64(math.MaxUint64); ; last = stats.HeapAlloc {
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&stats)
		if last < stats.HeapAlloc+10_000 { // what earlier tests left is gone
			return float64(stats.HeapAlloc), float64(runtime.NumGoroutine())
		}
	}
}

func TestIdleWatchTakesLessThanNetHTTP(t *testing.T) {
	const streams = 90 // one connection
	var handlers sync.WaitGroup
	srv := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		streamLines(w, r, nil)
	})
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(caOf(srv.Server)))
	plain := &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(plain.CloseIdleConnections)
	client := &http.Client{Transport: plain}
	idleStreams(t, client, srv.URL, streams) // fills the pools
	handlers.Wait()
	theirBytes, theirGoroutines := idleStreams(t, client, srv.URL, streams)

	handlers.Wait()
	s := connect(t, Options{}, srv.config("secret"))
	idleStreams(t, s.StreamClient(), s.URL(), streams)
	handlers.Wait()
	bytes, goroutines := idleStreams(t, s.StreamClient(), s.URL(), streams)
	t.Logf("a stream holds %.0f bytes and %.1f goroutines, of which we add %.0f and %.1f",
		bytes, goroutines, bytes-theirBytes, goroutines-theirGoroutines)
	require.Less(t, bytes-theirBytes, 0.0)
	require.InDelta(t, 1, goroutines, 0.1, "the server's, and no other")
}
