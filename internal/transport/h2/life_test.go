// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

func TestFramesThatMeanNothingAreIgnored(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.raw(0xee, 0xff, id, []byte("unknown")...)
		p.raw(0xef, 0xff, 0, make([]byte, 16<<10)...)
		p.raw(http2.FramePriority, 0, id, 0, 0, 0, 0, 1)
		p.raw(http2.FrameSettings, 1, 0)
		p.raw(http2.FrameSettings, 0, 0, 0x77, 0x77, 1, 2, 3, 4) // an unknown setting
		p.raw(http2.FramePing, 1, 0, ping...)                    // an answer to no ping
		require.True(t, p.expect(http2.FrameSettings).Flags.Has(http2.FlagSettingsAck))
		p.headers(id, ":status", "103", "link", "x")
		p.headers(id, ":status", "100")
		p.sent(p.fr.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: p.encode(":status", "200"), EndHeaders: true, PadLength: 9,
			Priority: http2.PriorityParam{Weight: 3},
		}))
		p.sent(p.fr.WriteDataPadded(id, false, []byte("hi"), make([]byte, 100)))
		p.raw(http2.FrameWindowUpdate, 0, id, 0, 0, 0, 1)
		p.last(id, "x-after", "not announced")
		body, err := k.body()
		require.NoError(t, err)
		require.Equal(t, "hi", body)
		require.Empty(t, k.resp.Header)
		require.Nil(t, k.resp.Trailer)
		p.quiet()
	})
}

func TestSecretsAreNotRemembered(t *testing.T) {
	bubble(t, func(b *bench) {
		b.get("/path", "Authorization", "Bearer x", "Cookie", "a=b", "Proxy-Authorization", "y", "Accept", "z")
		f := b.greeted().expect(http2.FrameHeaders)
		require.ElementsMatch(t, []string{":path", "authorization", "cookie", "proxy-authorization"}, f.secret)
	})
}

func TestLengthOfWhatIsNotSent(t *testing.T) {
	bubble(t, func(b *bench) {
		p := b.warm()
		for _, status := range []string{"204", "304"} {
			k := b.get("/")
			id, _ := p.request()
			p.last(id, ":status", status, "content-length", "5")
			body, err := k.body()
			require.NoError(t, err)
			require.Empty(t, body)
			require.EqualValues(t, 5, k.resp.ContentLength)
		}
		b.get("/")
		id, _ := p.request()
		p.headers(id, ":status", "304", "content-length", "5")
		p.data(id, true, "12345")
		require.Equal(t, http2.ErrCodeProtocol, p.expect(http2.FrameRSTStream).code)
	})
}

func TestHeadersMayComeInPieces(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		block := p.encode(":status", "200", "a", "b", "c", strings.Repeat("d", 100))
		p.raw(http2.FrameHeaders, http2.FlagHeadersEndStream, id, block[:2]...)
		p.raw(http2.FrameContinuation, 0, id)
		p.raw(http2.FrameContinuation, 0, id, block[2:9]...)
		p.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, id, block[9:]...)
		require.Equal(t, http.Header{"A": {"b"}, "C": {strings.Repeat("d", 100)}}, k.response().Header)
	})
}

func TestPingIsAnswered(t *testing.T) {
	bubble(t, func(b *bench) {
		b.get("/")
		p := b.greeted()
		p.request()
		p.raw(http2.FramePing, 0, 0, ping...)
		f := p.expect(http2.FramePing)
		require.True(t, f.Flags.Has(http2.FlagPingAck))
		require.Equal(t, ping, f.data[:])
	})
}

func TestServerMayForbidTheHeaderTable(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/", "X-Same", "thing")
		p := b.greeted()
		id, _ := p.request()
		p.sent(p.fr.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}))
		p.expect(http2.FrameSettings)
		p.last(id, ":status", "200")
		k.response()
		p.dec.SetMaxDynamicTableSize(0)
		p.dec.SetAllowedMaxDynamicTableSize(0)
		b.get("/", "X-Same", "thing")
		_, fields := p.request()
		require.Equal(t, "thing", fields["x-same"])
	})
}

func TestServerMayForbidLargeHeaders(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/", "X-Large", strings.Repeat("x", 1000))
		p := b.greeted(http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1000})
		require.ErrorIs(t, k.failure(), h2.ErrHeaderTooLarge)
		p.quiet()
		require.Zero(t, b.transport.Streams())
		b.get("/")
		p.request()
	})
}

