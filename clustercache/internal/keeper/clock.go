// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import "time"

// clock relates the times of this process to those on disk. The clock of the
// machine may be set at any time, forward or back. In memory all times have a
// monotonic reading, so that an age is the time that has passed; on disk they
// are of the machine's clock as it was set when they were written.
type clock struct {
	wall func(now time.Time) time.Time // the machine's clock
	zero time.Time                     // when the process began
}

func newClock(wall func(now time.Time) time.Time) clock {
	if wall == nil {
		wall = func(now time.Time) time.Time { return now.Round(0) }
	}
	return clock{
		wall: wall,
		zero: time.Now(),
	}
}

// read returns the time in this process of one that is on disk.
func (c clock) read(t, now time.Time) time.Time { return now.Add(t.Sub(c.wall(now))) }

// write returns what is written for a time of this process. Unless the clock
// was set, it is always the same.
func (c clock) write(t, now time.Time) time.Time {
	written, exact := t.Round(0), c.wall(now).Add(-now.Sub(t))
	if exact.Sub(written).Abs() > maxSkew {
		return exact
	}
	return written
}

// offset returns by how much the clock was set since the process began.
func (c clock) offset(now time.Time) time.Duration {
	return c.wall(now).Sub(c.zero.Round(0)) - now.Sub(c.zero)
}
