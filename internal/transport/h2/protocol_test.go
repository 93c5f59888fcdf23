// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

func TestConnectionBeginsAsItHasTo(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/a?b=c", "X-Y", "z", "Authorization", "Bearer t")
		p := b.accept()
		p.listen()
		f := p.expect(http2.FrameSettings)
		require.Equal(t, map[http2.SettingID]uint32{
			http2.SettingEnablePush: 0, http2.SettingInitialWindowSize: 256 << 10,
			http2.SettingMaxHeaderListSize: 256 << 10,
		}, f.settings)
		f = p.expect(http2.FrameWindowUpdate)
		require.EqualValues(t, 4<<20-65535, f.inc)
		p.quiet() // no request is sent before the server has stated its limit
		p.sent(p.fr.WriteSettings())
		require.True(t, p.expect(http2.FrameSettings).Flags.Has(http2.FlagSettingsAck))
		id, fields := p.request()
		require.EqualValues(t, 1, id)
		require.Equal(t, map[string]string{
			":authority": "peer.test", ":method": "GET", ":path": "/a?b=c", ":scheme": "https",
			"x-y": "z", "authorization": "Bearer t", "user-agent": "Go-http-client/2.0",
		}, fields)
		k.waiting()
		p.headers(id, ":status", "200", "content-type", "text/plain")
		p.data(id, true, "hi")
		body, err := k.body()
		require.NoError(t, err)
		require.Equal(t, "hi", body)
		require.Equal(t, http.Header{"Content-Type": {"text/plain"}}, k.resp.Header)
		require.EqualValues(t, -1, k.resp.ContentLength)
		p.quiet()
	})
}

// ping is a valid payload of a PING frame.
var ping = []byte("12345678")

