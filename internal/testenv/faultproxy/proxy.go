// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/internal/testenv/internal/port"
)

// ErrClosed indicates that the proxy has been closed.
var ErrClosed = errors.New("fault proxy is closed")

// Proxy forwards TCP connections to a backend and disturbs them on demand.
type Proxy struct {
	reserved *port.Reservation
	wg       sync.WaitGroup

	accepted, toServer, toClient atomic.Int64

	// switching serializes the opening and closing of the listener. It is taken
	// before mu, and never by the goroutines that serve connections.
	switching sync.Mutex

	// mu protects the fields below.
	mu       sync.Mutex
	listener *listener // nil while connections are refused
	backend  string
	faults   *faults
	conns    map[*conn]struct{}
	news     chan struct{} // closed and replaced when a connection has been accepted
	closed   bool
}

// listener is one period of accepting connections.
type listener struct {
	net.Listener

	done chan struct{} // closed when the accept loop has ended
}

// Stats counts the traffic through a proxy since its creation.
type Stats struct {
	Accepted int64 // connections accepted
	Open     int   // connections currently open
	ToServer int64 // bytes delivered to the backend
	ToClient int64 // bytes delivered to clients
}

// New starts a proxy in front of the backend, a host:port. The caller must
// close it.
func New(backend string) (*Proxy, error) {
	reserved, err := port.Reserve()
	if err != nil {
		return nil, fmt.Errorf("start a fault proxy: %w", err)
	}
	p := &Proxy{
		reserved: reserved,
		backend:  backend,
		faults:   &faults{changed: make(chan struct{})},
		conns:    map[*conn]struct{}{},
		news:     make(chan struct{}),
	}
	if err := p.listen(); err != nil {
		return nil, fmt.Errorf("start a fault proxy: %w", errors.Join(err, reserved.Close()))
	}
	return p, nil
}

// Addr returns the address for clients, as host:port. It never changes, even
// while connections are refused.
func (p *Proxy) Addr() string { return p.reserved.Addr() }

// SetBackend sends connections that are accepted from now on to another server.
// Present connections keep their server; CloseAll or ResetAll ends them.
func (p *Proxy) SetBackend(backend string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = backend
}

// Stats returns the counters.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	open := len(p.conns)
	p.mu.Unlock()
	return Stats{
		Accepted: p.accepted.Load(),
		Open:     open,
		ToServer: p.toServer.Load(),
		ToClient: p.toClient.Load(),
	}
}

// WaitAccepted blocks until n connections have been accepted in total, or
// returns the cause of ctx's end.
func (p *Proxy) WaitAccepted(ctx context.Context, n int64) error {
	for {
		p.mu.Lock()
		news := p.news
		p.mu.Unlock()

		if p.accepted.Load() >= n {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// RefuseNew refuses new connections, as a port without a listener does. Present
// connections stay open.
func (p *Proxy) RefuseNew() {
	p.switching.Lock()
	defer p.switching.Unlock()
	p.unlisten()
}

// Refuse refuses new connections and resets the present ones, as a killed
// server does. It returns when they have ended.
func (p *Proxy) Refuse() {
	p.RefuseNew()
	p.ResetAll()
}

// CloseAll closes all present connections, with a FIN to either side, and waits
// until they have ended. As with any server that closes, a side that is sending
// at that moment gets an RST.
func (p *Proxy) CloseAll() { p.endAll((*conn).close) }

// ResetAll aborts all present connections with an RST to either side, and waits
// until they have ended.
func (p *Proxy) ResetAll() { p.endAll((*conn).reset) }

// Close ends the proxy and its connections, and waits until they have ended. A
// second call does nothing.
func (p *Proxy) Close() error {
	p.switching.Lock()
	defer p.switching.Unlock()

	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()

	p.unlisten()
	p.ResetAll()
	p.wg.Wait()

	return p.reserved.Close()
}

// listen starts accepting connections unless the proxy already does. Concurrent
// calls are serialized, because only one of them could listen on the port.
func (p *Proxy) listen() error {
	p.switching.Lock()
	defer p.switching.Unlock()

	p.mu.Lock()
	closed, listening := p.closed, p.listener != nil
	p.mu.Unlock()

	if closed {
		return ErrClosed
	}
	if listening {
		return nil
	}
	inner, err := net.Listen("tcp4", p.Addr())
	if err != nil {
		return err
	}
	l := &listener{Listener: inner, done: make(chan struct{})}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()

	p.wg.Go(func() { p.accept(l) })

	return nil
}

// unlisten refuses connections and waits until none is being accepted. The
// caller holds switching.
func (p *Proxy) unlisten() {
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	p.mu.Unlock()

	if l == nil {
		return
	}
	_ = l.Close()
	<-l.done
}

// accept serves connections until the listener is closed.
func (p *Proxy) accept(l *listener) {
	defer close(l.done)
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		c := newConn(p, client.(*net.TCPConn))
		p.mu.Lock()
		p.conns[c] = struct{}{}
		p.accepted.Add(1)
		news := p.news
		p.news = make(chan struct{})
		p.mu.Unlock()

		close(news)
		p.wg.Go(c.serve)
	}
}

// endAll ends the present connections and waits for them.
func (p *Proxy) endAll(end func(*conn)) {
	p.mu.Lock()
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()

	for _, c := range conns {
		end(c)
	}
	for _, c := range conns {
		<-c.gone
	}
}

// forget removes a connection that has ended.
func (p *Proxy) forget(c *conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()

	close(c.gone)
}
