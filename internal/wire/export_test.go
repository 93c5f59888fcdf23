// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "unsafe"

// HoldsBuffer reports whether the reader holds pooled memory.
func (f *FrameReader) HoldsBuffer() bool { return f.w.buf != nil }

// BufferSize returns how much pooled memory the reader holds.
func (l *ListReader) BufferSize() int {
	if l.w.buf == nil {
		return 0
	}
	return len(l.w.buf.b)
}

// FrameReaderSize is the size of an idle FrameReader.
const FrameReaderSize = unsafe.Sizeof(FrameReader{})
