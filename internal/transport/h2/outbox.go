// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxOutbox is how many bytes may wait for a peer that does not read before
	// no more streams are opened. Other frames are bounded without it: resets
	// by the limit of streams, answers by the peer's budget, and everything by
	// the write deadline.
	maxOutbox = 256 << 10
	// maxPooled is the capacity of the largest buffer that is reused.
	maxPooled = 64 << 10
	// farewell is how long a peer has to accept our last frames.
	farewell = time.Second
)

// outbox holds the bytes to be sent on a connection, in order. It is protected
// by the connection's lock.
type outbox struct {
	fr      *http2.Framer // writes to the outbox itself
	buf     *bytes.Buffer // nil if it is empty
	writing bool          // a writer is running

	enc   *hpack.Encoder // writes to block
	block *bytes.Buffer  // the header block being encoded
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= maxPooled {
		b.Reset()
		buffers.Put(b)
	}
}

func (o *outbox) init() {
	o.fr = http2.NewFramer(o, nil)
	o.enc = hpack.NewEncoder((*blockSink)(o))
	o.enc.SetMaxDynamicTableSizeLimit(maxTable)
}

// Write implements io.Writer for the framer. It never fails.
func (o *outbox) Write(p []byte) (int, error) {
	if o.buf == nil {
		o.buf = buffers.Get().(*bytes.Buffer)
	}
	return o.buf.Write(p)
}

// blockSink is the io.Writer of the encoder.
type blockSink outbox

func (s *blockSink) Write(p []byte) (int, error) { return s.block.Write(p) }

// full reports whether the peer leaves too many bytes unread.
func (o *outbox) full() bool { return o.buf != nil && o.buf.Len() >= maxOutbox }

// headers adds a request. Header blocks must be sent in the order in which they
// are encoded, since each changes the compression table.
func (o *outbox) headers(id uint32, fields []hpack.HeaderField) {
	o.block = buffers.Get().(*bytes.Buffer)
	for _, f := range fields {
		_ = o.enc.WriteField(f) // writes to memory
	}
	rest := o.block.Bytes()
	first := rest[:min(len(rest), maxFrame)]
	rest = rest[len(first):]
	_ = o.fr.WriteHeaders(http2.HeadersFrameParam{
		StreamID:      id,
		BlockFragment: first,
		EndStream:     true,
		EndHeaders:    len(rest) == 0,
	})
	for len(rest) > 0 {
		next := rest[:min(len(rest), maxFrame)]
		rest = rest[len(next):]
		_ = o.fr.WriteContinuation(id, len(rest) == 0, next)
	}
	putBuffer(o.block)
	o.block = nil
}

// flushLocked starts a writer if the outbox needs one.
func (c *conn) flushLocked() {
	if !c.mu.out.writing && c.mu.out.buf != nil {
		c.mu.out.writing = true
		c.t.running.Go(c.write)
	}
}

// write sends the contents of the outbox until it is empty. It is the only
// goroutine that writes to the peer.
func (c *conn) write() {
	for {
		buf, last := c.nextWrite()
		if buf == nil {
			if last {
				c.hangUp(false)
			}
			return
		}

		_ = c.nc.SetWriteDeadline(time.Now().Add(c.t.opts.PingTimeout))
		if last || c.cause() != nil {
			// closeWith sets the cause before it sets its deadline, so either
			// closeWith or write sets the short deadline last.
			_ = c.nc.SetWriteDeadline(time.Now().Add(farewell))
		}
		_, err := c.nc.Write(buf.Bytes())
		putBuffer(buf)
		_ = c.nc.SetWriteDeadline(time.Time{}) // TLS may have to write too, on behalf of the read loop
		if err != nil {
			c.writeFailed(err)
			return
		}
	}
}

// nextWrite takes the contents of the outbox. last reports whether nothing will
// be added.
func (c *conn) nextWrite() (buf *bytes.Buffer, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	buf, c.mu.out.buf = c.mu.out.buf, nil
	c.mu.out.writing = buf != nil
	return buf, c.mu.broken != nil
}

// writeFailed gives up the connection: part of a frame may have been sent. It
// leaves out.writing set, so that nothing is sent after it.
func (c *conn) writeFailed(err error) {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		err = fmt.Errorf("%w: %w", errWriteTimeout, err)
	}
	c.closeNow(fmt.Errorf("%w: %w", ErrConnectionLost, err))
	c.hangUp(false) // a connection that was already ending left this to the writer
}
