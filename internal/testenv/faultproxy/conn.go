// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// conn is one client's connection and its counterpart at the backend.
type conn struct {
	proxy  *Proxy
	ctx    context.Context //nolint:containedctx // the life of the connection itself
	cancel context.CancelFunc
	gone   chan struct{} // closed when the connection has ended completely

	client *net.TCPConn
	isCut  atomic.Bool // the server's side is closed and data from the client is discarded

	// mu protects the fields below.
	mu     sync.Mutex
	server *net.TCPConn // nil until the backend has been reached
	end    func(*net.TCPConn)
}

func newConn(p *Proxy, client *net.TCPConn) *conn {
	ctx, cancel := context.WithCancel(context.Background())
	return &conn{
		proxy:  p,
		ctx:    ctx,
		cancel: cancel,
		gone:   make(chan struct{}),
		client: client,
	}
}

// serve connects to the backend and forwards bytes until both sides are done or
// the connection is ended.
func (c *conn) serve() {
	defer c.proxy.forget(c)
	defer c.cancel()
	server, err := c.dial()
	if err != nil {
		c.reset() // as a load balancer does if its backend refuses
		return
	}
	var wg sync.WaitGroup
	for _, pipe := range []*pipe{
		newPipe(c, ToServer, c.client, server, &c.proxy.toServer),
		newPipe(c, ToClient, server, c.client, &c.proxy.toClient),
	} {
		wg.Go(pipe.read)
		wg.Go(pipe.write)
	}

	wg.Wait()
	c.close()
}

// dial connects to the backend once no blackhole hides it.
func (c *conn) dial() (*net.TCPConn, error) {
	if _, err := c.open(ToServer); err != nil {
		return nil, err
	}
	c.proxy.mu.Lock()
	backend := c.proxy.backend
	c.proxy.mu.Unlock()

	var d net.Dialer
	raw, err := d.DialContext(c.ctx, "tcp", backend)
	if err != nil {
		return nil, err
	}
	server := raw.(*net.TCPConn)

	c.mu.Lock()
	end := c.end
	c.server = server
	c.mu.Unlock()

	if end != nil { // ended while dialing: no other goroutine knows this socket
		end(server)
		return nil, net.ErrClosed
	}

	return server, nil
}

// close ends both sides with a FIN.
func (c *conn) close() {
	c.finish(func(s *net.TCPConn) {
		_ = s.CloseWrite() // Close alone sends an RST if unread bytes are left
		_ = s.Close()
	})
}

// reset ends both sides with an RST.
func (c *conn) reset() {
	c.finish(func(s *net.TCPConn) {
		_ = s.SetLinger(0)
		_ = s.Close()
	})
}

// cutOff closes the server's side and sends a FIN to the client. The client's
// socket stays open until the client closes it: if it were closed here while
// the client is sending, data that the client has not received yet would be
// discarded.
func (c *conn) cutOff() {
	c.isCut.Store(true)
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()

	_ = server.CloseWrite()
	_ = server.Close()
	_ = c.client.CloseWrite()
}

// finish ends both sides in the given way, unless that has already happened.
func (c *conn) finish(end func(*net.TCPConn)) {
	c.mu.Lock()
	if c.end != nil {
		c.mu.Unlock()
		return
	}
	c.end = end
	server := c.server
	c.mu.Unlock()

	c.cancel()
	end(c.client)
	if server != nil {
		end(server)
	}
}

// open waits while a blackhole blocks the direction, and returns the setting
// that is in force then.
func (c *conn) open(d Direction) (*faults, error) {
	for {
		f := c.proxy.current()
		if !f.blackhole[d] {
			return f, c.ctx.Err()
		}
		select {
		case <-f.changed:
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		}
	}
}

// halfClose forwards the end of one direction: a FIN for the end of the stream,
// and an RST to both sides for anything else.
func (c *conn) halfClose(dst *net.TCPConn, err error) {
	if errors.Is(err, io.EOF) || c.isCut.Load() {
		_ = dst.CloseWrite()
		return
	}
	c.reset()
}
