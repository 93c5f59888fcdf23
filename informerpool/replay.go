// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

// ReplayHandler is a [Handler] that wants to know where the objects that were
// there end and the changes begin.
type ReplayHandler interface {
	Handler
	// Replayed is called once for each lease that was added, after Handle was
	// called with the last object that was there, and in turn with it. It is
	// not called of a lease that was removed before.
	Replayed(key Key)
}

// endReplayLocked tells the handler, and who waits, that a lease's replay is
// over. The lock is given up meanwhile.
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

// doneLocked notes that the handler has returned.
func (s *Subscription) doneLocked() {
	s.current = nil
	if s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}
