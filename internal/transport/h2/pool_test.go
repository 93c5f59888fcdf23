// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

// TestConnectionLostBeforeUseFailsThoseWhoWait: a server must not be able to
// keep us dialing, so all waiting requests fail if a connection turns out to be
// useless.
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

// TestLimitOfAUsedConnectionFallsToZero: a connection that the server no longer
// wants to use must not prevent new ones.
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
		require.Equal(t, 2, h2.Pools(b.transport))
		time.Sleep(5 * time.Minute)
		require.Zero(t, b.transport.Connections())
		require.Zero(t, h2.Pools(b.transport))
	})
}

func TestConnectionThatIsWaitedForDies(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}
	bubble(t, func(b *bench) {
		one := b.get("/one")
		p := b.greeted(limit)
		p.request()
		one.cancel()
		require.ErrorIs(t, one.failure(), context.Canceled)
		two := b.get("/two") // waits for the server to confirm the reset
		two.waiting()
		b.none()
		_ = p.nc.Close()
		b.greeted(limit).request()
	})
}

// TestPlaceGrantedTooLateGoesToTheNext: a place may be granted when its waiter
// has already given up.
func TestPlaceGrantedTooLateGoesToTheNext(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}
	bubble(t, func(b *bench) {
		abandon := h2.Queue(b.transport, "peer.test:443")
		k := b.get("/")
		p := b.greeted(limit)
		b.accept() // for k
		p.quiet()
		abandon()
		p.request()
		k.waiting()
	})
}

func TestPlaceGrantedTooLateOnAConnectionThatHasRetired(t *testing.T) {
	bubble(t, func(b *bench) {
		abandon := h2.Queue(b.transport, "peer.test:443")
		p := b.greeted()
		p.sent(p.fr.WriteGoAway(0, http2.ErrCodeNo, nil))
		p.quiet()
		require.Equal(t, 1, b.transport.Connections(), "the place may be used")
		abandon()
		p.closed(http2.ErrCodeNo)
	})
}

func TestPlaceThatIsFreedGoesToTheFirstWhoWaits(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}
	bubble(t, func(b *bench) {
		k := b.get("/0")
		p := b.greeted(limit)
		for i := range 5 {
			id, fields := p.request()
			require.Equal(t, fmt.Sprintf("/%d", i), fields[":path"])
			next := b.get(fmt.Sprintf("/%d", i+1))
			next.waiting()
			p.last(id, ":status", "200")
			k.response()
			k = next
		}
		p.request()
		b.accept() // and never more than this one connection
		b.none()
	})
}

// TestPlaceThatIsGoneIsNoFailureOfTheRequest: the connection may be lost
// between the grant of a place and its use.
func TestPlaceThatIsGoneIsNoFailureOfTheRequest(t *testing.T) {
	for name, drop := range map[string]func(p *peer){
		"closed": func(p *peer) { _ = p.nc.Close() },
		"goaway": func(p *peer) { p.sent(p.fr.WriteGoAway(1, http2.ErrCodeNo, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				p := b.warm()
				start := h2.Hold(b.transport)
				drop(p)
				synctest.Wait()
				require.ErrorIs(t, start(nil), h2.ErrUnprocessed)
				synctest.Wait()
				require.Zero(t, b.transport.Connections())
				require.Zero(t, b.transport.Streams())
			})
		})
	}
}

// TestHazardServerThatAllowsNoStreamsHoldsRequestsForEver: it answers pings,
// so only the age of its refusal shows that waiting is in vain.
func TestHazardServerThatAllowsNoStreamsHoldsRequestsForEver(t *testing.T) {
	limit := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n} }
	for name, greet := range map[string]func(b *bench) *peer{
		"from the start": func(b *bench) *peer { return b.greeted(limit(0)) },
		"later": func(b *bench) *peer {
			p := b.greeted(limit(1))
			p.sent(p.fr.WriteSettings(limit(0)))
			p.expect(http2.FrameSettings)
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				abandon := h2.Queue(b.transport, "peer.test:443")
				p := greet(b)
				abandon()
				answerPings(b, p)
				time.Sleep(20 * time.Second)

				one, two := b.get("/"), b.get("/")
				one.waiting()
				time.Sleep(10 * time.Second)
				require.ErrorIs(t, one.failure(), h2.ErrNoStreams)
				require.ErrorIs(t, two.failure(), h2.ErrConnectionLost)
				b.none()
				require.Zero(t, b.transport.Connections())

				b.get("/")
				b.greeted().request()
			})
		})
	}
}

// TestHazardRetiredTransportHoldsRequestsThatWait: none of them has been sent,
// so its caller may send it elsewhere at once.
func TestHazardRetiredTransportHoldsRequestsThatWait(t *testing.T) {
	limit := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n} }
	for name, stage := range map[string]func(b *bench) (waits *call, runs *peer){
		"for a dial": func(b *bench) (*call, *peer) {
			b.stuck.Store(true)
			return b.get("/"), nil
		},
		"for a handshake":      func(b *bench) (*call, *peer) { return b.get("/"), nil },
		"for the first stream": func(b *bench) (*call, *peer) { return b.get("/"), b.greeted(limit(0)) },
		"for more streams": func(b *bench) (*call, *peer) {
			b.get("/")
			p := b.greeted(limit(1))
			p.request()
			b.stuck.Store(true)
			return b.get("/"), p
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				start := time.Now()
				waits, _ := stage(b)
				waits.waiting()
				b.transport.Retire()
				require.ErrorIs(t, waits.failure(), h2.ErrRetired)
				require.ErrorIs(t, b.get("/").failure(), h2.ErrRetired)
				require.Zero(t, time.Since(start))
				synctest.Wait()
				require.Equal(t, b.transport.Streams(), b.transport.Connections(), "what is idle is closed")
			})
		})
	}
}

// TestRetiredTransportServesItsStreams: they end when they end, and their
// connections with the last one.
func TestRetiredTransportServesItsStreams(t *testing.T) {
	bubble(t, func(b *bench) {
		k, id := b.answered(b.warm())
		p := b.all[0]
		b.transport.Retire()
		b.transport.Retire() // changes nothing
		p.data(id, false, "more")
		r := k.read(make([]byte, 4))
		_, err := r.result()
		require.NoError(t, err)

		p.data(id, true, "")
		_, err = k.body()
		require.NoError(t, err)
		p.closed(http2.ErrCodeNo)
		require.Zero(t, b.transport.Connections())
	})
}

// TestRequestThatARetiredTransportDidNotProcess: it must not be sent again with
// an access that was replaced.
func TestRequestThatARetiredTransportDidNotProcess(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		b.transport.Retire()
		p.sent(p.fr.WriteRSTStream(id, http2.ErrCodeRefusedStream))
		require.ErrorIs(t, k.failure(), h2.ErrRetired)
		b.none()
	})
}
