// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

func TestCancelWhileWaiting(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}
	bubble(t, func(b *bench) {
		dialing := b.get("/dialing")
		p := b.accept()
		dialing.cancel()
		require.ErrorIs(t, dialing.failure(), context.Canceled)
		p.greet(limit) // so that the next request finds a connection
		headers := b.get("/headers")
		id, _ := p.request()

		place := b.get("/place")
		q := b.accept() // the peer never sends anything
		place.cancel()
		require.ErrorIs(t, place.failure(), context.Canceled)
		p.quiet()

		headers.cancel()
		require.ErrorIs(t, headers.failure(), context.Canceled)
		f := p.expect(http2.FrameRSTStream)
		require.Equal(t, id, f.StreamID)
		require.Equal(t, http2.ErrCodeCancel, f.code)
		p.raw(http2.FramePing, 1, 0, pingOf(p)...)
		p.headers(id, ":status", "200") // late, but not a violation

		body, id := b.answered(p)
		p.data(id, false, "abc")
		r := body.read(make([]byte, 3))
		n, err := r.result()
		require.NoError(t, err)
		require.Equal(t, 3, n)
		r = body.read(make([]byte, 3))
		r.waiting()
		p.data(id, false, "") // wakes no reader
		body.cancel()
		_, err = r.result()
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, http2.ErrCodeCancel, p.expect(http2.FrameRSTStream).code)
		_ = q
	})
}

// pingOf returns the payload of the next frame, which must be a ping.
func pingOf(p *peer) []byte {
	p.t.Helper()
	f := p.expect(http2.FramePing)
	require.False(p.t, f.Flags.Has(http2.FlagPingAck))
	return f.data[:]
}

func TestCancelDropsWhatWasReceived(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		p.data(id, false, "abc")
		k.response()
		k.cancel()
		_, err := k.body()
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestContextThatHasEndedSendsNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://peer.test/", nil)
		require.NoError(t, err)
		_, err = b.transport.RoundTrip(req)
		require.ErrorIs(t, err, context.Canceled)
		b.none()
	})
}

// TestResetCountsUntilTheServerHasSeenIt: a server may run each request to its
// end although the client reset it. Such a server must not get more requests
// than it allows.
func TestResetCountsUntilTheServerHasSeenIt(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2}
	bubble(t, func(b *bench) {
		one, two := b.get("/"), b.get("/")
		p := b.greeted(limit)
		p.request()
		p.request()
		one.cancel()
		p.expect(http2.FrameRSTStream)
		first := pingOf(p)
		two.cancel()
		p.expect(http2.FrameRSTStream)
		three, four := b.get("/3"), b.get("/4")
		p.quiet()
		b.none()
		p.raw(http2.FramePing, 1, 0, first...)
		second := pingOf(p) // the second stream was reset after the first ping
		p.request()
		p.quiet()
		p.raw(http2.FramePing, 1, 0, second...)
		p.request()
		three.waiting()
		four.waiting()
		b.none()
	})
}

func TestReadAndCloseOfTheBody(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		body := k.response().Body
		n, err := body.Read(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		r := k.read(make([]byte, 1))
		r.waiting()
		require.NoError(t, body.Close())
		_, err = r.result()
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		require.Equal(t, http2.ErrCodeCancel, p.expect(http2.FrameRSTStream).code)
		pingOf(p)
		require.NoError(t, body.Close())
		k.cancel()
		p.quiet()
	})
}

func TestCloseAfterTheEndSendsNothing(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		p.data(id, true, "unread")
		synctest.Wait()
		require.NoError(t, k.response().Body.Close())
		_, err := k.resp.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		p.quiet()
	})
}

// TestContextThatEndsBeforeTheRequestIsSent: the callback of a context may run
// before the request that registered it continues.
func TestContextThatEndsBeforeTheRequestIsSent(t *testing.T) {
	bubble(t, func(b *bench) {
		p := b.warm()
		require.ErrorIs(t, h2.Hold(b.transport)(context.Canceled), context.Canceled)
		require.Zero(t, b.transport.Streams())
		p.quiet()
		b.answered(p)
	})
}
