// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHazardReplacedAccessHoldsRequestsThatWaitForItsDial: they have sent
// nothing, so they need not wait until an address that is no longer right times
// out. Over net/http, the one that makes the connection does.
func TestHazardReplacedAccessHoldsRequestsThatWaitForItsDial(t *testing.T) {
	t.Run("own", func(t *testing.T) {
		bubbles(t, func(t *testing.T, http2 bool) {
			n := newMemnet(t, http2, hangOrStream)
			results, start := replacedWhileDialing(t, n, Options{Dial: n.dial})
			require.NoError(t, <-results)
			require.NoError(t, <-results)
			require.Zero(t, time.Since(start))
		})
	})
	t.Run("net/http", func(t *testing.T) {
		bubbles(t, func(t *testing.T, http2 bool) {
			n := newMemnet(t, http2, hangOrStream)
			results, start := replacedWhileDialing(t, n, Options{Dial: n.dial, NetHTTP: true})
			require.NoError(t, <-results)
			require.Zero(t, time.Since(start))
			requireClass(t, Timeout, <-results)
		})
	})
}

// replacedWhileDialing returns the results of two requests that waited for a
// dial when their access was replaced, at start.
func replacedWhileDialing(t *testing.T, n *memnet, opts Options) (results chan error, start time.Time) {
	t.Helper()
	old := n.config()
	old.Host, old.Dial = "https://old.example", blocked
	s := connect(t, opts, old)
	start, results = time.Now(), make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := fetch(t.Context(), s, "/version")
			results <- err
		}()
	}
	synctest.Wait()
	require.NoError(t, s.Swap(n.config(), "second"))
	t.Cleanup(func() { require.Zero(t, generations(s)-1, "the replaced one has ended") })

	return results, start
}

// TestHazardReplacedAccessHoldsWatchesThatWaitForItsDial: watches, and what
// else uses their connections, go on with the new access at once.
func TestHazardReplacedAccessHoldsWatchesThatWaitForItsDial(t *testing.T) {
	for name, use := range map[string]func(context.Context, *Transport) error{
		"watch": func(ctx context.Context, s *Transport) error {
			resp, err := get(ctx, s, "/api/v1/pods?watch=1")
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		},
		"probe": func(ctx context.Context, s *Transport) error {
			_, err := s.ProbeAside(ctx, "/version")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, func(t *testing.T, http2 bool) {
				n := newMemnet(t, http2, hangOrStream)
				old := n.config()
				old.Host, old.Dial = "https://old.example", blocked
				s := connect(t, Options{Dial: n.dial}, old)
				start := time.Now()
				results := make(chan error, 2)
				for range 2 {
					go func() { results <- use(t.Context(), s) }()
				}
				synctest.Wait()
				require.NoError(t, s.Swap(n.config(), "second"))
				require.NoError(t, <-results)
				require.NoError(t, <-results)
				require.Zero(t, time.Since(start))
				synctest.Wait()
				require.Equal(t, 1, generations(s), "the replaced one has ended")
			})
		})
	}
}

// TestHazardCutStreamsIsMistakenForAnUnknownFailure: a watch that waits for its
// headers fails as those do that have them. What shares their connection goes
// on.
func TestHazardCutStreamsIsMistakenForAnUnknownFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet(t, true, hangOrStream)
		s := connect(t, Options{Dial: n.dial}, n.config())
		results := make(chan error, 2)
		go func() {
			resp, err := get(t.Context(), s, "/api/v1/pods?watch=1")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			results <- err
		}()
		go func() {
			_, _, err := fetch(t.Context(), s, "/hang?watch=1")
			results <- err
		}()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		others := make(chan error, 2)
		go func() { others <- second(s.ProbeAside(ctx, "/hang")) }()
		go func() { others <- second(get(ctx, s, "/hang")) }()

		synctest.Wait()
		require.NoError(t, s.Swap(n.config(), "second"))
		s.CutStreams("second")
		for range 2 {
			err := <-results
			requireClass(t, Cut, err)
			require.ErrorIs(t, err, ErrSuperseded)
		}
		synctest.Wait()
		require.Empty(t, others)
		cancel()
		for range 2 {
			requireClass(t, Canceled, <-others)
		}
		require.EqualValues(t, 1, n.dials.Load())
	})
}

// over probes over one connection of any age.
func (r *rotations) over(ctx context.Context, path string) (Proof, error) {
	var over net.Conn
	ctx = WithConnCheck(ctx, func(_ context.Context, c net.Conn) error {
		over = c
		return nil
	})
	if proof, err := r.s.ProbeAside(ctx, path); err != nil {
		return proof, err
	}
	return r.s.ProbeOver(ctx, r.path(""), over)
}
