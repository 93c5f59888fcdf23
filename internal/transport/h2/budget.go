// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import "time"

const (
	budgetSize   = 2048 // frames
	budgetRefill = 256  // frames per second
	maxForgiven  = 1 << 20

	// smallFrame is the size of the frames that may be under way to a stream
	// when we reset it, as far as its window goes.
	smallFrame = 256 // bytes
	// perResponse is how many frames about a stream, such as for its window,
	// may come with a response.
	perResponse = 8
)

// budget is how many frames that bring nothing a peer may send: empty DATA,
// PING, SETTINGS, frames of unknown types or for streams long gone. None of
// them costs memory, but each costs time, and so a bounded number per second.
// It is protected by the connection's lock.
type budget struct {
	spent float64       // less than nothing if more than usual is expected
	at    time.Duration // as of when
}

// spendLocked reports whether the peer may send one more.
func (b *budget) spendLocked(now time.Duration) bool {
	if b.spent > 0 {
		b.spent = max(0, b.spent-(now-b.at).Seconds()*budgetRefill)
	}
	b.at = now
	b.spent++
	return b.spent <= budgetSize
}

// forgiveLocked makes room for a number of frames that the peer may send
// because of what we did.
func (b *budget) forgiveLocked(frames int) {
	b.spent = max(b.spent-float64(frames), -maxForgiven)
}
