// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"io"
	"sync"
)

// chunk is a pooled buffer with data that waits for its reader.
type chunk struct {
	next *chunk
	data []byte // not read yet
	buf  []byte // all there is; its size is that of the pool
}

// A frame's data is read into the smallest chunk that takes it, and joins the
// chunk before it if there is room. So of two neighbours, one is at least half
// full, and what a stream parks is in proportion to what it was sent.
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

// free gives the chunk back. Nothing may refer to it any more.
func (k *chunk) free() {
	k.next, k.data = nil, nil
	for _, class := range chunks {
		if len(k.buf) == class.size {
			class.pool.Put(k)
		}
	}
}

// chunkQueue is the data of a stream that waits for its reader.
type chunkQueue struct{ first, last *chunk }

// push appends k, which belongs to the queue from now on.
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

// read moves data to p, and frees what has been read.
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
