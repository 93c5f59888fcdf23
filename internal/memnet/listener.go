// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"context"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
)

// Listener is the server's side of the network.
type Listener struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex // protects the fields below
	state state
	conns map[*conn]int // the clients' ends of open connections, and which dial made each
	news  chan struct{} // closed when the state changes
	dials int
}

// state is the condition of the network in front of a listener.
type state int

const (
	up   state = iota
	down       // connections are refused
	mute       // everything is lost
)

var _ net.Listener = (*Listener)(nil)

// Listen returns a listener that is reachable.
func Listen() *Listener {
	return &Listener{
		accept: make(chan net.Conn),
		closed: make(chan struct{}),
		conns:  map[*conn]int{},
		news:   make(chan struct{}),
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Open connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (*Listener) Addr() net.Addr { return address("192.0.2.2:443") }

// Dial connects to the listener.
func (l *Listener) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	l.mu.Lock()
	l.dials++
	l.mu.Unlock()

	refused := &net.OpError{
		Op:   "dial",
		Net:  network,
		Addr: l.Addr(),
		Err:  os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
	for {
		l.mu.Lock()
		state, news := l.state, l.news
		l.mu.Unlock()

		if state == down {
			return nil, refused
		}
		accept := l.accept
		if state == mute {
			accept = nil
		}
		ours, theirs := pair()
		ours.onClose = func() { l.forget(ours) }
		select {
		case accept <- theirs:
			if !l.add(ours, state) {
				continue
			}
			return ours, nil
		case <-news:
		case <-l.closed:
			return nil, refused
		case <-ctx.Done():
			return nil, &net.OpError{
				Op:   "dial",
				Net:  network,
				Addr: l.Addr(),
				Err:  context.Cause(ctx),
			}
		}
	}
}

// add registers a connection, unless the state changed while the connection was
// being made.
func (l *Listener) add(c *conn, made state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.state != made {
		c.cut()
		return false
	}
	l.conns[c] = l.dials
	return true
}

func (l *Listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != mute { // otherwise the other end has not noticed, and is reset when the network is up again
		delete(l.conns, c)
	}
}

// Dials returns how many connection attempts there were.
func (l *Listener) Dials() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials
}

// Open returns the number of open connections.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Down resets all connections and refuses new ones.
func (l *Listener) Down() { l.become(down) }

// Mute drops everything that is sent on open connections, and makes new dials
// block until their context ends.
func (l *Listener) Mute() { l.become(mute) }

// Up restores the network. Connections that lost data are reset.
func (l *Listener) Up() { l.become(up) }

// Reset resets all connections. New ones are accepted.
func (l *Listener) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutLocked()
}

// cutLocked resets all connections at one moment: what is sent over one of them
// after another one was reset does not arrive.
func (l *Listener) cutLocked() {
	for c := range l.conns {
		c.lose()
	}
	for c := range l.conns {
		c.cut()
	}
	clear(l.conns)
}

// Forget makes everything disappear that is sent on some of the connections
// that are open now, as a router does that has forgotten them; new ones work.
// They are numbered by age, from 0. What it returns resets those it was.
func (l *Listener) Forget(which func(number int) bool) (reset func()) {
	l.mu.Lock()
	defer l.mu.Unlock()

	var lost []*conn
	for i, c := range slices.SortedFunc(maps.Keys(l.conns), func(a, b *conn) int { return l.conns[a] - l.conns[b] }) {
		if which(i) {
			c.lose()
			lost = append(lost, c)
		}
	}

	return func() {
		for _, c := range lost {
			c.cut()
		}
	}
}

func (l *Listener) become(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()

	was := l.state
	if was == s {
		return
	}
	l.state = s
	close(l.news)
	l.news = make(chan struct{})
	if s != mute {
		l.cutLocked()
		return
	}
	for c := range l.conns {
		c.lose()
	}
}
