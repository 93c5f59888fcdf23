// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	firstBackoff = 500 * time.Millisecond
	// spread is the period over which the watches of one broken connection are
	// resumed.
	spread = 200 * time.Millisecond
	// busyLimit caps the wait while a server reports that it is too busy.
	busyLimit = 4 * time.Second
	// healthy is how long an attempt has to last for the next failure to count
	// as the first one.
	healthy = 10 * time.Second
)

// backoff computes the waits between the attempts of one reflector.
type backoff struct {
	wait  time.Duration // before the next attempt
	limit time.Duration
	next  time.Duration // if that fails, too
}

// after returns the wait after an attempt that lasted for a time and ended with
// err, which is nil for a regular end.
func (b *backoff) after(lasted time.Duration, err error) time.Duration {
	if lasted >= healthy {
		b.next = 0
		// The cause that ended a working watch is often over already: retry at
		// once.
		return rand.N(spread)
	}

	if b.next == 0 {
		b.next = firstBackoff
	}
	wait := b.next/2 + rand.N(b.next/2)
	if b.next = min(2*b.next, b.limit); apierrors.IsTooManyRequests(err) {
		b.next = min(b.next, busyLimit) // some requests succeed at any time, and Retry-After gives the next try
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = max(wait, min(time.Duration(seconds)*time.Second, maxRetryAfter))
	}

	return wait
}

// reset makes the next failure count as the first one.
func (b *backoff) reset() { b.next = 0 }

// sleep waits for d, for a wake-up, or for the end of ctx. It reports whether
// it was woken.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-wake:
		return true
	}

	return false
}

// waker cuts the waits of a reflector between its attempts short.
type waker struct {
	slot chan struct{} // one wake-up
	anew atomic.Bool   // set before the wake-up: the next wait is as short as the first
}

func newWaker() waker { return waker{slot: make(chan struct{}, 1)} }

// kick makes a waiting reflector try at once, and resets its back-off.
func (w *waker) kick() {
	w.anew.Store(true)
	w.nudge()
}

// nudge makes a waiting reflector try at once.
func (w *waker) nudge() {
	select {
	case w.slot <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// sleep waits for d, for a wake-up, or for the end of ctx. It reports whether
// the back-off is to be reset.
func (w *waker) sleep(ctx context.Context, d time.Duration) (anew bool) {
	return sleep(ctx, d, w.slot) && w.anew.Swap(false)
}
