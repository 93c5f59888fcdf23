// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy_test

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

// silence is how long a test checks that nothing arrives. A broken proxy needs
// far less time to be exposed, and a correct one passes no matter how slow it
// is.
const silence = 50 * time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server sends its name, if it has one, on each connection, and then echoes.
type server struct {
	net.Listener

	name     string
	accepted chan net.Conn
	wg       sync.WaitGroup
}

func newServer(t *testing.T, name string) *server {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{Listener: l, name: name, accepted: make(chan net.Conn, 1000)}
	s.wg.Go(s.serve)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		s.wg.Wait()
	})
	return s
}

func (s *server) serve() {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.accepted <- c
		s.wg.Go(func() {
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, s.name)
			_, _ = io.Copy(c, c)
		})
	}
}

func newProxy(t *testing.T, backend string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(backend)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func dial(t *testing.T, p *faultproxy.Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp4", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
}

func receive(t *testing.T, c net.Conn, text string) {
	t.Helper()
	buf := make([]byte, len(text))
	_, err := io.ReadFull(c, buf)
	require.NoError(t, err)
	require.Equal(t, text, string(buf))
}

func echoes(t *testing.T, c net.Conn, text string) {
	t.Helper()
	send(t, c, text)
	receive(t, c, text)
}

// hearsNothing checks that the connection is open and silent.
func hearsNothing(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(silence)))
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
}
