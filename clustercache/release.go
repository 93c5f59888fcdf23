// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "github.com/fleetcache/fleetcache/informerpool"

// release gives up one reference.
func (s *holds) release(h *hold) { s.let(s.part(h)) }

// drop is release for a hold that its user kept long enough: the informer does
// not linger, and a cluster that is not engaged is forgotten with its last
// hold.
func (s *holds) drop(h *hold) {
	if lease := s.part(h); lease != nil {
		lease.ReleaseNow()
	}
	s.c.leave()
}

// retire is release for a cluster that is gone.
func (s *holds) retire(h *hold) {
	if lease := s.part(h); lease != nil {
		lease.Retire()
	}
	s.c.letGo()
}

// part gives up one reference. After the last one it returns the lease, which
// the caller has to release: by then the remaining holds know whether they lack
// anything that it showed.
func (s *holds) part(h *hold) *informerpool.Lease {
	s.mu.Lock()
	lease, debts := s.releaseLocked(h)
	s.mu.Unlock()

	settle(debts)
	return lease
}

// releaseLocked gives up one reference. After the last one it returns the
// lease, and the debts to settle before the lease is released. A read that has
// begun finds the hold parted and starts again, so that nothing more is shown
// from it.
func (s *holds) releaseLocked(h *hold) (*informerpool.Lease, []*debt) {
	if h.refs--; h.refs > 0 || s.all[h.id] != h {
		return nil, nil
	}
	delete(s.all, h.id)
	h.parted.Store(true)
	debts := s.indebtLocked(h)
	s.rebuildLocked()

	return h.lease, debts
}

func (s *holds) let(leases ...*informerpool.Lease) {
	for _, l := range leases {
		if l != nil {
			l.Release()
		}
	}
	s.c.letGo()
}
