// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

func TestResponseIsAsNetHTTPMakesIt(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-After")
		w.Header().Add("X-Twice", "one")
		w.Header().Add("X-Twice", "two")
		w.Header().Set("X-Path", r.URL.RequestURI())
		w.Header().Set("X-Agent", r.UserAgent())
		w.Header().Set("X-Auth", r.Header.Get("Authorization"))
		w.Header().Set("X-Host", r.Host)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "hello")
		w.Header().Set("X-After", "bye")
	})
	theirs := s.Client()
	var got [2]*http.Response
	for i, client := range []*http.Client{s.client, theirs} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/a%2Fb?c=d", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+strings.Repeat("x", 40_000)) // several frames
		req.Header.Set("Accept-Encoding", "identity")
		got[i], err = client.Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(got[i].Body)
		require.NoError(t, err)
		require.NoError(t, got[i].Body.Close())
		require.Equal(t, "hello", string(body))
		got[i].Header.Del("Date")
		require.NotNil(t, got[i].TLS)
		got[i].TLS, got[i].Body, got[i].Request = nil, nil, nil
	}
	require.Equal(t, got[1], got[0])
	require.Equal(t, http.Header{"X-After": {"bye"}}, got[0].Trailer)
}

func TestEmptyBodies(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		case "/hints":
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	for path, status := range map[string]int{"/204": 204, "/304": 304, "/hints": 200, "/": 200} {
		resp, err := s.get(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, body)
		require.NoError(t, resp.Body.Close())
	}
	require.Zero(t, s.transport.Streams())
	require.Equal(t, 1, s.transport.Connections())
}

func TestLargeBodyArrivesWhole(t *testing.T) {
	const n = 20 << 20
	s := serve(t, count)
	text := s.text(t, fmt.Sprintf("/?n=%d", n))
	require.Len(t, text, n)
	want, err := io.ReadAll(io.LimitReader(endless{}, 100))
	require.NoError(t, err)
	require.Equal(t, string(want), text[:100])
}

func TestManyStreamsShareFewConnections(t *testing.T) {
	const n = 1000
	s := serve(t, hang, func(srv *http.Server, _ *h2.Options) {
		srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 250}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers sync.WaitGroup
	started := make(chan error)
	ends := make(chan error, n)
	for range n {
		readers.Go(func() {
			resp, err := s.get(ctx, "/")
			started <- err
			if err != nil {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			_, err = resp.Body.Read(make([]byte, 1))
			ends <- err
		})
	}
	for range n {
		require.NoError(t, <-started)
	}
	require.Equal(t, n, s.transport.Streams())
	require.Equal(t, 4, s.transport.Connections())
	require.EqualValues(t, 4, s.dials.Load(), "one dial for each connection that was needed")
	cancel()
	for range n {
		require.ErrorIs(t, <-ends, context.Canceled)
	}
	readers.Wait()
	require.Zero(t, s.transport.Streams())
}

func TestConcurrentFirstRequestsShareOneDial(t *testing.T) {
	s := serve(t, count)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { s.text(t, "/?n=10") })
	}
	all.Wait()
	require.EqualValues(t, 1, s.dials.Load())
}

func TestCloseOfTheBodyFreesThePlace(t *testing.T) {
	s := serve(t, hang, func(srv *http.Server, _ *h2.Options) {
		srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1}
	})
	for range 20 {
		resp, err := s.get(t.Context(), "/")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		_, err = resp.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	}
	require.EqualValues(t, 1, s.dials.Load(), "a place that will be free is waited for")
}

func TestServerThatShutsDownFinishesItsStreams(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, "late")
	})
	resp, err := s.get(t.Context(), "/")
	require.NoError(t, err)
	shut := make(chan error)
	go func() { shut <- s.Config.Shutdown(context.Background()) }()
	close(release)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "late", string(body))
	require.NoError(t, resp.Body.Close())
	require.NoError(t, <-shut)
	require.Zero(t, s.transport.Streams())
}

func TestTransportCloseEndsEverything(t *testing.T) {
	s := serve(t, hang)
	resp, err := s.get(t.Context(), "/")
	require.NoError(t, err)
	end := make(chan error)
	go func() {
		_, err := resp.Body.Read(make([]byte, 1))
		end <- err
	}()
	s.transport.Close()
	require.ErrorIs(t, <-end, h2.ErrClosed)
	require.NoError(t, resp.Body.Close())
	_, err = s.get(t.Context(), "/")
	require.ErrorIs(t, err, h2.ErrClosed)
	require.Zero(t, s.transport.Connections())
	s.transport.Close()
}