func TestSlowReaderParksOneWindow(t *testing.T) {
	const window = 16 << 10
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		p.data(id, false, strings.Repeat("x", window))
		p.quiet() // nothing was read, so no window is opened

		buf := make([]byte, window)
		n, err := io.ReadFull(k.response().Body, buf[:window/4-1])
		require.NoError(t, err)
		p.quiet()
		m, err := k.resp.Body.Read(buf[:1])
		require.NoError(t, err)
		f := p.expect(http2.FrameWindowUpdate)
		require.Equal(t, id, f.StreamID)
		require.EqualValues(t, n+m, f.inc)

		// The peer may send exactly what was opened, including padding, which
		// is never read.
		p.sent(p.fr.WriteDataPadded(id, false, []byte(strings.Repeat("y", window/4-256)), make([]byte, 255)))
		p.quiet()
		_, err = io.ReadFull(k.resp.Body, buf[:window/4])
		require.NoError(t, err)
		f = p.expect(http2.FrameWindowUpdate)
		require.EqualValues(t, window/4+256, f.inc)
	}, func(o *h2.Options) { o.StreamWindow = window })
}

func TestParkedDataTakesMemoryInProportion(t *testing.T) {
	const window = 256 << 10
	for _, largest := range []int{1, 100, 1100, 5000, 16 << 10} {
		bubble(t, func(b *bench) {
			rnd := rand.New(rand.NewPCG(1, uint64(largest)))
			k := b.get("/")
			p := b.greeted()
			id, _ := p.request()
			p.headers(id, ":status", "200")
			for left := window; left > 0; {
				n := min(left, 1+rnd.IntN(largest))
				p.data(id, false, strings.Repeat("x", n))
				left -= n
			}
			p.quiet()
			data, memory := h2.Parked(b.transport)
			require.Equal(t, window, data)
			require.LessOrEqual(t, memory, 2*window+16<<10)
			n, err := io.ReadFull(k.response().Body, make([]byte, window))
			require.NoError(t, err)
			require.Equal(t, window, n)
			data, memory = h2.Parked(b.transport)
			require.Zero(t, data)
			require.Zero(t, memory)
		})
	}
}

func TestSlowReaderDoesNotHoldUpOthers(t *testing.T) {
	bubble(t, func(b *bench) {
		slow := b.get("/slow")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		slow.response()
		p.data(id, false, strings.Repeat("x", 16<<10))
		// All of the connection's window was used, and has been opened again.
		require.Zero(t, p.expect(http2.FrameWindowUpdate).StreamID)

		for range 20 {
			k, id := b.answered(p)
			p.data(id, true, strings.Repeat("x", 16<<10))
			f := p.expect(http2.FrameWindowUpdate)
			require.Zero(t, f.StreamID)
			require.EqualValues(t, 16<<10, f.inc)
			body, err := k.body()
			require.NoError(t, err)
			require.Len(t, body, 16<<10)
		}
		p.data(id, true, "y")
		body, err := slow.body()
		require.NoError(t, err)
		require.Len(t, body, 16<<10+1)
	}, func(o *h2.Options) { o.ConnWindow = 64 << 10 })
}

func TestBodyShorterThanDeclared(t *testing.T) {
	for name, end := range map[string]func(p *peer, id uint32){
		"data":     func(p *peer, id uint32) { p.data(id, true, "d") },
		"trailers": func(p *peer, id uint32) { p.last(id, "a", "b") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k := b.get("/")
				p := b.greeted()
				id, _ := p.request()
				p.headers(id, ":status", "200", "content-length", "5")
				p.data(id, false, "abc")
				end(p, id)
				body, err := k.body()
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.Contains(t, body, "abc")
				require.EqualValues(t, 5, k.resp.ContentLength)
				p.quiet()
			})
		})
	}
}

func TestAnnouncedTrailersArrive(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200", "trailer", "x-one, X-Two")
		require.Equal(t, http.Header{"X-One": nil, "X-Two": nil}, k.response().Trailer)
		require.Empty(t, k.resp.Header)
		p.data(id, false, "abc")
		p.last(id, "x-two", "2")
		_, err := k.body()
		require.NoError(t, err)
		require.Equal(t, http.Header{"X-One": nil, "X-Two": {"2"}}, k.resp.Trailer)
	})
}

func TestResetByTheServer(t *testing.T) {
	bubble(t, func(b *bench) {
		unanswered := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.sent(p.fr.WriteRSTStream(id, http2.ErrCodeInternal))
		wrong, ok := errors.AsType[*h2.StreamError](unanswered.failure())
		require.True(t, ok)
		require.Equal(t, &h2.StreamError{StreamID: id, Code: http2.ErrCodeInternal}, wrong)
		require.Equal(t, "stream error: stream ID 1; INTERNAL_ERROR; received from peer", wrong.Error())

		k, id := b.answered(p)
		p.data(id, false, "before")
		p.sent(p.fr.WriteRSTStream(id, http2.ErrCodeNo))
		body, err := k.body()
		require.Equal(t, "before", body)
		_, ok = errors.AsType[*h2.StreamError](err)
		require.True(t, ok)
		p.quiet()
	})
}

