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
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// idleStreams opens n watches with client and returns the heap bytes and
// goroutines per watch, counting both sides of the connection. A measurement
// counts if the heap is the same before it and after the watches have ended:
// what earlier tests left may go at any time, and pools may fill.
func idleStreams(t *testing.T, client *http.Client, url string, n int, served *atomic.Int32) (
	bytes, goroutines float64,
) {
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
	end := func(bodies []io.ReadCloser, left int32) {
		for _, body := range bodies {
			require.NoError(t, body.Close())
		}
		require.Eventually(t, func() bool { return served.Load() == left }, time.Minute, time.Millisecond)
	}
	first := []io.ReadCloser{open()}
	defer end(first, 0)
	for range 100 {
		before, _ := used()
		bodies := make([]io.ReadCloser, n)
		for i := range bodies {
			bodies[i] = open()
		}
		heap, count := used()
		end(bodies, 1)
		after, left := used()
		if math.Abs(after-before) < 10_000 {
			return (heap - after) / float64(n), (count - left) / float64(n)
		}
	}
	require.Fail(t, "the heap is never the same before and after")
	return 0, 0
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
	var served atomic.Int32
	srv := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		defer served.Add(-1)
		streamLines(w, r, nil)
	})
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(caOf(srv.Server)))
	plain := &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(plain.CloseIdleConnections)
	client := &http.Client{Transport: plain}
	theirBytes, theirGoroutines := idleStreams(t, client, srv.URL, streams, &served)

	s := connect(t, Options{}, srv.config("secret"))
	bytes, goroutines := idleStreams(t, s.StreamClient(), s.URL(), streams, &served)
	t.Logf("a stream holds %.0f bytes and %.1f goroutines, of which we add %.0f and %.1f",
		bytes, goroutines, bytes-theirBytes, goroutines-theirGoroutines)
	require.Less(t, bytes-theirBytes, 0.0)
	require.InDelta(t, 1, goroutines, 0.1, "the server's, and no other")
}
