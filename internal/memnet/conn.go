// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// errReset is the error at both ends of a connection that the network has cut.
var errReset = os.NewSyscallError("read", syscall.ECONNRESET)

// queue holds the bytes in flight in one direction.
type queue struct {
	mu     sync.Mutex // protects the fields below
	data   []byte
	lost   bool          // written bytes are lost
	closed error         // returned after the data
	ready  chan struct{} // one slot: the state may have changed
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) write(p []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.closed != nil {
		return io.ErrClosedPipe
	}
	if !q.lost {
		q.data = append(q.data, p...)
		q.wake()
	}
	return nil
}

// take copies bytes that have arrived. If there are none, it returns 0 and no
// error.
func (q *queue) take(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()

	n := copy(p, q.data)
	if q.data = q.data[n:]; len(q.data) == 0 {
		q.data = nil
	}
	if n == 0 {
		return 0, q.closed
	}
	return n, nil
}

// end closes the queue. If cut is true, the remaining bytes can no longer be
// read.
func (q *queue) end(err error, cut bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.lost && !cut {
		return // the other end does not learn of it
	}
	if q.closed == nil {
		q.closed = err
	}
	if cut {
		q.data, q.closed = nil, err
	}
	q.wake()
}

func (q *queue) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost = true
}

// conn is one end of a connection.
type conn struct {
	in, out *queue
	closed  chan struct{}
	once    sync.Once
	onClose func()

	reading, writing deadline
}

// pair returns the two ends of a connection.
func pair() (a, b *conn) {
	there, back := newQueue(), newQueue()
	a = &conn{in: back, out: there, closed: make(chan struct{})}
	b = &conn{in: there, out: back, closed: make(chan struct{})}
	return a, b
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for {
		over, changed := c.reading.look()
		switch {
		case isDone(c.closed):
			return 0, net.ErrClosed
		case over:
			return 0, os.ErrDeadlineExceeded
		}

		if n, err := c.in.take(p); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		select {
		case <-c.in.ready:
		case <-c.closed:
		case <-changed:
		}
	}
}

// Write implements net.Conn. It never blocks.
func (c *conn) Write(p []byte) (int, error) {
	over, _ := c.writing.look()
	switch {
	case isDone(c.closed):
		return 0, net.ErrClosed
	case over:
		return 0, os.ErrDeadlineExceeded
	}

	if err := c.out.write(p); err != nil {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	return len(p), nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.out.end(io.EOF, false)
		c.reading.set(time.Time{})
		c.writing.set(time.Time{})
		if c.onClose != nil {
			c.onClose()
		}
	})
	return nil
}

// cut ends the connection at both ends, like a reset.
func (c *conn) cut() {
	err := &net.OpError{Op: "read", Net: "tcp", Err: errReset}
	c.in.end(err, true)
	c.out.end(err, true)
}

// lose drops everything that is sent from now on, in both directions.
func (c *conn) lose() {
	c.in.lose()
	c.out.lose()
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// LocalAddr implements net.Conn.
func (*conn) LocalAddr() net.Addr { return address("192.0.2.1:1") }

// RemoteAddr implements net.Conn.
func (*conn) RemoteAddr() net.Addr { return address("192.0.2.2:2") }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.reading.set(t)
	c.writing.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { c.reading.set(t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { c.writing.set(t); return nil }

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// deadline is a time after which an operation fails. It can be changed while
// the operation waits for it.
type deadline struct {
	mu    sync.Mutex // protects the fields below
	timer *time.Timer
	sets  int // counts calls of set, to recognize outdated timers
	over  bool
	woken chan struct{} // closed when over or the deadline changes
}

// look reports whether the deadline has passed, and returns a channel that is
// closed when the result may have changed.
func (d *deadline) look() (over bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.woken == nil {
		d.woken = make(chan struct{})
	}
	return d.over, d.woken
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.sets++
	d.over = !t.IsZero() && time.Until(t) <= 0
	if !t.IsZero() && !d.over {
		set := d.sets
		d.timer = time.AfterFunc(time.Until(t), func() { d.expire(set) })
	}
	d.wakeLocked()
}

// expire marks the deadline as passed, unless another one was set meanwhile.
func (d *deadline) expire(set int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sets == set {
		d.over = true
		d.wakeLocked()
	}
}

func (d *deadline) wakeLocked() {
	if d.woken != nil {
		close(d.woken)
		d.woken = nil
	}
}
