// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// floods are messages that cost a peer a few bytes, but cost us time, memory
// for answers, or both.
var floods = map[string]func(p *peer, id uint32) error{
	"pings":       func(p *peer, _ uint32) error { return p.fr.WritePing(false, [8]byte{1}) },
	"pongs":       func(p *peer, _ uint32) error { return p.fr.WritePing(true, [8]byte{1}) },
	"settings":    func(p *peer, _ uint32) error { return p.fr.WriteSettings() },
	"acks":        func(p *peer, _ uint32) error { return p.fr.WriteSettingsAck() },
	"windows":     func(p *peer, _ uint32) error { return p.fr.WriteWindowUpdate(0, 1) },
	"own windows": func(p *peer, id uint32) error { return p.fr.WriteWindowUpdate(id, 1) },
	"empty data":  func(p *peer, id uint32) error { return p.fr.WriteData(id, false, nil) },
	"padded data": func(p *peer, id uint32) error { return p.fr.WriteDataPadded(id, false, nil, make([]byte, 9)) },
	"unknown":     func(p *peer, id uint32) error { return p.fr.WriteRawFrame(0xee, 0, id, nil) },
	"priorities": func(p *peer, id uint32) error {
		return p.fr.WritePriority(id, http2.PriorityParam{})
	},
	"goaways":   func(p *peer, id uint32) error { return p.fr.WriteGoAway(id, http2.ErrCodeNo, nil) },
	"late data": func(p *peer, _ uint32) error { return p.fr.WriteData(1, false, []byte("x")) },
	"late headers": func(p *peer, _ uint32) error {
		return p.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
	},
	"late resets":  func(p *peer, _ uint32) error { return p.fr.WriteRSTStream(1, http2.ErrCodeCancel) },
	"late windows": func(p *peer, _ uint32) error { return p.fr.WriteWindowUpdate(1, 1) },
}

func TestFloodEndsTheConnection(t *testing.T) {
	for name, send := range floods {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k, id := b.answered(b.warm()) // stream 1 has ended
				p := b.all[0]
				sent := 0
				for send(p, id) == nil {
					sent++
					require.Less(t, sent, 10_000)
				}
				p.closed(http2.ErrCodeEnhanceYourCalm)
				_, err := k.body()
				wrong, ok := errors.AsType[*h2.ProtocolError](err)
				require.True(t, ok)
				require.Equal(t, http2.ErrCodeEnhanceYourCalm, wrong.Code)
			})
		})
	}
}

func TestInterimResponsesForEver(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		for p.fr.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: p.encode(":status", "103"), EndHeaders: true,
		}) == nil {
		}
		p.closed(http2.ErrCodeEnhanceYourCalm)
		require.ErrorIs(t, k.failure(), h2.ErrConnectionLost)
	})
}

func TestPeerThatIsOnlyChattyIsKept(t *testing.T) {
	for name, send := range floods {
		if name == "goaways" {
			continue // the connection is kept but not used
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				k, id := b.answered(b.warm())
				p := b.all[0]
				for range 60 {
					for range 100 {
						p.sent(send(p, id))
					}
					time.Sleep(time.Second)
				}
				p.data(id, true, "x")
				_, err := k.body()
				require.NoError(t, err)
			}, func(o *h2.Options) { o.StreamWindow = 1 << 20 })
		})
	}
}

// TestLateFramesOfStreamsThatWereResetAreExcused: a server cannot know of a
// reset before it arrives, so the frames it sent until then do not count as a
// flood.
func TestLateFramesOfStreamsThatWereResetAreExcused(t *testing.T) {
	const streams, frames = 100, 200
	bubble(t, func(b *bench) {
		p := b.warm()
		for range streams {
			k, id := b.answered(p)
			k.cancel()
			require.Equal(t, http2.ErrCodeCancel, p.expect(http2.FrameRSTStream).code)
			for range frames {
				p.data(id, false, "x")
			}
			p.raw(http2.FramePing, 1, 0, pingOf(p)...)
		}
		require.Equal(t, 1, b.transport.Connections())
		require.Zero(t, b.transport.Streams())
	})
}

// TestFramesThatComeWithResponsesAreExcused: some servers send more frames than
// necessary with every response.
func TestFramesThatComeWithResponsesAreExcused(t *testing.T) {
	bubble(t, func(b *bench) {
		p := b.warm()
		for range 2000 {
			k := b.get("/")
			id, _ := p.request()
			p.sent(p.fr.WriteWindowUpdate(0, 1))
			p.sent(p.fr.WriteWindowUpdate(id, 1))
			p.last(id, ":status", "200")
			p.sent(p.fr.WriteRSTStream(id, http2.ErrCodeNo))
			k.response()
		}
		require.Equal(t, 1, b.transport.Connections())
	})
}

func TestServerThatResetsEveryStream(t *testing.T) {
	bubble(t, func(b *bench) {
		p := b.warm()
		for range 5000 {
			k := b.get("/")
			id, _ := p.request()
			p.sent(p.fr.WriteRSTStream(id, http2.ErrCodeInternal))
			require.Error(t, k.failure())
		}
		p.quiet()
		require.Equal(t, 1, b.transport.Connections())
	})
}
