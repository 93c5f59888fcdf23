// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// ahead lets a reader scan items while it looks for their ends, so that their
// bytes are gone through once instead of twice.
type ahead struct {
	on   bool   // the reader's Scan is in use
	done bool   // the item in the buffer is the scan of raw
	raw  []byte // the object that was read last
	size int    // how long it was with what surrounds it
	over error  // why raw is only the identity of the object; nil if it is all of it
}

// begin forgets the last object.
func (a *ahead) begin() { a.raw, a.done, a.over = nil, false, nil }

// scan scans the object that was read last.
func (a *ahead) scan(w *window) (Item, error) {
	if a.raw == nil {
		return Item{}, &FieldError{"", "was not read"}
	}
	if a.over != nil {
		return Item{}, a.over
	}
	if !a.done {
		a.on = true
		if err := w.buf.scan.scan(a.raw); err != nil {
			return Item{}, err
		}
		a.done = true
	}
	return w.buf.scan.it, nil
}

// read scans the object with which b, a part of what is pending, begins. It
// returns where the object ends, or -1 if only closer reading can tell.
func (a *ahead) read(w *window, b []byte, limit int) int {
	end := w.buf.scan.scanFirst(b)
	if end < 0 || end > limit {
		return -1
	}
	a.done = true
	return end
}
