// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"io"
	"sync"
)

// chunk is a pooled buffer of data waiting for its reader.
type chunk struct {
	next *chunk
	data []byte // not yet read
	buf  []byte // the whole buffer, of the size of its pool
}

// A frame's data is read into the smallest chunk that holds it, and merged into
// the preceding chunk if that has room. So of two adjacent chunks, at least one
// is half full, and the memory a stream occupies is proportional to the data it
// received.
var chunks = [...]struct {
	size int
	pool *sync.Pool
}{
	{1 << 10, new(sync.Pool)},
	{4 << 10, new(sync.Pool)},
	{maxFrame, new(sync.Pool)},
}

// newChunk returns a chunk for n bytes, at most maxFrame.
func newChunk(n int) *chunk {
	for _, class := range chunks {
		if n > class.size {
			continue
		}
		if k, ok := class.pool.Get().(*chunk); ok {
			return k
		}
		return &chunk{buf: make([]byte, class.size)}
	}

	panic("h2: no chunk is that large")
}

// fill reads n bytes from r.
func (k *chunk) fill(r io.Reader, n int) error {
	k.data = k.buf[:n]
	_, err := io.ReadFull(r, k.data)
	return err
}

// free returns the chunk to its pool. The caller must not keep any reference to
// it.
func (k *chunk) free() {
	k.next, k.data = nil, nil
	for _, class := range chunks {
		if len(k.buf) == class.size {
			class.pool.Put(k)
		}
	}
}

// chunkQueue is a stream's received data waiting for its reader.
type chunkQueue struct{ first, last *chunk }

// push appends k to the queue, which takes ownership of it.
func (q *chunkQueue) push(k *chunk) {
	if q.last != nil {
		data := q.last.data
		if room := cap(data) - len(data); room >= len(k.data) {
			q.last.data = append(data, k.data...)
			k.free()
			return
		}
		q.last.next = k
	} else {
		q.first = k
	}

	q.last = k
}

// read moves data to p and frees chunks that have been read.
func (q *chunkQueue) read(p []byte) (n int) {
	for q.first != nil && n < len(p) {
		k := q.first
		m := copy(p[n:], k.data)
		n += m
		if k.data = k.data[m:]; len(k.data) > 0 {
			break
		}
		q.pop()
	}

	return n
}

func (q *chunkQueue) pop() {
	k := q.first
	if q.first = k.next; q.first == nil {
		q.last = nil
	}
	k.free()
}

func (q *chunkQueue) clear() {
	for q.first != nil {
		q.pop()
	}
}
