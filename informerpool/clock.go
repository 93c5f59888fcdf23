// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "time"

// clock counts nanoseconds since the pool was created, so that instants can be
// shared without a lock. Unlike nanoseconds since 1970 they follow the
// monotonic clock: ages do not change when the wall clock is set.
type clock struct{ zero time.Time }

// Now returns the current instant, which is never zero.
func (c clock) Now() int64 { return int64(time.Since(c.zero)) + 1 }

// Of returns the instant of a time since the pool was created.
func (c clock) Of(t time.Time) int64 { return int64(t.Sub(c.zero)) + 1 }

// At returns the time of an instant; the zero instant has none.
func (c clock) At(instant int64) time.Time {
	if instant == 0 {
		return time.Time{}
	}
	return c.zero.Add(time.Duration(instant - 1))
}
