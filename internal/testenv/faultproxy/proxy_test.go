// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
	"github.com/fleetcache/fleetcache/internal/testenv/internal/port"
)

func TestBytesPassUnchangedAndAreCounted(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	c := dial(t, p)
	text := strings.Repeat("0123456789abcdef", 1<<16)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.WriteString(c, text) })
	receive(t, c, text)
	wg.Wait()
	n := int64(len(text))
	require.NoError(t, p.WaitAccepted(t.Context(), 1))
	require.Equal(t, faultproxy.Stats{Accepted: 1, Open: 1, ToServer: n, ToClient: n}, p.Stats())
}

func TestHalfCloseIsPassedOn(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	c := dial(t, p)
	send(t, c, "last words")
	require.NoError(t, c.CloseWrite())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "last words", string(got))
}

func TestRefuseResetsPresentConnectionsAndHealReopensTheSamePort(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	addr := p.Addr()
	for range 3 {
		c := dial(t, p)
		echoes(t, c, "hello")
		p.Refuse()
		require.Zero(t, p.Stats().Open)
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = net.Dial("tcp4", addr)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.NoError(t, p.Heal())
		require.Equal(t, addr, p.Addr())
	}
	echoes(t, dial(t, p), "back")
}

func TestRefuseNewKeepsPresentConnections(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	c := dial(t, p)
	echoes(t, c, "before")
	p.RefuseNew()
	_, err := net.Dial("tcp4", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	echoes(t, c, "after")
}

func TestBlackholeIsSilentAndNothingIsLostWhenItEnds(t *testing.T) {
	s := newServer(t, "")
	p := newProxy(t, s.Addr().String())
	c := dial(t, p)
	echoes(t, c, "before")
	there := <-s.accepted
	p.Blackhole(faultproxy.Both)
	send(t, c, "during")
	send(t, there, "shout")
	hearsNothing(t, c)
	require.EqualValues(t, len("before"), p.Stats().ToServer)
	require.NoError(t, p.Heal())
	got := make([]byte, len("shoutduring"))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, "shoutduring", string(got))
}

func TestBlackholeToServerLetsTheServerBeHeard(t *testing.T) {
	s := newServer(t, "")
	p := newProxy(t, s.Addr().String())
	c := dial(t, p)
	echoes(t, c, "before")
	there := <-s.accepted
	p.Blackhole(faultproxy.ToServer)
	send(t, c, "unheard")
	send(t, there, "heard")
	receive(t, c, "heard")
	hearsNothing(t, c)
}

func TestBlackholeToClientLetsTheClientBeHeard(t *testing.T) {
	s := newServer(t, "")
	p := newProxy(t, s.Addr().String())
	c := dial(t, p)
	echoes(t, c, "before")
	sent := p.Stats().ToServer
	p.Blackhole(faultproxy.ToClient)
	send(t, c, "heard")
	hearsNothing(t, c)
	require.Equal(t, sent+int64(len("heard")), p.Stats().ToServer)
}

func TestBlackholeHidesNewConnectionsFromTheServer(t *testing.T) {
	s := newServer(t, "")
	p := newProxy(t, s.Addr().String())
	p.Blackhole(faultproxy.Both)
	c := dial(t, p)
	send(t, c, "knock")
	hearsNothing(t, c)
	require.Empty(t, s.accepted)
	require.NoError(t, p.Heal())
	receive(t, c, "knock")
}

func TestAClosedClientStaysOpenForTheServerBehindABlackhole(t *testing.T) {
	s := newServer(t, "")
	p := newProxy(t, s.Addr().String())
	c := dial(t, p)
	echoes(t, c, "before")
	there := <-s.accepted
	p.Blackhole(faultproxy.Both)
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
	send(t, there, "anybody?")
	require.Equal(t, 1, p.Stats().Open)
	p.ResetAll()
	require.Zero(t, p.Stats().Open)
}

func TestDelayLetsBytesArriveLaterInEachDirection(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	c := dial(t, p)
	p.Delay(100 * time.Millisecond)
	start := time.Now()
	echoes(t, c, "slow")
	require.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond)
	p.Delay(time.Hour)
	send(t, c, "never")
	hearsNothing(t, c)
	p.Delay(0)
	receive(t, c, "never")
}

