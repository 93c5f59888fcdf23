// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import "time"

// Everything in this file is a function of facts and the time, without locks,
// clocks or goroutines. The rest of the package copies the facts under its
// lock, calls these functions, and stores the result under the same lock.

// policy holds the durations that decisions depend on.
type policy struct {
	grace       time.Duration
	minInterval time.Duration
	maxInterval time.Duration
}

// resourceFacts is the input to decisions about a resource.
type resourceFacts struct {
	phase  Phase
	owners int
	// freed is the latest time at which an owner stopped using the resource.
	freed time.Time
}

// releaseAt returns when the resource may be released; ok is false while it
// must not be released at all.
func (p policy) releaseAt(r resourceFacts) (at time.Time, ok bool) {
	if r.phase != Held || r.owners > 0 {
		return time.Time{}, false
	}
	return r.freed.Add(p.grace), true
}

// mayRelease reports whether the resource may be released now.
func (p policy) mayRelease(r resourceFacts, now time.Time) bool {
	at, ok := p.releaseAt(r)
	return ok && !now.Before(at)
}

// answer is the result of a look at an owner.
type answer uint8

const (
	// unknown stands for every outcome that proves nothing: an error, a
	// timeout, a panic, partial information.
	unknown answer = iota
	alive
	gone
)

// ownerFacts is the input to decisions about an owner.
type ownerFacts struct {
	// pending counts the declarations under way.
	pending int
	// proofs counts the signs of life so far: declarations carried out, and
	// looks that found the owner in use.
	proofs uint64
	// used counts the looks in a row that found the owner in use.
	used int
	// failed counts the inconclusive looks in a row.
	failed int
	// goneSince is when the owner was first found gone, if nothing has
	// contradicted that since.
	goneSince time.Time
}

// proven returns the facts after a sign of life.
func (f ownerFacts) proven() ownerFacts {
	f.proofs++
	f.goneSince = time.Time{}
	return f
}

// judge returns the facts after a look, and either that the owner is to be
// collected or when to look again. asked is the number of proofs when the look
// began: an answer "gone" is ignored if the owner has shown a sign of life
// since. An owner is collected after two looks at least the grace apart, with
// no sign of life between them, so one wrong answer, such as that of a stale
// cache, never collects it.
func (p policy) judge(
	f ownerFacts, a answer, asked uint64, now time.Time,
) (next ownerFacts, at time.Time, collect bool) {
	switch {
	case a == alive:
		f = f.proven()
		f.used, f.failed = f.used+1, 0
		return f, now.Add(p.interval(f.used)), false
	case a == unknown:
		f.failed++
		return f, now.Add(p.interval(f.failed - 1)), false
	case f.proofs != asked || f.pending > 0:
		f.used, f.failed = 0, 0
		return f, now.Add(p.interval(0)), false
	}

	f.used, f.failed = 0, 0
	if f.goneSince.IsZero() {
		f.goneSince = now
	}
	at = f.goneSince.Add(p.grace)
	if now.Before(at) {
		return f, at, false
	}
	return f, time.Time{}, true
}

// interval returns how long to wait before the next look, after n equal results
// in a row. It doubles, up to a limit.
func (p policy) interval(n int) time.Duration {
	d := p.minInterval
	// Comparing with half the limit before doubling avoids an overflow.
	for ; n > 0 && d <= p.maxInterval/2; n-- {
		d *= 2
	}
	if n > 0 {
		return p.maxInterval
	}
	return d
}
