// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/h2"
)

// A server must not be able to keep us dialing: whoever waits learns that a connection was of no use.
func TestConnectionLostBeforeUseFailsThoseWhoWait(t *testing.T) {
	none := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}
	for name, drop := range map[string]func(p *peer){
		"closed": func(p *peer) { _ = p.nc.Close() },
		"goaway": func(p *peer) { p.sent(p.fr.WriteGoAway(0, http2.ErrCodeNo, nil)) },
		"wrong":  func(p *peer) { p.raw(http2.FramePing, 0, 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				one, two := b.get("/"), b.get("/")
				drop(b.greeted(none))
				require.ErrorIs(t, one.failure(), h2.ErrConnectionLost)
				require.ErrorIs(t, two.failure(), h2.ErrConnectionLost)
				b.none()
			})
		})
	}
}

func TestConnectionLostInUseSparesThoseWhoWait(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}
	bubble(t, func(b *bench) {
		one := b.get("/one")
		p := b.greeted(limit)
		p.request()
		two := b.get("/two")
		q := b.accept()
		_ = p.nc.Close()
		require.ErrorIs(t, one.failure(), h2.ErrConnectionLost)
		two.waiting()
		q.greet(limit)
		id, _ := q.request()
		q.last(id, ":status", "200")
		two.response()
	})
}

// A connection that is no longer wanted by the server must not keep others from being made.
func TestLimitOfAUsedConnectionFallsToZero(t *testing.T) {
	bubble(t, func(b *bench) {
		b.answered(b.warm())
		p := b.all[0]
		p.sent(p.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}))
		p.expect(http2.FrameSettings)
		b.get("/")
		b.greeted().request()
	})
}

func TestHostsHaveTheirOwnConnections(t *testing.T) {
	bubble(t, func(b *bench) {
		p := b.warm()
		b.send("https://other.test/")
		q := b.greeted()
		require.Equal(t, []string{"peer.test:443", "other.test:443"}, []string{p.addr, q.addr})
		id, _ := q.request()
		q.last(id, ":status", "200")
		require.Equal(t, 2, b.transport.Connections())
		b.transport.CloseIdleConnections()
		require.Zero(t, b.transport.Connections())
	})
}

func TestPlaceGrantedTooLateGoesToTheNext(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}
	bubble(t, func(b *bench) {
		for range 100 {
			one, two := b.get("/one"), b.get("/two")
			p := b.accept()
			p.listen()
			p.sent(p.fr.WriteSettings(limit))
			one.cancel() // at about the time at which it gets the place
			<-one.done
			two.settled(p)
			b.transport.CloseIdleConnections()
		}
	})
}

// settled answers requests on p, and other peers that are dialed, until k has its response.
func (k *call) settled(p *peer) {
	p.serve()
	for {
		select {
		case <-k.done:
			require.NoError(k.b.T, k.err)
			return
		case q := <-k.b.peers:
			k.b.all = append(k.b.all, q)
			q.listen()
			_ = q.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
			q.serve()
		}
	}
}

// serve answers everything.
func (p *peer) serve() {
	block := p.encode(":status", "200")
	p.calls.Go(func() {
		for {
			select {
			case f := <-p.got:
				switch {
				case f.Type == http2.FrameHeaders:
					_ = p.fr.WriteHeaders(http2.HeadersFrameParam{
						StreamID: f.StreamID, BlockFragment: block, EndHeaders: true, EndStream: true,
					})
				case f.Type == http2.FramePing && !f.Flags.Has(http2.FlagPingAck):
					_ = p.fr.WritePing(true, f.data)
				}
			case <-p.done:
				return
			}
		}
	})
}
