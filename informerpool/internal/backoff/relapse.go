// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// calm is how long something must not have happened to count as over.
const calm = 10 * time.Minute

// Relapse is the back-off of what happens again although each attempt after it
// succeeds: the success of an attempt does not end it, only time without it.
// The zero value is that of what has not happened.
type Relapse struct {
	last time.Time
	wait time.Duration
}

// After returns the wait after it has happened: none for the first time.
func (r *Relapse) After(now time.Time, limit time.Duration) time.Duration {
	switch {
	case r.last.IsZero(), now.Sub(r.last) >= r.wait+calm:
		r.wait = 0
	case r.wait == 0:
		r.wait = min(first, limit)
	default:
		r.wait = min(2*r.wait, limit)
	}
	r.last = now

	return r.wait
}
