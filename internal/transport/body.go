// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"io"
	"sync/atomic"
)

// unlimited is the budget of a body whose reader enforces its own limit.
const unlimited = -1

// body is a response body that enforces the transport's rules. It is kept small
// because every running watch has one.
type body struct {
	rc     io.ReadCloser
	by     sender
	method string
	path   string
	left   int64 // bytes that may still be read, or unlimited

	clip  bool // exceeding the budget ends the body instead of failing
	alive bool // received bytes count as proof of life
	watch bool // counted in Transport.Streams
	over  atomic.Bool
}

// Read implements io.Reader. Once the generation has ended, or its watches have
// been cut, Read fails at once, even if bytes are at hand.
func (b *body) Read(p []byte) (int, error) {
	if cause := b.ended(); cause != nil {
		return 0, b.fail(cause)
	}
	if b.left == 0 {
		return b.full()
	}
	if b.left > 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.rc.Read(p)
	if n > 0 && b.left != unlimited {
		b.left -= int64(n)
	}
	if n > 0 && b.alive {
		b.by.of().cluster.lives()
	}

	switch {
	case err == io.EOF && b.watch && b.ended() != nil: //nolint:errorlint // net/http's end of a body that was cut
		err = b.fail(err)
	case err == io.EOF: //nolint:errorlint // the end of the body is io.EOF itself; what wraps it is a broken connection
		b.end()
	case err != nil:
		err = b.fail(err)
	}

	return n, err
}

func (b *body) ended() error { return b.by.of().endedFor(b.watch) }

// full answers a read when the budget is used up. It returns an error only if
// the body holds more data.
func (b *body) full() (int, error) {
	if b.clip {
		b.end()
		return 0, io.EOF
	}
	var probe [1]byte
	for {
		n, err := b.rc.Read(probe[:])
		switch {
		case n > 0:
			return 0, b.fail(ErrBodyTooLarge)
		case errors.Is(err, io.EOF):
			b.end()
			return 0, io.EOF
		case err != nil:
			return 0, b.fail(err)
		}
	}
}

// Close implements io.Closer.
func (b *body) Close() error {
	_ = b.rc.Close() // net/http's only error here is a broken connection, which no longer matters
	b.end()
	return nil
}

func (b *body) fail(err error) error {
	b.end()
	if cause := b.ended(); cause != nil {
		err = cause
	}
	return b.by.of().cluster.failed(operation(b.method, b.path), err)
}

// end removes the body from the counts, once.
func (b *body) end() {
	if b.over.Swap(true) {
		return
	}
	if b.watch {
		b.by.of().cluster.streams.Add(-1)
	}
	b.by.release()
}

// releasing undoes a binding to the generation when the body is closed.
type releasing struct {
	io.ReadCloser

	release func()
}

func (r *releasing) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}
