// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"math/rand/v2"
	"time"
)

const (
	// refusedLeast is the shortest wait while requests are forbidden. With the
	// list that follows it is less than a second.
	refusedLeast = 900 * time.Millisecond
	// refusedPart is the part of its age by which a refusal may outlast the
	// right that ends it.
	refusedPart = 60
	// refusedPace is the mean time between two attempts in one cluster. The
	// refused informers of a cluster share it: in a fleet of 1,000 clusters,
	// each of which forbids 50 kinds, all informers together make up to 2,000
	// attempts per second, about as many as the waits of other failures allow,
	// and no cluster receives more than two per second.
	refusedPace = 500 * time.Millisecond
)

// Refusal computes the waits between the attempts of an informer whose requests
// are forbidden. Rights are usually granted soon after they were missed, or
// much later: the waits begin short, and grow with the age of the refusal. The
// zero value is ready for use.
type Refusal struct {
	since  time.Time // of the first forbidden attempt in a row; zero if there is none
	lifted bool      // an attempt has begun as if the refusal were over
}

// Begin records that an attempt was forbidden. It reports whether the one
// before was not.
func (r *Refusal) Begin() (begun bool) {
	if !r.since.IsZero() {
		return false
	}
	r.since = time.Now()
	return true
}

// Lift records that a request was permitted, which does not prove yet that the
// attempt will last. It reports true once for each refusal.
func (r *Refusal) Lift() (lifted bool) {
	if r.since.IsZero() || r.lifted {
		return false
	}
	r.lifted = true
	return true
}

// End records that the refusal is over. It reports whether there was one.
func (r *Refusal) End() (ended bool) {
	ended = !r.since.IsZero()
	*r = Refusal{}
	return ended
}

// After returns the wait after a forbidden attempt, in a cluster that forbids
// the attempts of so many informers: a sixtieth of the age of the refusal, and
// longer for as long as all of them together would exceed their pace; at least
// 0.9 s, and at most limit. A quarter of it is random.
func (r *Refusal) After(informers int, limit time.Duration) time.Duration {
	wait := max(time.Since(r.since)/refusedPart, time.Duration(informers)*refusedPace, refusedLeast)
	wait = max(min(wait, limit), refusedLeast)
	return wait - rand.N(wait/4)
}
