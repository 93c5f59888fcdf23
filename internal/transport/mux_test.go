// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadsShareTheConnectionOfTheWatches: only a write opens another one, for a
// while. With net/http alone there is one for everything.
func TestReadsShareTheConnectionOfTheWatches(t *testing.T) {
	for name, netHTTP := range map[string]bool{"own": false, "net/http": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newMemnet(t, true, hangOrStream)
				s := newTransport(t, Options{Dial: n.dial, NetHTTP: netHTTP})
				c, err := s.Candidate(n.config(), "first")
				require.NoError(t, err)
				_, err = c.Get(t.Context(), "/readyz")
				require.NoError(t, err)
				require.NoError(t, c.Use())
				require.Equal(t, !netHTTP, s.Multiplexed())

				watch(t, s)
				for _, ask := range []func(context.Context, string) (Proof, error){s.Probe, s.ProbeAside} {
					_, err := ask(t.Context(), "/version")
					require.NoError(t, err)
				}
				_, _, err = fetch(t.Context(), s, "/api/v1/pods")
				require.NoError(t, err)
				require.EqualValues(t, 1, n.dials.Load())

				require.NoError(t, sendBody(t.Context(), s, http.MethodPost, "/api/v1/pods", ""))
				if !netHTTP {
					require.Equal(t, 2, connections(s))
					time.Sleep(writesIdleTimeout + time.Second)
				}
				require.Equal(t, 1, connections(s))
			})
		})
	}
}

// TestHazardRequestIsSentBeforeItsConnectionIsChecked: nothing reaches a server
// before the check has let it pass, whatever the client and the request.
func TestHazardRequestIsSentBeforeItsConnectionIsChecked(t *testing.T) {
	for _, netHTTP := range []bool{false, true} {
		for _, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=1"} {
			bubbles(t, func(t *testing.T, http2 bool) {
				if netHTTP && strings.Contains(path, "watch") {
					return
				}
				var served atomic.Int32
				n := newMemnet(t, http2, func(http.ResponseWriter, *http.Request) { served.Add(1) })
				s := connect(t, Options{Dial: n.dial, NetHTTP: netHTTP}, n.config())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var over net.Conn
				proceed := make(chan error)
				checked := WithConnCheck(ctx, func(ctx context.Context, c net.Conn) error {
					over = c
					select {
					case err := <-proceed:
						return err
					case <-ctx.Done():
						return nil
					}
				})
				results := make(chan error)
				send := func() { _, _, err := fetch(checked, s, path); results <- err }

				go send()
				synctest.Wait()
				require.Zero(t, served.Load())
				require.IsType(t, &wire{}, over, "what Options.Dial returned")
				proceed <- nil
				require.NoError(t, <-results)
				require.EqualValues(t, 1, served.Load())

				go send()
				proceed <- errGiveUp
				require.ErrorIs(t, <-results, errGiveUp)

				go send()
				synctest.Wait()
				cancel()
				requireClass(t, Canceled, <-results)
				synctest.Wait()
				require.EqualValues(t, 1, served.Load())
				require.Zero(t, s.Streams())
			})
		}
	}
}

// TestHazardProbeWaitsBehindThoseThatWaitForIt: requests that hold all streams
// of a connection wait for the answer to a probe.
func TestHazardProbeWaitsBehindThoseThatWaitForIt(t *testing.T) {
	srv := serveLimited(t, 3, func(http.ResponseWriter, *http.Request) {})
	s := connect(t, Options{QPS: -1}, srv.config("secret"))
	var held atomic.Int32
	answered := make(chan struct{})
	ctx := WithConnCheck(t.Context(), func(ctx context.Context, _ net.Conn) error {
		held.Add(1)
		select {
		case <-answered:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	results := make(chan error, 30)
	for range 30 {
		go func() { results <- second(get(ctx, s, "/api/v1/pods")) }()
	}
	require.Eventually(t, func() bool { return held.Load() >= 3 }, time.Minute, time.Millisecond)
	_, err := s.ProbeAside(t.Context(), "/version")
	require.NoError(t, err)
	close(answered)
	for range 30 {
		require.NoError(t, <-results)
	}
}

// unconfirmed is a connection that has to be asked itself.
type unconfirmed struct{ net.Conn }

func (*unconfirmed) Unconfirmed() bool { return true }

// TestHazardFullConnectionCannotBeProbed: requests that take all streams of a
// connection wait for what a probe over that connection shows.
func TestHazardFullConnectionCannotBeProbed(t *testing.T) {
	for _, streams := range []int{2, 3, 100} {
		srv := serveLimited(t, streams, func(http.ResponseWriter, *http.Request) {})
		dialed := make(chan net.Conn, 1000)
		s := connect(t, Options{QPS: -1, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			k := &unconfirmed{c}
			dialed <- k
			return k, err
		}}, srv.config("secret"))
		var held atomic.Int32
		answered := make(chan struct{})
		ctx := WithConnCheck(t.Context(), func(context.Context, net.Conn) error {
			held.Add(1)
			<-answered
			return nil
		})
		results := make(chan error, 200)
		for range 200 {
			go func() { results <- second(get(ctx, s, "/api/v1/pods")) }()
		}
		require.Eventually(t, func() bool { return held.Load() == 200 }, time.Minute, time.Millisecond)
		var wrong []error
		for range len(dialed) {
			k := <-dialed
			_, err := s.ProbeOver(WithConnCheck(t.Context(), func(_ context.Context, over net.Conn) error {
				if over != k {
					wrong = append(wrong, errGiveUp)
				}
				return nil
			}), "/version", k)
			wrong = append(wrong, err)
		}
		close(answered)
		for range 200 {
			require.NoError(t, <-results)
		}
		require.NoError(t, errors.Join(wrong...))
	}
}

// TestHazardSilenceOfAConnectionIsTakenForItsEnd: a request on a connection that
// went silent was not answered in time, whichever time-out is first. A watch on
// it has ended.
func TestHazardSilenceOfAConnectionIsTakenForItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet(t, true, hangOrStream)
		s := connect(t, Options{Dial: n.dial}, n.config())
		stream := watch(t, s)
		hung := make(chan error, 1)
		go func() { hung <- second(get(t.Context(), s, "/hang")) }()
		synctest.Wait()
		n.blackhole()
		_, err := stream.Read(make([]byte, 1))
		requireClass(t, Unreachable, err)
		requireClass(t, Timeout, <-hung)
	})
}
