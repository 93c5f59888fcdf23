// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

// SkipStreams makes id the number of the next stream of every connection.
func SkipStreams(t *Transport, id uint32) {
	for _, c := range t.conns() {
		c.mu.Lock()
		c.nextID = id
		c.mu.Unlock()
	}
}

// Parked returns how many bytes of received data wait for their readers, and how much memory they occupy.
func Parked(t *Transport) (data, memory int) {
	for _, c := range t.conns() {
		c.mu.Lock()
		for _, s := range c.streams {
			for k := s.data.first; k != nil; k = k.next {
				data += len(k.data)
				memory += len(k.buf)
			}
		}
		c.mu.Unlock()
	}
	return data, memory
}
