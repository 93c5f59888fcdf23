// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"time"

	"github.com/fleetcache/fleetcache/internal/workpool"
)

// permits bound how many lists run at once, so that a fleet that reconnects
// does not list all at the same moment. A permit counts for a limited time
// only, and for much less where lists are usually quick: clusters that hang
// must not use up the permits.
type permits struct{ queue *workpool.Queue }

// newPermits returns n permits, each of which counts for timeout at most.
func newPermits(n int, timeout time.Duration) *permits {
	return &permits{queue: workpool.NewLearning(n, timeout)}
}

// Take waits for a permit. The function it returns gives it back, and may be
// called more than once.
func (p *permits) Take(ctx context.Context) (func(), error) {
	turn := make(chan struct{})
	slot := p.queue.Submit(func() { close(turn) })
	select {
	case <-turn:
		return slot.Free, nil
	case <-ctx.Done():
		slot.Free()
		return nil, context.Cause(ctx)
	}
}

// Listed records the duration of a list that completed.
func (p *permits) Listed(took time.Duration) { p.queue.Succeeded(took) }

// Busy reports whether lists wait for a permit.
func (p *permits) Busy() bool { return p.queue.Waiting() }
