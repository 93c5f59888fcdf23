// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import "time"

// Everything in this file is a function of facts and the time: no lock, no
// clock, no goroutine. The rest of the package copies the facts out under its
// lock, asks here, and writes the answer back under the same lock.

// policy holds the times the decisions go by.
type policy struct {
	grace       time.Duration
	minInterval time.Duration
	maxInterval time.Duration
}

// resourceFacts is what the decision about a resource needs to know of it.
type resourceFacts struct {
	phase  Phase
	owners int
	// freed is the latest moment at which an owner let the resource go.
	freed time.Time
}

// releaseAt returns when the resource may be released; ok is false as long as
// it may not be at any time.
func (p policy) releaseAt(r resourceFacts) (at time.Time, ok bool) {
	if r.phase != Held || r.owners > 0 {
		return time.Time{}, false
	}
	return r.freed.Add(p.grace), true
}

// mayRelease says whether the resource may be released now.
func (p policy) mayRelease(r resourceFacts, now time.Time) bool {
	at, ok := p.releaseAt(r)
	return ok && !now.Before(at)
}

// answer is what a look at an owner found.
type answer uint8

const (
	// unknown stands for every outcome that proves nothing: an error, a
	// time-out, a panic, partial information.
	unknown answer = iota
	alive
	gone
)

// ownerFacts is what the decision about an owner needs to know of it.
type ownerFacts struct {
	// pending counts the declarations under way.
	pending int
	// proofs counts the proofs of life so far: declarations carried out, and
	// looks that found the owner in use.
	proofs uint64
	// used counts the looks in a row that found the owner in use.
	used int
	// failed counts the looks in a row that found nothing out.
	failed int
	// goneSince is when the owner was first found gone, if nothing has
	// contradicted it since.
	goneSince time.Time
}

// proven returns the facts after a sign of life.
func (f ownerFacts) proven() ownerFacts {
	f.proofs++
	f.goneSince = time.Time{}
	return f
}

// judge returns the facts after a look, and either that the owner is to be
// collected or when to look again. asked is the number of proofs of life when
// the look began: "gone" is no news about an owner that has spoken since. It
// takes two looks, at least the grace apart and with no sign of life between
// them, to collect an owner: one wrong answer, from a cache that lags say,
// never does.
func (p policy) judge(f ownerFacts, a answer, asked uint64, now time.Time) (next ownerFacts, at time.Time, collect bool) {
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

// interval returns how long to wait before the next look, after n like results
// in a row: doubling, up to a limit.
func (p policy) interval(n int) time.Duration {
	d := p.minInterval
	// Comparing with half the limit instead of doubling first cannot overflow.
	for ; n > 0 && d <= p.maxInterval/2; n-- {
		d *= 2
	}
	if n > 0 {
		return p.maxInterval
	}
	return d
}
