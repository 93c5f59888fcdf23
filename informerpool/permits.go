// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"time"

	"github.com/fleetcache/fleetcache/internal/workpool"
)

// permits bound how many lists are under way at once, so that a fleet that
// comes back does not do so in one moment. A permit counts for a limited time
// only, and for much less where lists use to be quick: clusters that hang must
// not use them up.
type permits struct{ queue *workpool.Queue }

func newPermits(n int, timeout time.Duration) *permits {
	return &permits{queue: workpool.NewLearning(n, timeout)}
}

// take waits for a permit. The function it returns gives it back, and may be
// called more than once.
func (p *permits) take(ctx context.Context) (func(), error) {
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

// listed notes how long a list took that came to its end.
func (p *permits) listed(took time.Duration) { p.queue.Succeeded(took) }

// busy reports whether lists wait for a permit.
func (p *permits) busy() bool { return p.queue.Waiting() }
