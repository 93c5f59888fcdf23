// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"math/rand/v2"
	"sync/atomic"
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
// much later: the waits begin short, and grow with the age of the refusal.
type Refusal struct {
	// Refused counts the informers of the cluster that are refused, this one
	// included.
	Refused *atomic.Int64

	since  time.Time // of the first forbidden attempt in a row; zero if there is none
	lifted bool      // an attempt has begun as if the refusal were over
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

// End records that the refusal is over, if there is one.
func (r *Refusal) End() {
	if !r.since.IsZero() {
		r.Refused.Add(-1)
	}
	*r = Refusal{Refused: r.Refused}
}

// After records that an attempt was forbidden, and returns the wait before the
// next one: a sixtieth of the age of the refusal, and longer for as long as all
// refused informers together would exceed their pace; at least 0.9 s, and at
// most limit. A quarter of it is random.
func (r *Refusal) After(limit time.Duration) time.Duration {
	if r.since.IsZero() {
		r.since = time.Now()
		r.Refused.Add(1)
	}
	wait := max(time.Since(r.since)/refusedPart, time.Duration(r.Refused.Load())*refusedPace, refusedLeast)
	wait = max(min(wait, limit), refusedLeast)
	return wait - rand.N(wait/4)
}
