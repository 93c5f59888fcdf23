// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// queue calls work with items, one call at a time for each item, in the order in
// which the items were added. An item whose call fails is tried again with
// back-off, or as soon as it is added again. Nothing runs before the first one.
type queue struct {
	work    func(item) error
	workers int
	backoff workqueue.TypedRateLimiter[item]
	running sync.WaitGroup

	mu struct {
		sync.Mutex

		items  workqueue.TypedRateLimitingInterface[item] // nil before the first one
		closed bool
	}
}

func newQueue(workers int, minBackoff, maxBackoff time.Duration, work func(item) error) *queue {
	return &queue{
		work:    work,
		workers: workers,
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[item](minBackoff, maxBackoff),
	}
}

// add has work called with an item, after the call that is under way.
func (q *queue) add(it item) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.mu.closed {
		return
	}
	if q.mu.items == nil {
		items := workqueue.NewTypedRateLimitingQueue(q.backoff)
		for range q.workers {
			q.running.Go(func() { q.run(items) })
		}
		q.mu.items = items
	}
	q.mu.items.Add(it)
}

// run calls work until the queue is stopped.
func (q *queue) run(items workqueue.TypedRateLimitingInterface[item]) {
	for {
		it, stopped := items.Get()
		if stopped {
			return
		}
		if q.work(it) != nil {
			items.AddRateLimited(it)
		} else {
			items.Forget(it)
		}
		items.Done(it)
	}
}

// stop ends the queue: work is called with what was added, and no more than
// that. It does not wait.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.mu.closed = true
	if q.mu.items != nil {
		q.mu.items.ShutDown()
	}
}

// wait waits until the goroutines of a stopped queue have ended, or until ctx
// ends.
func (q *queue) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { // ends with the last call
		q.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