func TestViolationEndsTheConnection(t *testing.T) {
	const idle = 99
	zeros := func(n int) []byte { return make([]byte, n) }
	for name, violation := range map[string]struct {
		code http2.ErrCode
		send func(p *peer, id uint32)
	}{
		"data on stream 0":       {http2.ErrCodeProtocol, func(p *peer, _ uint32) { p.data(0, false, "x") }},
		"data on an idle stream": {http2.ErrCodeProtocol, func(p *peer, _ uint32) { p.data(idle, false, "x") }},
		"data on an even stream": {http2.ErrCodeProtocol, func(p *peer, _ uint32) { p.data(2, false, "x") }},
		"data without pad length": {http2.ErrCodeFrameSize,
			func(p *peer, id uint32) { p.raw(http2.FrameData, 8, id) }},
		"data padded too much": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.raw(http2.FrameData, 8, id, 5, 'x') }},
		"headers on stream 0": {http2.ErrCodeProtocol, func(p *peer, _ uint32) { p.headers(0, ":status", "200") }},
		"headers on idle stream": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.headers(idle, ":status", "200") }},
		"headers without pad": {http2.ErrCodeFrameSize,
			func(p *peer, id uint32) { p.raw(http2.FrameHeaders, 4|8, id) }},
		"headers padded too much": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.raw(http2.FrameHeaders, 4|8, id, 9, 0x88) }},
		"headers without priority": {http2.ErrCodeFrameSize,
			func(p *peer, id uint32) { p.raw(http2.FrameHeaders, 4|32, id, 0) }},
		"header index 0": {http2.ErrCodeCompression,
			func(p *peer, id uint32) { p.raw(http2.FrameHeaders, 4, id, 0x80) }},
		"header index too large": {http2.ErrCodeCompression,
			func(p *peer, id uint32) { p.raw(http2.FrameHeaders, 4, id, 0xfe) }},
		"header table too large": {http2.ErrCodeCompression,
			func(p *peer, id uint32) { p.raw(http2.FrameHeaders, 4, id, 0x3f, 0xe2, 0x1f) }},
		"header block cut short": {http2.ErrCodeCompression,
			func(p *peer, id uint32) { p.raw(http2.FrameHeaders, 4, id, 0x88, 0x40) }},
		"headers interrupted": {http2.ErrCodeProtocol, func(p *peer, id uint32) {
			p.raw(http2.FrameHeaders, 0, id, 0x88)
			p.raw(http2.FramePing, 0, 0, ping...)
		}},
		"headers continued elsewhere": {http2.ErrCodeProtocol, func(p *peer, id uint32) {
			p.raw(http2.FrameHeaders, 0, id, 0x88)
			p.raw(http2.FrameContinuation, 4, id+2, 0x88)
		}},
		"headers continued for ever": {http2.ErrCodeEnhanceYourCalm, func(p *peer, id uint32) {
			p.raw(http2.FrameHeaders, 0, id, 0x88)
			for p.fr.WriteRawFrame(http2.FrameContinuation, 0, id, nil) == nil {
			}
		}},
		"headers without bound": {http2.ErrCodeEnhanceYourCalm, func(p *peer, id uint32) {
			// Literals that are not indexed: name "a", value of 100 bytes.
			field := append([]byte{0, 1, 'a', 100}, strings.Repeat("x", 100)...)
			p.raw(http2.FrameHeaders, 0, id, 0x88)
			for p.fr.WriteRawFrame(http2.FrameContinuation, 0, id, field) == nil {
				field = append(field[:104:104], field[:min(len(field), 8000)]...)
			}
		}},
		"continuation of nothing": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.raw(http2.FrameContinuation, 4, id) }},
		"push promise": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.raw(http2.FramePushPromise, 4, id, 0, 0, 0, 2, 0x88) }},
		"priority update": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FramePriorityUpdate, 0, 0, 0, 0, 0, 1, 'u') }},
		"priority of a wrong size": {http2.ErrCodeFrameSize,
			func(p *peer, id uint32) { p.raw(http2.FramePriority, 0, id, 1) }},
		"reset on stream 0": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FrameRSTStream, 0, 0, 0, 0, 0, 0) }},
		"reset of an idle stream": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FrameRSTStream, 0, idle, 0, 0, 0, 0) }},
		"reset of a wrong size": {http2.ErrCodeFrameSize,
			func(p *peer, id uint32) { p.raw(http2.FrameRSTStream, 0, id, 0) }},
		"window of an idle stream": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FrameWindowUpdate, 0, idle, 0, 0, 0, 1) }},
		"window opened by nothing": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FrameWindowUpdate, 0, 0, 0, 0, 0, 0) }},
		"window opened too far": {http2.ErrCodeFlowControl,
			func(p *peer, _ uint32) { p.raw(http2.FrameWindowUpdate, 0, 0, 0x7f, 0xff, 0xff, 0xff) }},
		"window of a wrong size": {http2.ErrCodeFrameSize,
			func(p *peer, _ uint32) { p.raw(http2.FrameWindowUpdate, 0, 0, 1) }},
		"settings on a stream": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.raw(http2.FrameSettings, 0, id) }},
		"settings of a wrong size": {http2.ErrCodeFrameSize,
			func(p *peer, _ uint32) { p.raw(http2.FrameSettings, 0, 0, 1, 2, 3) }},
		"settings ack with payload": {http2.ErrCodeFrameSize,
			func(p *peer, _ uint32) { p.raw(http2.FrameSettings, 1, 0, 0, 2, 0, 0, 0, 0) }},
		"settings with push": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FrameSettings, 0, 0, 0, 2, 0, 0, 0, 1) }},
		"settings with odd push": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FrameSettings, 0, 0, 0, 2, 0, 0, 0, 2) }},
		"settings with small frames": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FrameSettings, 0, 0, 0, 5, 0, 0, 0x3f, 0xff) }},
		"settings with large frames": {http2.ErrCodeProtocol,
			func(p *peer, _ uint32) { p.raw(http2.FrameSettings, 0, 0, 0, 5, 1, 0, 0, 0) }},
		"settings with a large window": {http2.ErrCodeFlowControl, func(p *peer, _ uint32) {
			p.raw(http2.FrameSettings, 0, 0, 0, 4, 0, 0, 0, 1, 0, 4, 0x80, 0, 0, 0)
		}},
		"settings that overflow a window": {http2.ErrCodeFlowControl, func(p *peer, id uint32) {
			p.raw(http2.FrameWindowUpdate, 0, id, 0x7f, 0xff, 0, 0)
			p.raw(http2.FrameSettings, 0, 0, 0, 4, 0, 2, 0, 0)
		}},
		"ping on a stream": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.raw(http2.FramePing, 0, id, ping...) }},
		"ping of a wrong size": {http2.ErrCodeFrameSize, func(p *peer, _ uint32) { p.raw(http2.FramePing, 0, 0, 1) }},
		"goaway on a stream": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.raw(http2.FrameGoAway, 0, id, zeros(8)...) }},
		"goaway of a wrong size": {http2.ErrCodeFrameSize,
			func(p *peer, _ uint32) { p.raw(http2.FrameGoAway, 0, 0, zeros(7)...) }},
		"frame too large": {http2.ErrCodeFrameSize,
			func(p *peer, id uint32) { _ = p.fr.WriteData(id, false, zeros(16<<10+1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k := b.get("/")
				p := b.greeted()
				id, _ := p.request()
				p.headers(id, ":status", "200")
				p.data(id, false, "before")
				k.response()
				violation.send(p, id)
				p.closed(violation.code)

				body, err := k.body()
				require.Equal(t, "before", body, "what was received can be read")
				require.ErrorIs(t, err, h2.ErrConnectionLost)
				wrong, ok := errors.AsType[*h2.ProtocolError](err)
				require.True(t, ok)
				require.Equal(t, violation.code, wrong.Code)
				require.Zero(t, b.transport.Connections())
				require.Zero(t, b.transport.Streams())
			})
		})
	}
}

