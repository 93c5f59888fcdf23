// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// TestHazardProofOfTheNextEpoch: an attempt to connect has just proven another
// cluster, whose epoch has not begun yet. That proof does not count for
// requests of the epoch that ends.
func TestHazardProofOfTheNextEpoch(t *testing.T) {
	c := &Connection{}
	former := &View{Server: Server{UID: "a"}, Epoch: "a/0", Connected: true}
	c.view.Store(former)
	p := &prover{view: &c.view}
	proven := func(uid string) {
		proof := identity.Proof{UID: uid, Sent: time.Now(), Number: p.number()}
		p.mu.ledger.Adopted(&identity.Access{}, false, proof, nil, 0)
	}
	want := expectation{view: former, need: need{Age: identity.Age}}
	proven("a")
	require.NoError(t, p.prove(t.Context(), want))

	proven("b")
	require.ErrorIs(t, p.prove(t.Context(), want), ErrMoved)
	k := &provenConn{p: p}
	require.ErrorIs(t, p.over(want)(t.Context(), k), ErrMoved)

	p.mu.ledger.Failed(time.Now().Add(-time.Minute))
	require.Nil(t, p.verdictLocked(ErrMoved))
}

// TestHazardConnectionIsMadeWhileAnotherIsConfirmed: the query under way does
// not reach it, so the first watch on it waits for another query.
func TestHazardConnectionIsMadeWhileAnotherIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spawned := 0
		p := &prover{cfg: &Config{Spawn: func(func()) bool { spawned++; return false }}}
		v := &View{Server: Server{UID: "a"}}
		under := &question{done: make(chan struct{})}
		p.mu.confirming = under
		k := &provenConn{p: p}
		p.mu.ledger.Dialed(k, identity.Dial{Access: &identity.Access{}, Shared: true})
		result := make(chan error, 2)
		go func() { result <- p.confirm(t.Context(), v) }()
		synctest.Wait()

		p.mu.Lock()
		p.mu.confirming = nil
		close(under.done)
		p.mu.Unlock()
		require.ErrorIs(t, <-result, ErrClosed)
		require.Equal(t, 1, spawned)
		p.mu.ledger.Closed(k)
		require.NoError(t, p.confirm(t.Context(), v))
	})
}

// TestHazardFormerClusterReturns: another cluster answered, its epoch began, and
// an attempt to connect finds the former cluster again, whose epoch has the same
// name as before.
func TestHazardFormerClusterReturns(t *testing.T) {
	c := &Connection{}
	in := func(uid string) {
		c.view.Store(&View{Server: Server{UID: uid}, Epoch: identity.Epoch(uid + "/0")})
	}
	in("a")
	p := &prover{cfg: &Config{Timers: timetable.NewTimers()}, view: &c.view, tick: timetable.NewTimer(func() {})}
	epoch := c.view.Load().Epoch
	p.other.Store(&epoch)
	require.True(t, p.otherClusterAnswered())

	p.adopt(&result{uid: "b", sent: time.Now()}, true)
	require.True(t, p.otherClusterAnswered(), "the epoch of b has not begun")
	in("b")
	require.False(t, p.otherClusterAnswered())

	p.adopt(&result{uid: "a", sent: time.Now()}, true)
	in("a")
	require.False(t, p.otherClusterAnswered())
}

// slowConn is a connection whose end takes long.
type slowConn struct {
	net.Conn

	closing, end chan struct{}
	written      int
}

func (c *slowConn) Write(b []byte) (int, error) {
	c.written += len(b)
	return len(b), nil
}

func (c *slowConn) Close() error {
	close(c.closing)
	<-c.end
	return nil
}

// TestHazardConnectionIsUsedWhileItEnds: a connection to another cluster is
// closed, and needs no proof any more. A request that waited for one sends
// nothing over it.
func TestHazardConnectionIsUsedWhileItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &prover{}
		slow := &slowConn{closing: make(chan struct{}), end: make(chan struct{})}
		k := &provenConn{Conn: slow, p: p}
		p.mu.ledger.Dialed(k, identity.Dial{Access: &identity.Access{}})
		go func() { _ = k.Close() }()
		<-slow.closing
		require.False(t, p.unproven(k))
		_, err := k.Write([]byte("POST"))
		require.ErrorIs(t, err, net.ErrClosed)
		require.Zero(t, slow.written)
		close(slow.end)
	})
}
