// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// ahead lets a reader scan objects while it looks for their ends, so that it
// goes through their bytes once instead of twice.
type ahead struct {
	on   bool   // the reader's Scan is in use
	done bool   // the item in the buffer is the scan of raw
	raw  []byte // the object read last
	size int    // its size including the bytes around it
	over error  // why raw holds only the identity of the object; nil if raw is the whole object
}

// begin forgets the last object.
func (a *ahead) begin() { a.raw, a.done, a.over = nil, false, nil }

// scan scans the object read last.
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

// read scans the object at the beginning of b, a part of the pending bytes. It
// returns where the object ends, or -1 if that takes a closer look.
func (a *ahead) read(w *window, b []byte, limit int) int {
	end := w.buf.scan.scanFirst(b)
	if end < 0 || end > limit {
		return -1
	}
	a.done = true
	return end
}
