// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clock measures ages by the monotonic clock.
package clock

import "time"

// Clock counts nanoseconds since the pool was created, so that instants can be
// shared without a lock. Unlike nanoseconds since 1970 they follow the
// monotonic clock: ages do not change when the wall clock is set.
type Clock struct{ Zero time.Time }

// Now returns the current instant, which is never zero.
func (c Clock) Now() int64 { return int64(time.Since(c.Zero)) + 1 }

// At returns the time of an instant; the zero instant has none.
func (c Clock) At(instant int64) time.Time {
	if instant == 0 {
		return time.Time{}
	}
	return c.Zero.Add(time.Duration(instant - 1))
}
