// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/dial"
)

// bubbles runs the test in virtual time, over HTTP/2 and HTTP/1.1.
func bubbles(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	protocols(t, func(t *testing.T, http2 bool) {
		synctest.Test(t, func(t *testing.T) { test(t, http2) })
	})
}

func TestHalfOpenPeerIsNoticedWithin45Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet(t, true, func(w http.ResponseWriter, r *http.Request) { streamLines(w, r, nil) })
		s := connect(t, Options{Dial: n.dial}, n.config())
		stream := watch(t, s)
		time.Sleep(48 * time.Hour) // the server answers pings meanwhile
		n.blackhole()
		start := time.Now()
		_, err := stream.Read(make([]byte, 1))
		requireClass(t, Unreachable, err)
		require.LessOrEqual(t, time.Since(start), 45*time.Second)
		require.ErrorContains(t, err, "http2: client connection lost")
		require.Zero(t, s.Streams())
		require.InDelta(t, start.Add(-48*time.Hour).Unix(), s.LastLife().Unix(), 1)

		watch(t, s)
		require.EqualValues(t, 2, n.dials.Load())
	})
}

// blocked never gets a connection.
func blocked(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// silent returns a connection on which nothing ever answers.
func silent(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, theirs)
		_ = theirs.Close()
	}()
	return ours, nil
}

func TestShutAndCloseCutAtOnceWhateverRuns(t *testing.T) {
	ends := map[string]func(*Transport){
		"shut":  func(s *Transport) { s.Shut(errGiveUp) },
		"close": (*Transport).Close,
	}
	for stage, run := range map[string]struct {
		dial DialFunc
		path string
		qps  float64
	}{
		"dial":      {dial: blocked, path: "/version"},
		"handshake": {dial: silent, path: "/version"},
		"header":    {path: "/hang"},
		"body":      {path: "/api/v1/pods?watch=1"},
		"bucket":    {path: "/hang", qps: 0.0001},
	} {
		for end, do := range ends {
			t.Run(stage+"/"+end, func(t *testing.T) {
				bubbles(t, func(t *testing.T, http2 bool) {
					n := newMemnet(t, http2, hangOrStream)
					dial := run.dial
					if dial == nil {
						dial = n.dial
					}
					s := connect(t, Options{Dial: dial, QPS: run.qps, Burst: 1}, n.config())
					results := make(chan error, 3)
					for range 3 { // the second and third request wait for the connection of the first
						go func() {
							_, _, err := fetch(t.Context(), s, run.path)
							results <- err
						}()
					}
					synctest.Wait()
					n.blackhole()
					start := time.Now()
					do(s)
					for range 3 {
						err := <-results
						requireClass(t, Cut, err)
						if end == "shut" {
							require.ErrorIs(t, err, errGiveUp)
						}
					}
					require.Zero(t, time.Since(start))
					require.Zero(t, s.Streams())
					synctest.Wait()
					require.Zero(t, n.open.Load())
				})
			})
		}
	}
}

func hangOrStream(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/hang":
		<-r.Context().Done()
	case r.URL.Query().Has("watch"):
		streamLines(w, r, nil)
	}
}

func TestHungConnectionFailsEverybodyWhoWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := make(chan struct{}, 200)
		s := connect(t, Options{QPS: -1, Dial: func(_ context.Context, _, _ string) (net.Conn, error) {
			dials <- struct{}{}
			time.Sleep(30 * time.Second)
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
		}}, newMemnet(t, true, hangOrStream).config())
		start := time.Now()
		results := make(chan error, 100)
		for range 100 {
			go func() {
				_, _, err := fetch(t.Context(), s, "/version")
				results <- err
			}()
		}
		for range 100 {
			requireClass(t, Timeout, <-results)
		}
		require.Equal(t, 30*time.Second, time.Since(start))
		require.Len(t, dials, 1)
	})
}

func TestRequestThatGivesUpLeavesConnectingToTheNext(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		n := newMemnet(t, http2, hangOrStream)
		first := true
		s := connect(t, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if first {
				first = false
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return n.dial(ctx, network, address)
		}}, n.config())
		impatient, giveUp := context.WithTimeoutCause(t.Context(), time.Second, errGiveUp)
		defer giveUp()
		gaveUp, patient := make(chan error, 1), make(chan error, 1)
		go func() {
			_, _, err := fetch(impatient, s, "/version")
			gaveUp <- err
		}()
		synctest.Wait()
		go func() {
			_, _, err := fetch(t.Context(), s, "/version")
			patient <- err
		}()
		err := <-gaveUp
		requireClass(t, Timeout, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errGiveUp)
		require.NoError(t, <-patient)
	})
}

func TestReconnectAfterLossMakesOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet(t, true, hangOrStream)
		s := connect(t, Options{QPS: -1, Dial: n.dial}, n.config())
		for range 3 {
			n.dials.Store(0)
			lost := make(chan error, 90)
			for range 90 {
				go func() {
					resp, err := get(t.Context(), s, "/api/v1/pods?watch=1")
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					lost <- err
				}()
			}
			synctest.Wait()
			require.Equal(t, 90, s.Streams())
			require.EqualValues(t, 1, n.dials.Load())
			n.vanish()
			for range 90 {
				requireClass(t, Unreachable, <-lost)
			}
		}
	})
}

func TestServerThatGoesAwayIsDialledOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemnet(t, true, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/goaway" {
				w.Header().Set("Connection", "close")
				return
			}
			hangOrStream(w, r)
		})
		var dials atomic.Int32
		slow := func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			select {
			case <-time.After(time.Second):
				return n.dial(ctx, network, address)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		s := connect(t, Options{QPS: -1, Dial: slow}, n.config())
		stream := watch(t, s)
		_, _, err := fetch(t.Context(), s, "/goaway")
		require.NoError(t, err)
		synctest.Wait()
		done := make(chan error, 50)
		for range 50 { // while the first one dials
			go func() {
				_, _, err := fetch(t.Context(), s, "/version")
				done <- err
			}()
			time.Sleep(10 * time.Millisecond)
		}
		for range 50 {
			require.NoError(t, <-done)
		}
		require.LessOrEqual(t, dials.Load(), int32(3), "who found out, and who connected for the others")
		require.NoError(t, stream.Close())
	})
}

func TestNothingIsReadAfterShut(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		more := make(chan struct{}, 1)
		n := newMemnet(t, http2, func(w http.ResponseWriter, r *http.Request) { streamLines(w, r, more) })
		s := connect(t, Options{Dial: n.dial}, n.config())
		stream := watch(t, s)
		more <- struct{}{}
		synctest.Wait() // the second line has arrived, unread
		s.Shut(errGiveUp)
		read, err := stream.Read(make([]byte, 1))
		require.Zero(t, read)
		requireClass(t, Cut, err)
	})
}

func TestBucketLimitsRequestsAndListsButNoWatches(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		n := newMemnet(t, http2, hangOrStream)
		s := connect(t, Options{Dial: n.dial, QPS: 10, Burst: 5}, n.config())
		start := time.Now()
		for range 25 {
			_, _, err := fetch(t.Context(), s, "/api/v1/pods?limit=500")
			require.NoError(t, err)
		}
		require.Equal(t, 2*time.Second, time.Since(start).Round(100*time.Millisecond))

		start = time.Now()
		for range 10 {
			watch(t, s)
			_, err := s.Probe(t.Context(), "/readyz")
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(start))

		for range 5 {
			_, _, err := fetch(t.Context(), s, "/version")
			require.NoError(t, err)
		}
		hurried, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, _, err := fetch(hurried, s, "/version")
		requireClass(t, Timeout, err)
		require.ErrorContains(t, err, "rate limit")
		require.Zero(t, time.Since(start), "known at once")
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, _, err = fetch(canceled, s, "/version")
		requireClass(t, Canceled, err)
		require.Equal(t, time.Millisecond, time.Since(start))
	})
}

func TestReplacedAccessClosesItsConnectionsWhenTheLastStreamEnds(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		n := newMemnet(t, http2, hangOrStream)
		s := connect(t, Options{Dial: n.dial}, n.config())
		stream := watch(t, s)
		require.NoError(t, s.Swap(n.config(), "second"))
		require.Equal(t, 2, generations(s))
		require.NoError(t, stream.Close())
		synctest.Wait()
		require.Equal(t, 1, generations(s))
		require.Zero(t, n.open.Load())
		require.NoError(t, s.Swap(n.config(), "third"))
		require.Equal(t, 1, generations(s), "an unused access goes at once")
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	bubbles(t, func(t *testing.T, http2 bool) {
		n := newMemnet(t, http2, hangOrStream)
		s := connect(t, Options{Dial: n.dial}, n.config())
		_, _, err := fetch(t.Context(), s, "/version")
		require.NoError(t, err)
		require.Equal(t, 1, connections(s))
		time.Sleep(idleTimeout + time.Second)
		require.Zero(t, connections(s))
		_, _, err = fetch(t.Context(), s, "/version")
		require.NoError(t, err)
		require.EqualValues(t, 2, n.dials.Load())
	})
}

// TestHazardDialWithoutDeadlineNeverEnds: neither net/http nor a request
// without a deadline bounds a dial, and a dialer may wait for as long as its
// context lasts.
func TestHazardDialWithoutDeadlineNeverEnds(t *testing.T) {
	for _, path := range []string{"/version", "/api/v1/pods?watch=1"} {
		bubbles(t, func(t *testing.T, http2 bool) {
			n := newMemnet(t, http2, hangOrStream)
			s := connect(t, Options{Dial: blocked}, n.config())
			start := time.Now()
			results := make(chan error, 2)
			for range 2 { // the second waits for the connection of the first
				go func() {
					_, _, err := fetch(t.Context(), s, path)
					results <- err
				}()
			}
			for range 2 {
				requireClass(t, Timeout, <-results)
			}
			require.Equal(t, dial.Timeout, time.Since(start))
		})
	}
}
