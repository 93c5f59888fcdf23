// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// pool holds the connections to one address. All its fields are protected by
// Transport.mu.
type pool struct {
	t       *Transport
	addr    string
	conns   []*conn   // in the order of their creation: the oldest with room is used
	waiters list.List // of *waiter: requests that found no room, in order of arrival
	dials   []*dial   // in progress: at most one, and one more if it is doubted
}

// doubtAfter is how long a dial may take before a request that gives up waiting
// for it causes another one.
const doubtAfter = time.Second

type dial struct {
	cancel  context.CancelFunc
	began   time.Time
	doubted bool // a request gave up waiting for it
}

// waiter is a request that waits for a place on a connection.
type waiter struct {
	done chan struct{} // closed when the fields below are set
	conn *conn         // has a place reserved for the request
	err  error
}

// preferenceKey is the context key of a preference.
type preferenceKey struct{}

// Prefer returns a context whose requests are sent over the connection for which
// over returns true, if it has room for a stream, Options.Spare included, and
// otherwise over any. Where requests have to wait, those of ctx are served first. over is called with what
// Options.Dial returned. It is called under a lock, and must do no more than
// compare.
func Prefer(ctx context.Context, over func(net.Conn) bool) context.Context {
	return context.WithValue(ctx, preferenceKey{}, over)
}

// acquire reserves a place for one stream on a connection to addr, and waits
// for it if necessary.
func (t *Transport) acquire(ctx context.Context, addr string) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	over, _ := ctx.Value(preferenceKey{}).(func(net.Conn) bool)
	c, p, place, err := t.reserve(addr, over)
	if c != nil || err != nil {
		return c, err
	}
	w := place.Value.(*waiter)
	select {
	case <-w.done:
		return w.conn, w.err
	case <-ctx.Done():
		t.cancel(p, place)
		return nil, fmt.Errorf("%w: %w", ErrWaiting, ctx.Err())
	}
}

// reserve reserves a place at once, or queues a waiter for one. prefer may be
// nil.
func (t *Transport) reserve(addr string, prefer func(net.Conn) bool) (*conn, *pool, *list.Element, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.over != nil {
		return nil, nil, nil, t.over
	}
	p := t.pools[addr]
	if p == nil {
		p = &pool{t: t, addr: addr}
		t.pools[addr] = p
	}
	if prefer != nil {
		for _, c := range p.conns {
			if prefer(c.nc) && c.reserve(true) {
				return c, nil, nil, nil
			}
		}
	}
	if p.waiters.Len() == 0 {
		if c := p.roomLocked(); c != nil {
			return c, nil, nil, nil
		}
	}
	t.waiting.Add(1)
	push := p.waiters.PushBack
	if prefer != nil {
		push = p.waiters.PushFront
	}
	place := push(&waiter{done: make(chan struct{})})
	p.serveLocked() // again: room made before the waiter was counted was not announced

	return nil, p, place, nil
}

// cancel stops waiting. A place that was granted meanwhile goes to the next
// waiter.
func (t *Transport) cancel(p *pool, place *list.Element) {
	if c := t.unqueue(p, place); c != nil {
		c.release()
	}
}

// unqueue removes a waiter from the queue. If a place has already been granted,
// it returns the connection.
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
		p.doubtLocked()
		p.tidyLocked()
		return nil
	}
}

// doubtLocked is called when a waiter gives up. The dial that it waited for may
// hang. It goes on, but others need not wait for it.
func (p *pool) doubtLocked() {
	for _, d := range p.dials {
		d.doubted = d.doubted || time.Since(d.began) >= doubtAfter
	}
	p.serveLocked()
}

// mayDialLocked reports whether another dial may begin.
func (p *pool) mayDialLocked() bool {
	return len(p.dials) == 0 || len(p.dials) == 1 && p.dials[0].doubted
}

// roomLocked reserves a place on the first connection that has one.
func (p *pool) roomLocked() *conn {
	for _, c := range p.conns {
		if c.reserve(false) {
			return c
		}
	}
	return nil
}

// serveLocked assigns free places to waiters. It dials for the rest unless a
// connection is about to have room.
func (p *pool) serveLocked() {
	for p.waiters.Len() > 0 {
		c := p.roomLocked()
		if c == nil {
			break
		}
		p.nextLocked(c, nil)
	}

	if p.waiters.Len() == 0 || !p.mayDialLocked() || p.t.over != nil ||
		slices.ContainsFunc(p.conns, (*conn).promising) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	d := &dial{cancel: cancel, began: time.Now()}
	p.dials = append(p.dials, d)
	p.t.running.Go(func() {
		defer cancel()
		c, err := p.connect(ctx)
		if over := p.add(d, c, err); over != nil {
			c.close(over)
		}
	})
}

// nextLocked delivers the result to the first waiter.
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

// tidyLocked deletes the pool if it is empty.
func (p *pool) tidyLocked() {
	if len(p.conns) == 0 && len(p.dials) == 0 && p.waiters.Len() == 0 && p.t.pools[p.addr] == p {
		delete(p.t.pools, p.addr)
	}
}

// connect makes a connection and waits for the peer's settings.
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
		c.closeNow(fmt.Errorf("%w: no HTTP/2 settings received: %w", ErrConnectionLost, ctx.Err()))
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

// add ends a dial, and adds its connection to the pool. If that may not stay,
// add returns the error to close it with. If the dial failed, all waiters fail:
// dialing again would not help them. If another one is in progress, they wait
// for that, unless the peer has shown that it does not speak HTTP/2.
func (p *pool) add(d *dial, c *conn, err error) (over error) {
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()

	p.dials = slices.DeleteFunc(p.dials, func(other *dial) bool { return other == d })
	if err == nil {
		err = c.cause() // a connection that already broke has tried to remove itself, and would stay forever
	}
	switch {
	case err != nil && len(p.dials) > 0 && !errors.Is(err, ErrNotHTTP2):
	case err != nil:
		p.failLocked(err)
		p.tidyLocked()
	case t.over != nil:
		return t.over
	default:
		p.conns = append(p.conns, c)
		p.serveLocked()
	}

	return nil
}

// remove removes a broken connection from the pool. If err is not nil, all
// waiters fail with it; otherwise the caller serves them.
func (p *pool) remove(c *conn, err error) {
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

// serve assigns places that have become free to waiters.
func (p *pool) serve() {
	if p.t.waiting.Load() == 0 {
		return
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()

	p.serveLocked()
}
