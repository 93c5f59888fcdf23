// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package h2

import "time"

const (
	budgetSize   = 2048 // frames
	budgetRefill = 256  // frames per second
	maxForgiven  = 1 << 20

	// smallFrame is the assumed size of the frames that may be in flight for a
	// stream when we reset it. The stream's window divided by smallFrame is how
	// many of them are excused.
	smallFrame = 256 // bytes
	// perResponse is how many extra frames about a stream, such as window
	// updates, may accompany a response.
	perResponse = 8
)

// budget limits how many useless frames a peer may send: empty DATA, PING,
// SETTINGS, frames of unknown types or for streams that ended long ago. None of
// them costs memory, but each costs time, so their number per second is
// bounded. It is protected by the connection's lock.
type budget struct {
	spent float64       // negative if more frames than usual are expected
	at    time.Duration // the time at which spent was up to date
}

// spendLocked charges for one frame and reports whether the peer was allowed to
// send it.
func (b *budget) spendLocked(now time.Duration) bool {
	if b.spent > 0 {
		b.spent = max(0, b.spent-(now-b.at).Seconds()*budgetRefill)
	}
	b.at = now
	b.spent++
	return b.spent <= budgetSize
}

// forgiveLocked allows a number of extra frames that the peer may send as a
// consequence of something we did.
func (b *budget) forgiveLocked(frames int) {
	b.spent = max(b.spent-float64(frames), -maxForgiven)
}
