// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net"
	"slices"
	"sync/atomic"
	"time"
)

const (
	chunkSize = 32 << 10
	// queued bounds how much is read ahead of a slow or delayed delivery: 256
	// chunks, some 8 MiB, like a long path with large socket buffers.
	queued = 256
	// ticks is how many times a second a throttled connection moves bytes.
	ticks = 20
)

// chunk is the result of one read, with its time. A chunk with err is the last.
type chunk struct {
	data []byte
	at   time.Time
	err  error
}

// pipe is one direction of a connection. One goroutine reads and another
// writes, so that a delay does not reduce the throughput.
type pipe struct {
	conn      *conn
	direction Direction
	src, dst  *net.TCPConn
	queue     chan chunk
	ended     chan struct{} // closed when the queue is no longer read
	delivered *atomic.Int64

	// cut and left belong to write: the current cut, and the bytes left until
	// it.
	cut  *cut
	left int64
}

func newPipe(c *conn, d Direction, src, dst *net.TCPConn, delivered *atomic.Int64) *pipe {
	return &pipe{
		conn:      c,
		direction: d,
		src:       src,
		dst:       dst,
		delivered: delivered,
		queue:     make(chan chunk, queued),
		ended:     make(chan struct{}),
	}
}

// read queues arriving data until the stream or the connection ends.
func (p *pipe) read() {
	buf := make([]byte, chunkSize)
	for {
		n, err := p.src.Read(buf)
		select {
		case p.queue <- chunk{data: slices.Clone(buf[:n]), at: time.Now(), err: err}:
		case <-p.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

// write delivers queued data as the faults allow.
func (p *pipe) write() {
	defer close(p.ended)
	for {
		select {
		case <-p.conn.ctx.Done():
			return
		case next := <-p.queue:
			if !p.deliver(next) {
				return
			}
			if next.err != nil {
				p.conn.halfClose(p.dst, next.err)
				return
			}
		}
	}
}

// deliver forwards one chunk, piece by piece, each under the setting in force
// at the time. It returns false if the connection has ended.
func (p *pipe) deliver(c chunk) bool {
	for data := c.data; ; {
		f, ok := p.due(c.at)
		if !ok {
			return false
		}
		if len(data) == 0 {
			return true
		}
		n := p.allowed(f, len(data))
		if n == 0 {
			p.conn.cutOff()
			return false
		}
		p.delivered.Add(int64(n)) // first, because the receiver of the bytes may read the counter
		if _, err := p.dst.Write(data[:n]); err != nil && !p.conn.isCut.Load() {
			p.conn.reset()
			return false
		}
		data = data[n:]
		if p.spent(int64(n)) {
			p.conn.cutOff()
			return false
		}
		if f.rate > 0 && !p.pause(f, time.Duration(n)*time.Second/time.Duration(f.rate)) {
			return false
		}
	}
}

// due waits until bytes that were read at the given time may be delivered, and
// returns the setting in force.
func (p *pipe) due(at time.Time) (*faults, bool) {
	for {
		f, err := p.conn.open(p.direction)
		if err != nil {
			return nil, false
		}
		wait := f.delay - time.Since(at)
		if f.delay == 0 || wait <= 0 {
			return f, true
		}
		if !p.pause(f, wait) {
			return nil, false
		}
	}
}

// pause waits for d or a change of the setting. It returns false if the
// connection has ended.
func (p *pipe) pause(f *faults, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.changed:
	case <-p.conn.ctx.Done():
		return false
	}

	return true
}

// allowed returns how many of n bytes the setting allows to be forwarded at
// once, or 0 if the connection must be cut.
func (p *pipe) allowed(f *faults, n int) int {
	if p.direction == ToClient && p.cut != f.cut {
		p.cut = f.cut
		if f.cut != nil {
			p.left = f.cut.after
		}
	}

	if p.cut != nil {
		n = int(min(int64(n), p.left))
	}
	if f.rate > 0 {
		n = min(n, max(1, f.rate/ticks))
	}
	return n
}

// spent counts n delivered bytes and reports whether the cut has been reached.
func (p *pipe) spent(n int64) bool {
	if p.cut == nil {
		return false
	}
	p.left -= n
	return p.left == 0
}
