// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

// ReplayHandler is a [Handler] that is notified where the initial objects of a
// lease end and its changes begin.
type ReplayHandler interface {
	Handler
	// Replayed is called once for each lease that was added, after Handle has
	// returned for the last initial object; calls of both never overlap. It is
	// not called for a lease that was removed before.
	Replayed(key Key)
}

// endReplayLocked notifies the handler, and waiting goroutines, that a lease's
// replay is over. It releases the lock meanwhile.
func (s *Subscription) endReplayLocked(t *tap) {
	if t.replayed {
		return
	}
	defer func() {
		if !t.replayed { // the handler may have removed the lease
			t.replayed = true
			close(t.changed)
		}
	}()
	if h, ok := s.handler.(ReplayHandler); ok {
		s.outsideLocked(t, func() { s.callReplayed(h, t) })
	}
}

func (s *Subscription) callReplayed(h ReplayHandler, t *tap) {
	s.guard("Handler", t.lease.Key(), "Replayed", func() { h.Replayed(t.lease.Key()) })
}

// doneLocked records that the handler has returned.
func (s *Subscription) doneLocked() {
	s.current = nil
	if s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}
