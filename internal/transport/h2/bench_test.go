// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// clients runs a benchmark against the same server with our client and with
// net/http's.
func clients(b *testing.B, run func(b *testing.B, s *served, client *http.Client)) {
	s := serve(b, count)
	theirs := s.Client()
	b.Cleanup(theirs.CloseIdleConnections)
	for _, c := range []struct {
		name   string
		client *http.Client
	}{{"h2", s.client}, {"nethttp", theirs}} {
		b.Run(c.name, func(b *testing.B) { run(b, s, c.client) })
	}
}

func BenchmarkLargeBody(b *testing.B) {
	const n = 100 << 20
	clients(b, func(b *testing.B, s *served, client *http.Client) {
		b.SetBytes(n)
		b.ReportAllocs()
		for b.Loop() {
			fetch(b, client, fmt.Sprintf("%s/?n=%d", s.URL, n), n)
		}
	})
}

func BenchmarkSmallRequests(b *testing.B) {
	for _, parallel := range []int{1, 16} {
		b.Run(fmt.Sprintf("parallel=%d", parallel), func(b *testing.B) {
			clients(b, func(b *testing.B, s *served, client *http.Client) {
				b.ReportAllocs()
				if parallel == 1 {
					for b.Loop() {
						fetch(b, client, s.URL+"/?n=1000", 1000)
					}
					return
				}
				b.SetParallelism(parallel)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						fetch(b, client, s.URL+"/?n=1000", 1000)
					}
				})
			})
		})
	}
}

func fetch(b *testing.B, client *http.Client, url string, want int64) {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	require.NoError(b, err)
	req.Header.Set("Authorization", "Bearer 0123456789")
	resp, err := client.Do(req)
	require.NoError(b, err)
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(b, err)
	require.Equal(b, want, n)
	_ = resp.Body.Close()
}

func BenchmarkIdleStream(b *testing.B) {
	const n = 2000
	s := answer(b)
	for name, client := range map[string]func(testing.TB) (*http.Client, string){"h2": s.ours, "nethttp": s.theirs} {
		b.Run(name, func(b *testing.B) {
			client, url := client(b)
			for b.Loop() {
				c := measureIdle(b, client, url, n)
				b.ReportMetric(c.heap, "heap-B/stream")
				b.ReportMetric(c.stack, "stack-B/stream")
				b.ReportMetric(c.goroutines, "goroutines/stream")
			}
		})
	}
}
