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