func TestServerThatDoesNotBeginWithSettings(t *testing.T) {
	for name, first := range map[string]func(p *peer){
		"a ping":       func(p *peer) { p.raw(http2.FramePing, 0, 0, ping...) },
		"an ack":       func(p *peer) { p.raw(http2.FrameSettings, 1, 0) },
		"bad settings": func(p *peer) { p.raw(http2.FrameSettings, 0, 0, 0, 5, 0, 0, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k := b.get("/")
				p := b.accept()
				p.listen()
				first(p)
				p.closed(http2.ErrCodeProtocol)
				require.ErrorIs(t, k.failure(), h2.ErrConnectionLost)
			})
		})
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		bubble(t, func(b *bench) {
			k := b.get("/")
			p := b.accept()
			p.listen()
			_, err := io.WriteString(p.nc, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = err // the client hangs up in the middle
			require.ErrorIs(t, k.failure(), h2.ErrNotHTTP2)
		})
	})
	t.Run("nothing", func(t *testing.T) {
		bubble(t, func(b *bench) {
			k := b.get("/")
			p := b.accept()
			p.listen()
			synctest.Wait()
			_ = p.nc.Close()
			require.ErrorIs(t, k.failure(), h2.ErrConnectionLost)
			require.NotErrorIs(t, k.failure(), io.EOF, "which would be taken for the end of a body")
		})
	})
}

func TestViolationEndsTheStream(t *testing.T) {
	for name, violation := range map[string]struct {
		code http2.ErrCode
		send func(p *peer, id uint32)
	}{
		"data first":   {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.data(id, false, "x") }},
		"no status":    {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.headers(id, "a", "b") }},
		"no headers":   {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.headers(id) }},
		"short status": {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.headers(id, ":status", "20") }},
		"status is a word": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "abc") }},
		"status below 100": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "099") }},
		"signed status": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "+20") }},
		"switching protocols": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "101") }},
		"two statuses": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", ":status", "200") }},
		"late status": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, "a", "b", ":status", "200") }},
		"unknown pseudo header": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", ":x", "y") }},
		"request's pseudo header": {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.headers(id, ":path", "/") }},
		"upper case": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", "Aa", "b") }},
		"space in a name": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", "a b", "b") }},
		"empty name": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", "", "b") }},
		"line feed in a value": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", "a", "b\nc") }},
		"connection header": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", "connection", "close") }},
		"transfer encoding": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", "transfer-encoding", "chunked") }},
		"interim end": {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.last(id, ":status", "103") }},
		"length is a word": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", "content-length", "x") }},
		"negative length": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.headers(id, ":status", "200", "content-length", "-1") }},
		"length but no body": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.last(id, ":status", "200", "content-length", "1") }},
		"two lengths": {http2.ErrCodeProtocol, func(p *peer, id uint32) {
			p.headers(id, ":status", "200", "content-length", "1", "content-length", "2")
		}},
		"window opened by nothing": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.raw(http2.FrameWindowUpdate, 0, id, 0, 0, 0, 0) }},
		"window opened too far": {http2.ErrCodeFlowControl,
			func(p *peer, id uint32) { p.raw(http2.FrameWindowUpdate, 0, id, 0x7f, 0xff, 0xff, 0xff) }},
		"headers larger than we say": {http2.ErrCodeProtocol, func(p *peer, id uint32) { manyHeaders(p, id) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k := b.get("/")
				p := b.greeted()
				id, _ := p.request()
				other, otherID := b.answered(p)
				violation.send(p, id)
				f := p.expect(http2.FrameRSTStream)
				require.Equal(t, id, f.StreamID)
				require.Equal(t, violation.code, f.code)
				wrong, ok := errors.AsType[*h2.StreamError](k.failure())
				require.True(t, ok)
				require.Equal(t, violation.code, wrong.Code)
				require.Error(t, wrong.Err)

				p.data(otherID, true, "fine")
				body, err := other.body()
				require.NoError(t, err)
				require.Equal(t, "fine", body)
				pingOf(p)
				b.answered(p) // earlier violations no longer matter
				require.Equal(t, 1, b.transport.Connections())
			})
		})
	}
}

