// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Wait blocks until a frame begins to arrive. If none does, it returns the
// error that Next would return. With many readers, it is the place to wait: it
// holds no buffer and little stack. Like Next, it invalidates the frame last
// returned.
func (f *FrameReader) Wait() error {
	f.ahead.begin()
	for f.err == nil && !f.w.skipSpace() {
		if err := f.wait(); err != nil {
			f.err = err
			f.w.close()
		}
	}

	return f.err
}