func TestThrottleLimitsTheRateAndEndsAtOnce(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	c := dial(t, p)
	p.Throttle(1000)
	text := strings.Repeat("x", 200)
	start := time.Now()
	echoes(t, c, text)
	require.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond)
	p.Throttle(1)
	long := strings.Repeat("y", 100_000) // takes over a day at that rate
	send(t, c, long)
	p.Throttle(0)
	receive(t, c, long)
}

func TestCutAfterDeliversExactlySoManyBytes(t *testing.T) {
	for _, n := range []int64{0, 1, 1000, 100_000} {
		p := newProxy(t, newServer(t, "").Addr().String())
		present := dial(t, p)
		echoes(t, present, "these do not count")
		p.CutAfter(n)
		for _, c := range []net.Conn{present, dial(t, p)} {
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = io.WriteString(c, strings.Repeat("z", 300_000)) })
			got, err := io.ReadAll(c)
			require.NoError(t, err)
			arrived := int64(len(got))
			require.Equal(t, n, arrived)
			require.NoError(t, c.Close()) // ends the write, which nothing reads
			wg.Wait()
		}
		require.NoError(t, p.Heal())
		echoes(t, dial(t, p), "healed")
	}
}

func TestCloseAllSendsFINAndResetAllSendsRST(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	a, b := dial(t, p), dial(t, p)
	echoes(t, a, "a")
	echoes(t, b, "b")
	p.CloseAll()
	for _, c := range []net.Conn{a, b} {
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	c := dial(t, p)
	echoes(t, c, "c")
	p.ResetAll()
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	echoes(t, dial(t, p), "new connections pass")
}

func TestSetBackendMovesNewConnectionsOnly(t *testing.T) {
	p := newProxy(t, newServer(t, "one").Addr().String())
	old := dial(t, p)
	receive(t, old, "one")
	p.SetBackend(newServer(t, "two").Addr().String())
	receive(t, dial(t, p), "two")
	echoes(t, old, "still there")
}

func TestARefusingBackendResetsTheClient(t *testing.T) {
	nobody, err := port.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nobody.Close()) })
	p := newProxy(t, nobody.Addr())
	c, err := net.Dial("tcp4", p.Addr())
	if err == nil { // otherwise the reset arrived before connect returned
		defer func() { _ = c.Close() }()
		_, err = c.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestCloseEndsStalledConnectionsAndRefusesHeal(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	present := dial(t, p)
	echoes(t, present, "before")
	p.Blackhole(faultproxy.Both)
	waiting := dial(t, p)
	require.NoError(t, p.WaitAccepted(t.Context(), 2))
	require.NoError(t, p.Close())
	for _, c := range []net.Conn{present, waiting} {
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	require.ErrorIs(t, p.Heal(), faultproxy.ErrClosed)
	require.NoError(t, p.Close())
}

func TestWaitAcceptedEndsWithTheContext(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	require.ErrorIs(t, p.WaitAccepted(ctx, 1), why)
}

func TestFaultsInAnyOrderNeverCorruptAStream(t *testing.T) {
	p := newProxy(t, newServer(t, "").Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { echoUntil(ctx, t, p.Addr()) })
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		switch rng.IntN(8) {
		case 0:
			p.Refuse()
		case 1:
			p.RefuseNew()
		case 2:
			p.Blackhole(faultproxy.Direction(rng.IntN(3)))
		case 3:
			p.Delay(time.Duration(rng.IntN(3)) * time.Millisecond)
		case 4:
			p.Throttle(1 + rng.IntN(1e6))
		case 5:
			p.CutAfter(rng.Int64N(5000))
		case 6:
			p.CloseAll()
		case 7:
			p.ResetAll()
		}
		if rng.IntN(2) == 0 {
			require.NoError(t, p.Heal())
			accepted := p.Stats().Accepted
			require.NoError(t, p.WaitAccepted(ctx, accepted+rng.Int64N(2)))
			p.ResetAll()
		}
	}
	cancel()
	require.NoError(t, p.Close())
	wg.Wait()
}

// echoUntil sends counted lines through one connection after another, and
// checks that each returns a prefix of what was sent.
func echoUntil(ctx context.Context, t *testing.T, addr string) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 500)
	for ctx.Err() == nil {
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			continue
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.WriteString(c, text) })
		got := make([]byte, len(text))
		n, err := io.ReadFull(c, got)
		if string(got[:n]) != text[:n] {
			t.Errorf("received other bytes than sent (%d, %v)", n, err)
		}
		_ = c.Close()
		wg.Wait()
	}
}
