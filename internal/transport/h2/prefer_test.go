// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

var oneStream = http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}

// TestRequestPrefersItsConnection: although an older one has room.
func TestRequestPrefersItsConnection(t *testing.T) {
	var dialed []net.Conn
	bubble(t, func(b *bench) {
		one := b.get("/one")
		p := b.greeted(oneStream)
		id, _ := p.request()
		b.get("/two")
		q := b.greeted()
		q.request()
		p.last(id, ":status", "200")
		one.response()
		require.Len(t, dialed, 2)

		b.prefer(func(c net.Conn) bool { return c == dialed[1] })
		q.request()
		b.prefer(func(net.Conn) bool { return false })
		p.request()
	}, func(o *h2.Options) { o.Dial = recording(o.Dial, &dialed) })
}

// TestHazardPreferredRequestWaitsBehindOthers: they may be waiting for its
// answer.
func TestHazardPreferredRequestWaitsBehindOthers(t *testing.T) {
	bubble(t, func(b *bench) {
		for range 3 {
			b.get("/")
		}
		p := b.greeted(oneStream)
		p.request()
		b.prefer(func(net.Conn) bool { return false })
		q := b.greeted(oneStream)
		_, fields := q.request()
		require.Equal(t, "/preferred", fields[":path"])
	})
}

func recording(dial func(context.Context, string) (net.Conn, error), all *[]net.Conn,
) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		*all = append(*all, c)
		return c, err
	}
}

// prefer sends a request that prefers a connection.
func (b *bench) prefer(over func(net.Conn) bool) {
	ctx, cancel := context.WithCancel(h2.Prefer(b.Context(), over))
	b.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://peer.test/preferred", nil)
	require.NoError(b.T, err)
	b.calls.Go(func() { _, _ = b.transport.RoundTrip(req) })
	synctest.Wait()
}

// TestCheckPrecedesTheRequest: it has the connection, and its error is that of
// the request. Its place is free again afterwards.
func TestCheckPrecedesTheRequest(t *testing.T) {
	refused := errors.New("refused")
	var dialed, checked []net.Conn
	bubble(t, func(b *bench) {
		p := b.get("/")
		peer := b.greeted(oneStream)
		require.ErrorIs(t, p.failure(), refused)
		peer.quiet()
		require.Equal(t, dialed, checked)

		b.get("/")
		peer.request()
		b.none()
	}, func(o *h2.Options) {
		o.Dial = recording(o.Dial, &dialed)
		o.Check = func(_ context.Context, over net.Conn) error {
			if checked = append(checked, over); len(checked) == 1 {
				return refused
			}
			return nil
		}
	})
}

// TestHazardRequestIsSentAfterItsCheckOutlastedIt: the end of its context is
// noticed before anything is sent.
func TestHazardRequestIsSentAfterItsCheckOutlastedIt(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		k.waiting()
		k.cancel()
		require.ErrorIs(t, k.failure(), context.Canceled)
		p.quiet()
	}, func(o *h2.Options) {
		o.Check = func(ctx context.Context, _ net.Conn) error {
			<-ctx.Done()
			return nil
		}
	})
}

// TestWatchesEndAndOtherRequestsGoOn: also those that have no headers yet. No
// watch follows.
func TestWatchesEndAndOtherRequestsGoOn(t *testing.T) {
	bubble(t, func(b *bench) {
		read := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		watch := func() chan error {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://peer.test/?watch=1", nil)
			require.NoError(t, err)
			ended := make(chan error, 1)
			b.calls.Go(func() {
				resp, err := b.transport.Watch(req)
				if err == nil {
					_, err = resp.Body.Read(make([]byte, 1))
				}
				ended <- err
			})
			return ended
		}
		waiting := watch()
		first, _ := p.request()
		reading := watch()
		running, _ := p.request()
		p.headers(running, ":status", "200")
		synctest.Wait()

		b.transport.EndWatches()
		require.ErrorIs(t, <-waiting, h2.ErrWatchEnded)
		require.ErrorIs(t, <-reading, h2.ErrWatchEnded)
		reset := map[uint32]bool{}
		for len(reset) < 2 {
			if f := p.next(); f.Type == http2.FrameRSTStream {
				require.Equal(t, http2.ErrCodeCancel, f.code)
				reset[f.StreamID] = true
			}
		}
		require.Equal(t, map[uint32]bool{first: true, running: true}, reset)
		require.ErrorIs(t, <-watch(), h2.ErrRetired)
		require.Equal(t, 1, b.transport.Streams())

		p.last(id, ":status", "200")
		read.response()
	})
}

// TestHazardHungDialHoldsAllRequests: once a request has given up waiting for a
// dial, others cause one more, and no third.
func TestHazardHungDialHoldsAllRequests(t *testing.T) {
	for name, hangsTwice := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			var dials int
			bubble(t, func(b *bench) {
				b.stuck.Store(true)
				hasty, patient := b.get("/"), b.get("/")
				synctest.Wait()
				time.Sleep(time.Second / 2)
				hasty.cancel()
				require.ErrorIs(t, hasty.failure(), context.Canceled)
				require.Equal(t, 1, dials, "it may just be slow")

				b.stuck.Store(hangsTwice)
				slow := b.get("/")
				time.Sleep(time.Second)
				slow.cancel()
				require.ErrorIs(t, slow.failure(), context.Canceled)
				require.Equal(t, 2, dials)
				if !hangsTwice {
					p := b.greeted()
					p.request()
					time.Sleep(29500 * time.Millisecond) // the first dial has failed
					patient.waiting()
					return
				}
				again := b.get("/")
				time.Sleep(2 * time.Second)
				again.cancel()
				synctest.Wait()
				require.Equal(t, 2, dials)
				time.Sleep(time.Minute)
				require.ErrorIs(t, patient.failure(), context.DeadlineExceeded)
			}, func(o *h2.Options) {
				dial := o.Dial
				o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
					dials++
					return dial(ctx, addr)
				}
			})
		})
	}
}
