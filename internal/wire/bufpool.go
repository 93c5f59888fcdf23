// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math/bits"
	"sync"
)

const (
	minBufferBits = 16 // 64 KiB: a read of several ordinary objects
	bufferClasses = 7  // the largest pooled buffer is 4 MiB
)

// buffer is a pooled block of memory whose size is a power of two.
type buffer struct {
	b     []byte
	class int
	scan  scanner // of the object in b that was read last
}

// buffers holds one pool per size class, so that one large object does not
// leave every later reader with a large buffer.
var buffers [bufferClasses]sync.Pool

// getBuffer returns a buffer of at least n bytes.
func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(n-1))-minBufferBits, 0)
	if class < bufferClasses {
		if b, ok := buffers[class].Get().(*buffer); ok {
			return b
		}
	}
	return &buffer{b: make([]byte, 1<<(minBufferBits+class)), class: class}
}

// release returns the buffer to its pool. The caller must not use it
// afterwards.
func (b *buffer) release() {
	if b != nil && b.class < bufferClasses {
		buffers[b.class].Put(b)
	}
}
