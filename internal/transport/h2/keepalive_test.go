// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/fleetcache/fleetcache/internal/transport/h2"
)

func TestHalfOpenConnectionIsNoticed(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		r := k.read(make([]byte, 1))
		time.Sleep(29 * time.Second)
		p.data(id, false, "") // the last sign of life, at second 29
		start := time.Now()
		<-r.done
		require.Equal(t, 45*time.Second, time.Since(start))
		_, err := r.result()
		require.ErrorIs(t, err, h2.ErrConnectionLost)
		pingOf(p)
		require.Zero(t, b.transport.Connections())

		b.get("/")
		b.greeted().request()
	})
}

func TestConnectionThatAnswersPingsIsKept(t *testing.T) {
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted()
		id, _ := p.request()
		p.headers(id, ":status", "200")
		r := k.read(make([]byte, 1))
		const pings = 1000
		for range pings {
			time.Sleep(44 * time.Second) // 30 s until the ping, 14 s until its answer
			p.raw(http2.FramePing, 1, 0, pingOf(p)...)
		}
		r.waiting()
		p.quiet()
		p.data(id, true, "x")
		n, err := r.result()
		require.NoError(t, err)
		require.Equal(t, 1, n)
	})
}

func TestConnectionInUseIsNotPinged(t *testing.T) {
	bubble(t, func(b *bench) {
		_, id := b.answered(b.warm())
		p := b.all[0]
		for range 100 {
			time.Sleep(29 * time.Second)
			p.data(id, false, "x")
		}
		p.quiet()
	})
}

// warm returns the peer of a connection that has served a request.
func (b *bench) warm(settings ...http2.Setting) *peer {
	b.Helper()
	k := b.get("/")
	p := b.greeted(settings...)
	id, _ := p.request()
	p.last(id, ":status", "200")
	k.response()
	return p
}

