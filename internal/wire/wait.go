// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Wait blocks until a frame begins to arrive, and returns the error that Next
// would return if none does. It is the place to wait in when there are many
// readers: it holds no buffer and little stack. Like Next, it makes the frame
// returned last void.
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
