// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"

	"golang.org/x/net/http2"
)

// pool is the connections to one address. Everything in it is protected by
// Transport.mu.
type pool struct {
	t       *Transport
	addr    string
	conns   []*conn   // in the order in which they were made: the oldest with room is used
	waiters list.List // of *waiter: requests that found no room, in order of arrival
	dial    *dial     // the dial under way, or nil; there is never more than one
}

type dial struct{ cancel context.CancelFunc }

// waiter is a request that waits for a place on a connection.
type waiter struct {
	done chan struct{} // closed when what follows is set
	conn *conn         // on which a place is reserved
	err  error
}

// acquire reserves a place for one stream on a connection to addr, and waits
// for one if need be.
func (t *Transport) acquire(ctx context.Context, addr string) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, p, place, err := t.reserve(addr)
	if c != nil || err != nil {
		return c, err
	}
	w := place.Value.(*waiter)
	select {
	case <-w.done:
		return w.conn, w.err
	case <-ctx.Done():
		t.abandon(p, place)
		return nil, ctx.Err()
	}
}

// reserve reserves a place at once, or queues a waiter for it.
func (t *Transport) reserve(addr string) (*conn, *pool, *list.Element, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.closed {
		return nil, nil, nil, ErrClosed
	}
	p := t.pools[addr]
	if p == nil {
		p = &pool{t: t, addr: addr}
		t.pools[addr] = p
	}
	if p.waiters.Len() == 0 {
		if c := p.roomLocked(); c != nil {
			return c, nil, nil, nil
		}
	}
	t.waiting.Add(1)
	place := p.waiters.PushBack(&waiter{done: make(chan struct{})})
	p.serveLocked() // again: room that was made before the waiter was counted was announced to nobody
	return nil, p, place, nil
}

// abandon gives up waiting; a place that was granted meanwhile goes to the
// next.
func (t *Transport) abandon(p *pool, place *list.Element) {
	if c := t.unqueue(p, place); c != nil {
		c.unreserve()
	}
}

// unqueue takes a waiter out of the queue, or returns the connection on which
// it has a place.
func (t *Transport) unqueue(p *pool, place *list.Element) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()

	w := place.Value.(*waiter)
	select {
	case <-w.done:
		return w.conn
	default:
		p.waiters.Remove(place)
		t.waiting.Add(-1)
		p.tidyLocked()
		return nil
	}
}

// roomLocked reserves a place on the first connection that has one.
func (p *pool) roomLocked() *conn {
	for _, c := range p.conns {
		if c.reserve() {
			return c
		}
	}
	return nil
}

// serveLocked gives waiters the places there are, and dials for the rest unless
// room is about to be made.
func (p *pool) serveLocked() {
	for p.waiters.Len() > 0 {
		c := p.roomLocked()
		if c == nil {
			break
		}
		p.nextLocked(c, nil)
	}
	if p.waiters.Len() == 0 || p.dial != nil || p.t.closed || slices.ContainsFunc(p.conns, (*conn).promising) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	d := &dial{cancel: cancel}
	p.dial = d
	p.t.running.Go(func() {
		defer cancel()
		c, err := p.connect(ctx)
		p.dialed(c, err)
	})
}

// nextLocked answers the first waiter.
func (p *pool) nextLocked(c *conn, err error) {
	w := p.waiters.Remove(p.waiters.Front()).(*waiter)
	p.t.waiting.Add(-1)
	w.conn, w.err = c, err
	close(w.done)
}

func (p *pool) failLocked(err error) {
	for p.waiters.Len() > 0 {
		p.nextLocked(nil, err)
	}
}

// tidyLocked forgets the pool if there is nothing in it.
func (p *pool) tidyLocked() {
	if len(p.conns) == 0 && p.dial == nil && p.waiters.Len() == 0 && p.t.pools[p.addr] == p {
		delete(p.t.pools, p.addr)
	}
}

// connect makes a connection and waits until the peer has said how it may be
// used.
func (p *pool) connect(ctx context.Context) (*conn, error) {
	nc, err := p.t.opts.Dial(ctx, p.addr)
	if err != nil {
		return nil, fmt.Errorf("h2: dial %s: %w", p.addr, err)
	}
	if err := negotiated(nc); err != nil {
		_ = nc.Close()
		return nil, err
	}
	c := newConn(p, nc)
	select {
	case <-c.ready:
	case <-ctx.Done():
		c.abort(fmt.Errorf("%w: no HTTP/2 settings received: %w", ErrConnectionLost, ctx.Err()))
	}
	if err := c.cause(); err != nil {
		return nil, err
	}
	return c, nil
}

// negotiated returns ErrNotHTTP2 if the TLS handshake chose another protocol.
func negotiated(nc net.Conn) error {
	over, ok := nc.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil
	}
	if state := over.ConnectionState(); state.HandshakeComplete && state.NegotiatedProtocol != http2.NextProtoTLS {
		return fmt.Errorf("%w: TLS negotiated protocol %q", ErrNotHTTP2, state.NegotiatedProtocol)
	}
	return nil
}

// dialed ends a dial. Its failure is the failure of all who wait: none of them
// could do better by dialing again.
func (p *pool) dialed(c *conn, err error) {
	if !p.join(c, err) {
		c.bye(ErrClosed)
	}
}

// join reports whether there was no connection, or it may stay.
func (p *pool) join(c *conn, err error) bool {
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()

	p.dial = nil
	if t.closed {
		return err != nil
	}
	if err == nil {
		err = c.cause() // else it would stay for ever: it has tried to leave already
	}
	if err != nil {
		p.failLocked(err)
		p.tidyLocked()
		return true
	}
	p.conns = append(p.conns, c)
	p.serveLocked()
	return true
}

// leave takes a connection that broke out of the pool. If err is not nil, it is
// the end for those who wait, too; else the caller serves them.
func (p *pool) leave(c *conn, err error) {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()

	i := slices.Index(p.conns, c)
	if i < 0 {
		return
	}
	p.conns = slices.Delete(p.conns, i, i+1)
	if err != nil {
		p.failLocked(err)
	}
	p.tidyLocked()
}

// serve gives waiters the places that were made.
func (p *pool) serve() {
	if p.t.waiting.Load() == 0 {
		return
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()

	p.serveLocked()
}