func TestPongMayBeOvertakenButNotForEver(t *testing.T) {
	bubble(t, func(b *bench) {
		k, id := b.answered(b.warm())
		p := b.all[0]
		start := time.Now()
		for b.transport.Connections() > 0 && time.Since(start) < time.Hour {
			if time.Sleep(time.Second); time.Since(start) > 31*time.Second && b.transport.Connections() > 0 {
				_ = p.fr.WriteData(id, false, []byte("x"))
			}
			synctest.Wait()
		}
		require.Equal(t, 90*time.Second, time.Since(start), "30 s until the ping, and four times 15 s")
		_, err := k.body()
		require.ErrorIs(t, err, h2.ErrConnectionLost)
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	bubble(t, func(b *bench) {
		p := b.warm()
		start := time.Now()
		stop := answerPings(b, p)
		<-p.done
		close(stop)
		require.GreaterOrEqual(t, time.Since(start), 90*time.Second)
		require.LessOrEqual(t, time.Since(start), 180*time.Second)
		require.Zero(t, b.transport.Connections())
		b.get("/")
		b.greeted().request()
	})
}

func TestIdleTimeoutMayBeShort(t *testing.T) {
	bubble(t, func(b *bench) {
		k, id := b.answered(b.warm())
		p := b.all[0]
		time.Sleep(7 * time.Second) // the timer must not fire at the time of the next ping
		p.data(id, true, "")
		start := time.Now()
		_, err := k.body()
		require.NoError(t, err)
		<-p.done
		require.GreaterOrEqual(t, time.Since(start), 5*time.Second)
		require.LessOrEqual(t, time.Since(start), 10*time.Second)
	}, func(o *h2.Options) { o.IdleTimeout = 5 * time.Second })
}

// TestResetThatIsNotConfirmedEndsTheConnection: a request that was given up is
// a reason to check whether the peer is there, long before the next ping is
// due.
func TestResetThatIsNotConfirmedEndsTheConnection(t *testing.T) {
	bubble(t, func(b *bench) {
		k, _ := b.answered(b.warm())
		k.cancel()
		start := time.Now()
		<-b.all[0].done
		require.Equal(t, 15*time.Second, time.Since(start))
	})
}

func TestPeerThatSendsButDoesNotReadLosesTheConnection(t *testing.T) {
	bubble(t, func(b *bench) {
		_, id := b.answered(b.warm())
		p := b.all[0]
		p.deaf.Store(true)
		b.get("/").waiting() // the peer reads this one
		start := time.Now()
		b.get("/").waiting()
		for b.transport.Connections() > 0 {
			_ = p.fr.WriteData(id, false, []byte("x"))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		require.Equal(t, 15*time.Second, time.Since(start))
	})
}

func TestNoWriteDeadlineIsLeftBehind(t *testing.T) {
	bubble(t, func(b *bench) {
		p := b.warm()
		synctest.Wait()
		require.False(t, p.limited.Load(), "TLS would fail to answer the peer's wish for new keys")
	})
}

func TestCloseDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	bubble(t, func(b *bench) {
		p := b.warm()
		p.deaf.Store(true)
		p.raw(http2.FramePing, 0, 0, ping...)
		p.expect(http2.FramePing) // the last frame that the peer reads
		start := time.Now()
		b.transport.Close()
		require.Equal(t, time.Second, time.Since(start))
	})
}

// answerPings makes a peer answer pings until the returned channel is closed or
// the test ends.
func answerPings(b *bench, p *peer) chan struct{} {
	stop := make(chan struct{})
	b.calls.Go(func() {
		for {
			select {
			case f := <-p.got:
				if f.Type == http2.FramePing {
					_ = p.fr.WritePing(true, f.data)
				}
			case <-p.done:
				return
			case <-stop:
				return
			}
		}
	})
	return stop
}

func TestConnectionWithAStreamIsNotIdle(t *testing.T) {
	bubble(t, func(b *bench) {
		k, _ := b.answered(b.warm())
		answerPings(b, b.all[0])
		r := k.read(make([]byte, 1))
		time.Sleep(48 * time.Hour)
		r.waiting()
		require.Equal(t, 1, b.transport.Connections())
	})
}

func TestPeerThatDoesNotReadLosesTheConnection(t *testing.T) {
	bubble(t, func(b *bench) {
		b.get("/")
		p := b.accept()
		p.sent(p.fr.WriteSettings()) // the peer reads nothing, not even the preface
		start := time.Now()
		synctest.Wait()
		require.Equal(t, 1, b.transport.Connections())
		second := b.get("/")
		second.waiting()
		second.cancel()
		require.ErrorIs(t, second.failure(), context.Canceled)
		require.Zero(t, time.Since(start))
		for b.transport.Connections() > 0 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		require.Equal(t, 15*time.Second, time.Since(start))
	})
}

func TestPeerThatDoesNotReadGetsNoMoreRequests(t *testing.T) {
	large := strings.Repeat("x", 50_000)
	bubble(t, func(b *bench) {
		p := b.warm()
		p.deaf.Store(true)
		for range 20 {
			b.get("/", "Authorization", large).waiting()
		}
		q := b.greeted()
		require.Less(t, b.transport.Streams(), 20+1)
		require.GreaterOrEqual(t, len(q.got), 12, "what would not fit into 256 KiB")
	})
}

func TestBlackHoledStreamsAreCancelledAtOnce(t *testing.T) {
	const n = 50
	bubble(t, func(b *bench) {
		p := b.warm()
		var calls []*call
		var reads []*reading
		for range n {
			k, _ := b.answered(p)
			calls = append(calls, k)
			reads = append(reads, k.read(make([]byte, 1)))
		}
		p.deaf.Store(true) // the client's next writes hang
		waiting := b.get("/")
		waiting.waiting()
		start := time.Now()
		for _, k := range calls {
			k.cancel()
		}
		waiting.cancel()
		for _, r := range reads {
			_, err := r.result()
			require.ErrorIs(t, err, context.Canceled)
		}
		require.ErrorIs(t, waiting.failure(), context.Canceled)
		for _, k := range calls {
			require.NoError(t, k.resp.Body.Close())
		}
		require.Zero(t, b.transport.Streams())
		b.transport.Close()
		require.LessOrEqual(t, time.Since(start), time.Second)
	})
}

func TestCloseWhileConnecting(t *testing.T) {
	for name, stage := range map[string]func(b *bench){
		"dialing":     func(b *bench) { b.stuck.Store(true) },
		"handshaking": func(*bench) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				stage(b)
				start := time.Now()
				k := b.get("/")
				k.waiting()
				b.transport.Close()
				require.ErrorIs(t, k.failure(), h2.ErrClosed)
				require.LessOrEqual(t, time.Since(start), time.Second)
			})
		})
	}
}

func TestConnectingTakesNoLongerThanItMay(t *testing.T) {
	for name, stage := range map[string]func(b *bench){
		"dialing":     func(b *bench) { b.stuck.Store(true) },
		"handshaking": func(*bench) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				stage(b)
				start := time.Now()
				one, two := b.get("/"), b.get("/")
				<-one.done
				<-two.done
				require.ErrorIs(t, one.failure(), context.DeadlineExceeded)
				require.ErrorIs(t, two.failure(), context.DeadlineExceeded)
				require.Equal(t, 30*time.Second, time.Since(start))
			}, func(o *h2.Options) {
				// Otherwise writing the preface, which the peer does not read,
				// would time out first.
				o.PingTimeout = time.Minute
			})
		})
	}
}

func TestFailedDialFailsAllWhoWait(t *testing.T) {
	bubble(t, func(b *bench) {
		b.refuse.Store(&errDial)
		one, two := b.get("/"), b.get("/")
		require.ErrorIs(t, one.failure(), errDial)
		require.ErrorIs(t, two.failure(), errDial)
		b.refuse.Store(nil)
		b.get("/")
		b.greeted().request()

		refused := fmt.Errorf("dial: %w", h2.ErrNotHTTP2)
		b.refuse.Store(&refused)
		require.Equal(t, 1, b.transport.Connections())
	})
}

func TestFailedDialForMoreRoomSparesTheConnection(t *testing.T) {
	limit := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}
	bubble(t, func(b *bench) {
		k := b.get("/")
		p := b.greeted(limit)
		id, _ := p.request()
		b.refuse.Store(&errDial)
		require.ErrorIs(t, b.get("/").failure(), errDial)
		p.last(id, ":status", "200")
		require.Equal(t, http.StatusOK, k.response().StatusCode)
		b.get("/")
		p.request()
	})
}
