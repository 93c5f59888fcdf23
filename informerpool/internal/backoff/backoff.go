// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package backoff decides how long an informer waits between attempts, and
// wakes it early.
//
// # Tests
//
// The leading test is TestWaitsGrowToTheLimitAndBeginAnewAfterSuccess.
// TestHazardClusterForbidsManyKinds covers refusals,
// TestHazardServerAsksForAnEndlessWait the waits that servers ask for.
package backoff

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/internal/sanitize"
)

const (
	first = 500 * time.Millisecond
	// spread is the period over which the watches of one broken connection are
	// resumed.
	spread = 200 * time.Millisecond
	// busyLimit caps the wait while a server reports that it is too busy.
	busyLimit = 4 * time.Second
	// Healthy is how long an attempt has to last for the next failure to count
	// as the first one.
	Healthy = 10 * time.Second
)

// Backoff computes the waits between the attempts of one reflector.
type Backoff struct {
	Wait  time.Duration // before the next attempt
	Limit time.Duration
	next  time.Duration // if that fails, too
}

// After returns the wait after an attempt that lasted for a time and ended with
// err, which is nil for a regular end.
func (b *Backoff) After(lasted time.Duration, err error) time.Duration {
	busy := apierrors.IsTooManyRequests(err)
	if lasted >= Healthy {
		b.next = 0
	}
	if lasted >= Healthy && !busy { // a list may have waited in the server's queue as long
		// The cause that ended a working watch is often over already: retry at
		// once.
		return rand.N(spread)
	}

	if b.next == 0 {
		b.next = first
	}
	wait := b.next/2 + rand.N(b.next/2)
	if b.next = min(2*b.next, b.Limit); busy {
		b.next = min(b.next, busyLimit) // some requests succeed at any time, and Retry-After gives the next try
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = max(wait, min(time.Duration(seconds)*time.Second, sanitize.MaxRetryAfter*time.Second))
	}

	return wait
}

// Reset makes the next failure count as the first one.
func (b *Backoff) Reset() { b.next = 0 }

// Waker cuts the waits of a reflector between its attempts short.
type Waker struct {
	slot chan struct{} // one wake-up
	anew atomic.Bool   // set before the wake-up: the next wait is as short as the first
}

// NewWaker returns a waker without a pending wake-up.
func NewWaker() Waker { return Waker{slot: make(chan struct{}, 1)} }

// Kick makes a waiting reflector try at once, and resets its back-off.
func (w *Waker) Kick() {
	w.anew.Store(true)
	w.Nudge()
}

// Nudge makes a waiting reflector try at once.
func (w *Waker) Nudge() {
	select {
	case w.slot <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// Sleep waits for d, for a wake-up, or for the end of ctx. It reports whether
// the back-off is to be reset.
func (w *Waker) Sleep(ctx context.Context, d time.Duration) (anew bool) {
	select {
	case <-w.slot:
		return w.anew.Swap(false)
	case <-time.After(d):
	case <-ctx.Done():
	}
	return false
}