func TestHeaderBlockIsBoundedBeforeItIsDecoded(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		field := append([]byte{0, 1, 'a', 100}, strings.Repeat("x", 100)...)
		p.raw(http2.FrameHeaders, 0, id, bytes.Repeat(field, 4<<10/len(field))...)
		k.waiting()
		p.raw(http2.FrameContinuation, 0, id, field...)
		p.closed(http2.ErrCodeEnhanceYourCalm)
		require.ErrorContains(t, k.failure(), "too large")
	}, func(o *h2.Options) { o.MaxHeaderBytes = 4 << 10 })
}

// manyHeaders sends a few bytes that decode to many headers.
func manyHeaders(p *peer, id uint32) {
	block := p.encode(":status", "200", "a", strings.Repeat("x", 4000))
	indexed := p.encode("a", strings.Repeat("x", 4000))
	for range 1000 {
		block = append(block, indexed...)
	}
	require.Less(p.t, len(block), 16<<10)
	p.sent(p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}))
}

func TestViolationInTheBodyEndsTheStream(t *testing.T) {
	for name, violation := range map[string]struct {
		code http2.ErrCode
		send func(p *peer, id uint32)
	}{
		"headers again":        {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.headers(id, ":status", "200") }},
		"trailers with status": {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.last(id, ":status", "200") }},
		"trailers that go on":  {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.headers(id, "a", "b") }},
		"malformed trailers":   {http2.ErrCodeProtocol, func(p *peer, id uint32) { p.last(id, "A", "b") }},
		"more than declared": {http2.ErrCodeProtocol,
			func(p *peer, id uint32) { p.data(id, false, strings.Repeat("x", 101)) }},
		"more than the window": {http2.ErrCodeFlowControl,
			func(p *peer, id uint32) { p.sent(p.fr.WriteDataPadded(id, false, []byte("x"), make([]byte, 255))) }},
		"window opened too far": {http2.ErrCodeFlowControl,
			func(p *peer, id uint32) { p.raw(http2.FrameWindowUpdate, 0, id, 0x7f, 0xff, 0xff, 0xff) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k := b.get("/")
				p := b.greeted()
				id, _ := p.request()
				p.headers(id, ":status", "200", "content-length", strconv.Itoa(16<<10-100))
				p.data(id, false, strings.Repeat("x", 16<<10-200)) // 200 bytes of window are left
				k.response()
				violation.send(p, id)
				f := p.expect(http2.FrameRSTStream)
				require.Equal(t, id, f.StreamID)
				require.Equal(t, violation.code, f.code)
				body, err := k.body()
				require.Len(t, body, 16<<10-200, "what was received can be read")
				wrong, ok := errors.AsType[*h2.StreamError](err)
				require.True(t, ok)
				require.Equal(t, violation.code, wrong.Code)
				p.expect(http2.FramePing) // asks whether the server has seen the reset
				p.quiet()                 // no window is opened for a stream that has ended
			}, func(o *h2.Options) { o.StreamWindow = 16 << 10 })
		})
	}
}
