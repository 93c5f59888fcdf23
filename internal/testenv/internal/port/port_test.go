// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package port_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/testenv/internal/port"
)

func TestReservedPortRefusesConnectionsUntilAServerListens(t *testing.T) {
	r, err := port.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })

	for range 3 {
		_, err = net.Dial("tcp4", r.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)

		l, err := net.Listen("tcp4", r.Addr())
		require.NoError(t, err)
		c, err := net.Dial("tcp4", r.Addr())
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, l.Close())
	}
}

func TestReservedPortsAreDistinctFromEachOtherAndFromListeners(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		r, err := port.Reserve()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		require.False(t, seen[r.Port()], "port %d given twice", r.Port())
		seen[r.Port()] = true
	}
	for range 200 {
		l, err := net.Listen("tcp4", port.Host+":0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		number := l.Addr().(*net.TCPAddr).Port
		require.False(t, seen[number], "the kernel gave the reserved port %d away", number)
	}
}
