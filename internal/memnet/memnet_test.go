// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConnectionsAreAsNetSays(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		l := Listen()
		accepted := make(chan net.Conn, 1)
		go func() {
			c, _ := l.Accept()
			accepted <- c
		}()
		c1, err = l.Dial(context.Background(), "tcp", "x:1")
		c2 = <-accepted
		return c1, c2, func() { _ = l.Close(); _ = c1.Close(); _ = c2.Close() }, err
	})
}

// connected returns both ends of a connection.
func connected(t *testing.T, l *Listener) (client, server net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		if err == nil {
			accepted <- c
		}
	}()
	client, err := l.Dial(t.Context(), "tcp", "x:1")
	require.NoError(t, err)
	server = <-accepted
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}

func requireReset(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = c.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.EPIPE)
}

func TestDownResetsAndRefusesUntilUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		client, server := connected(t, l)
		_, err := server.Write([]byte("not read any more"))
		require.NoError(t, err)
		l.Down()
		requireReset(t, client)
		requireReset(t, server)
		_, err = l.Dial(t.Context(), "tcp", "x:1")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		l.Up()
		client, server = connected(t, l)
		_, err = client.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(server, make([]byte, 1))
		require.NoError(t, err)
		require.Equal(t, 3, l.Dials())
	})
}

func TestMuteLosesEverythingAndUpResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		client, server := connected(t, l)
		gone, left := connected(t, l)
		l.Mute()
		_, err := client.Write([]byte("lost"))
		require.NoError(t, err, "the sender is not notified")
		require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, gone.Close())
		require.NoError(t, left.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = left.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the other end does not hear of a close")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("patience"))
		defer cancel()
		_, err = l.Dial(ctx, "tcp", "x:1")
		require.ErrorContains(t, err, "patience")
		l.Up()
		require.NoError(t, left.SetReadDeadline(time.Time{}))
		for _, c := range []net.Conn{client, server, left} {
			if c == server {
				require.NoError(t, c.SetReadDeadline(time.Time{}))
			}
			requireReset(t, c)
		}
	})
}

func TestADialThatWaitsFollowsTheNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		l.Mute()
		result := make(chan error)
		dial := func() {
			_, err := l.Dial(t.Context(), "tcp", "x:1")
			result <- err
		}
		go dial()
		synctest.Wait()
		l.Down()
		require.ErrorIs(t, <-result, syscall.ECONNREFUSED)
		l.Mute()
		go dial()
		synctest.Wait()
		require.NoError(t, l.Close())
		require.ErrorIs(t, <-result, syscall.ECONNREFUSED)
		_, err := l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestResetIsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		client, server := connected(t, l)
		l.Reset()
		requireReset(t, client)
		requireReset(t, server)
		client, server = connected(t, l)
		require.NoError(t, client.Close())
		_, err := server.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// TestHazardConnectionIsUsedWhileOthersAreReset: who loses one connection, and
// sends over another one at once, is not heard in the middle of a reset.
func TestHazardConnectionIsUsedWhileOthersAreReset(t *testing.T) {
	for _, fail := range []func(*Listener){(*Listener).Reset, (*Listener).Down} {
		for range 200 {
			l := Listen()
			var clients, servers []net.Conn
			for range 8 {
				client, server := connected(t, l)
				clients, servers = append(clients, client), append(servers, server)
			}
			var ends sync.WaitGroup
			for _, c := range clients {
				ends.Go(func() {
					_, _ = c.Read(make([]byte, 1))
					for _, other := range clients {
						_, _ = other.Write([]byte("x"))
					}
				})
			}
			for _, s := range servers {
				ends.Go(func() {
					n, err := s.Read(make([]byte, 1))
					assert.Zero(t, n)
					assert.ErrorIs(t, err, syscall.ECONNRESET)
				})
			}
			fail(l)
			ends.Wait()
			require.False(t, t.Failed())
		}
	}
}

func TestForgottenConnectionsLoseEverythingAndOthersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Listen()
		client, server := connected(t, l)
		other, there := connected(t, l)
		reset := l.Forget(func(number int) bool { return number == 0 })
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		for _, c := range []net.Conn{other, func() net.Conn { c, _ := connected(t, l); return c }()} {
			_, err = c.Write([]byte("x"))
			require.NoError(t, err)
		}
		_, err = there.Read(make([]byte, 1))
		require.NoError(t, err)
		reset()
		requireReset(t, client)
		require.NoError(t, server.SetReadDeadline(time.Time{}))
		requireReset(t, server)
	})
}
