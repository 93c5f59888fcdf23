// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wire

// ahead lets a reader scan items while it looks for their ends, so that their
// bytes are gone through once instead of twice.
type ahead struct {
	on    bool   // the reader's Scan is in use
	done  bool   // the item in the buffer is the scan of raw
	strip *Strip // what the reader's Scan was called with
	raw   []byte // the object that was read last
	size  int    // how long it was with what surrounds it
}

// begin forgets the last object.
func (a *ahead) begin() { a.raw, a.done = nil, false }

// scan scans the object that was read last.
func (a *ahead) scan(w *window, strip *Strip) (Item, error) {
	if a.raw == nil {
		return Item{}, &FieldError{"", "was not read"}
	}
	if a.done && strip == a.strip {
		return w.buf.item, nil
	}
	a.on, a.strip = true, strip
	return scan(a.raw, strip)
}

// read scans the object with which b, a part of what is pending, begins. It
// returns where the object ends, or -1 if only closer reading can tell.
func (a *ahead) read(w *window, b []byte, limit int) int {
	it, end := scanFirst(b, a.strip)
	if end < 0 || end > limit {
		return -1
	}
	w.buf.item = it
	a.done = true
	return end
}