func TestRefusedStreamIsSentAgainElsewhere(t *testing.T) {
	bubble(t, func(b *bench) {
		first := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		first.response()

		second := b.get("/again")
		again, _ := p.request()
		p.sent(p.fr.WriteRSTStream(again, http2.ErrCodeRefusedStream))
		q := b.greeted()
		again, fields := q.request()
		require.Equal(t, "/again", fields[":path"])
		q.last(again, ":status", "200")
		second.response()

		p.data(id, true, "fine")
		body, err := first.body()
		require.NoError(t, err)
		require.Equal(t, "fine", body)
		require.Equal(t, 2, b.transport.Connections())
	})
}

func TestRequestThatIsAlwaysRefusedFails(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		for range 4 {
			p := b.greeted()
			id, _ := p.request()
			p.sent(p.fr.WriteRSTStream(id, http2.ErrCodeRefusedStream))
			p.closed(http2.ErrCodeNo) // the connection has no streams left
		}
		require.ErrorIs(t, k.failure(), h2.ErrUnprocessed)
		b.none()
		require.Zero(t, b.transport.Connections())
	})
}

func TestGoAwayLetsEarlierStreamsFinish(t *testing.T) {
	bubble(t, func(b *bench) {
		first := b.get("/first")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		first.response()
		second := b.get("/second")
		p.request()

		p.sent(p.fr.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)) // as net/http begins a graceful shutdown
		b.none()
		second.waiting()
		p.sent(p.fr.WriteGoAway(id, http2.ErrCodeNo, []byte("debug")))
		q := b.greeted()
		again, fields := q.request()
		require.Equal(t, "/second", fields[":path"])
		q.last(again, ":status", "200")
		second.response()

		p.data(id, true, "fine")
		body, err := first.body()
		require.NoError(t, err)
		require.Equal(t, "fine", body)
		p.closed(http2.ErrCodeNo)
		require.Equal(t, 1, b.transport.Connections())
	})
}

func TestGoAwayThenEndOfConnection(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.sent(p.fr.WriteGoAway(id, http2.ErrCodeInternal, []byte("secret")))
		k.waiting()
		_ = p.nc.Close()
		err := k.failure()
		require.ErrorIs(t, err, h2.ErrConnectionLost)
		away, ok := errors.AsType[*h2.GoAwayError](err)
		require.True(t, ok)
		require.Equal(t, &h2.GoAwayError{LastStreamID: id, Code: http2.ErrCodeInternal}, away)
		require.NotContains(t, err.Error(), "secret")
	})
}

func TestGoAwayOfAnIdleConnectionClosesIt(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.last(id, ":status", "200")
		k.response()
		p.sent(p.fr.WriteGoAway(id, http2.ErrCodeNo, nil))
		p.closed(http2.ErrCodeNo)
		b.get("/")
		b.greeted().request()
	})
}

func TestNoStreamsForTheTimeBeing(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
		p.quiet()
		k.waiting()
		b.none()
		p.sent(p.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}))
		p.expect(http2.FrameSettings)
		p.request()
	})
}

func TestStreamsBeyondTheLimitOpenConnectionsOneByOne(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2}
	bubble(t, func(b *bench) {
		for range 7 {
			b.get("/")
		}
		var peers []*peer
		for i := range 4 {
			p := b.accept()
			b.none() // while one is in progress
			p.greet(limit)
			for range min(2, 7-2*i) {
				p.request()
			}
			peers = append(peers, p)
		}
		b.none()
		// Room on the first connection is used before the last, which may then
		// become idle.
		peers[0].last(1, ":status", "200")
		b.get("/")
		id, _ := peers[0].request()
		require.EqualValues(t, 5, id)
	})
}

func TestNumbersOfStreamsRunOut(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.last(id, ":status", "200")
		k.response()
		h2.SkipStreams(b.transport, 1<<31-1)
		last := b.get("/last")
		id, _ = p.request()
		require.EqualValues(t, 1<<31-1, id)
		b.get("/next")
		q := b.greeted()
		id, _ = q.request()
		require.EqualValues(t, 1, id)
		p.last(1<<31-1, ":status", "200")
		last.response()
		p.closed(http2.ErrCodeNo)
	})
}
