// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import "slices"

// voidLocked drops the pending change of an object that came and went: a slow
// handler need not receive it. Its place in the queue is cleared later.
func (s *Subscription) voidLocked(it item) {
	delete(s.mu.pending, it)
	if s.mu.stale++; s.mu.stale > len(s.mu.queue)/2+32 {
		s.clearLocked()
	}
}

// clearLocked removes the places from the queue that have no pending change.
func (s *Subscription) clearLocked() {
	var seen map[item]struct{}
	if s.mu.stale > 0 { // an object may have been re-created, and have more than one
		seen = make(map[item]struct{}, len(s.mu.pending))
	}
	s.mu.queue = slices.DeleteFunc(s.mu.queue, func(it item) bool {
		if !it.object() {
			return false
		}
		_, again := seen[it]
		if seen != nil {
			seen[it] = struct{}{}
		}
		return again || s.mu.pending[it] == nil
	})
	s.mu.queue, s.mu.stale = slices.Clone(s.mu.queue), 0 // a burst must not keep its memory
}

func (s *Subscription) pushLocked(it item) {
	s.mu.queue = append(s.mu.queue, it)
	s.deliverLocked()
}

// deliverLocked starts the delivering goroutine if there is work for it.
// Pool.Close stops every subscription before it waits for the goroutines, so
// none is added to those it waits for.
func (s *Subscription) deliverLocked() {
	if s.mu.running || s.mu.paused || s.mu.closed || len(s.mu.queue) == 0 && s.mu.rest.listener == nil {
		return
	}
	s.mu.running = true
	s.pool.running.Go(s.deliver)
}
