// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import "github.com/fleetcache/fleetcache/informerpool"

// release gives one reference back.
func (s *holds) release(h *hold) { s.let(s.part(h)) }

// drop is release for what was kept long enough by its user: the informer does
// not linger, and a cluster that is not engaged is given up with the last hold
// on it.
func (s *holds) drop(h *hold) {
	if lease := s.part(h); lease != nil {
		lease.ReleaseNow()
	}
	s.c.leave()
}

// retire is release where the cluster is gone.
func (s *holds) retire(h *hold) {
	if lease := s.part(h); lease != nil {
		lease.Retire()
	}
	s.c.letGo()
}

// part gives one reference back. After the last it returns the lease, which is
// to be released: the holds that stay know by then whether they lack anything
// that it showed.
func (s *holds) part(h *hold) *informerpool.Lease {
	s.mu.Lock()
	lease, debts := s.releaseLocked(h)
	s.mu.Unlock()
	settle(debts)
	return lease
}

// releaseLocked gives one reference back. After the last it returns the lease,
// and the debts to settle before the lease is released. A read that has begun
// finds the hold parted and begins anew, so that nothing more is shown of it.
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
