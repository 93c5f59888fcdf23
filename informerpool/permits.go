// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// permits bound how many lists are under way at once, so that a fleet that comes back does not do so in one moment. A
// permit counts for a limited time only: clusters that hang must not use them up.
type permits struct {
	sem     *semaphore.Weighted
	timeout time.Duration
}

func newPermits(n int, timeout time.Duration) *permits {
	return &permits{sem: semaphore.NewWeighted(int64(n)), timeout: timeout}
}

// take waits for a permit. The function it returns gives it back, and may be called more than once.
func (p *permits) take(ctx context.Context) (func(), error) {
	if err := p.sem.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	release := sync.OnceFunc(func() { p.sem.Release(1) })
	timer := time.AfterFunc(p.timeout, release)
	return func() {
		timer.Stop()
		release()
	}, nil
}
