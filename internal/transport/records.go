// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "encoding/binary"

const (
	recordHeader = 5 // type, version, and the length of the payload
	// unknownRecord is how much is read while the length of a record is not
	// known: several small ones, but little of a large one.
	unknownRecord = 1 << 10
)

// records follows the TLS records of a connection, so that no read goes far
// beyond the one that is being received. crypto/tls keeps the buffer that it
// reads into for as long as the connection lasts. It takes 18 KiB for the
// largest record alone, and 40 KiB if such a record was preceded by a part of
// another.
type records struct {
	header [recordHeader]byte
	has    int // bytes of the header that were received
	left   int // bytes of the payload that were not
}

// wanted returns how many bytes to read next, at most.
func (r *records) wanted() int {
	if r.left > 0 {
		return r.left
	}
	return unknownRecord
}

// pass records what was read.
func (r *records) pass(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(r.left, len(b))
			r.left, b = r.left-n, b[n:]
			continue
		}
		n := copy(r.header[r.has:], b)
		r.has, b = r.has+n, b[n:]
		if r.has == recordHeader {
			r.has, r.left = 0, int(binary.BigEndian.Uint16(r.header[recordHeader-2:]))
		}
	}
}
