// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"slices"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Release gives up one reference.
func (s *Set) Release(w *Want) { s.let(s.part(w)) }

// Drop is Release for a want that its user kept long enough: the informer does
// not linger. Drop does not call OnEmpty.
func (s *Set) Drop(w *Want) {
	if lease := s.part(w); lease != nil {
		lease.ReleaseNow()
	}
}

// Retire is Release for a cluster that is gone: handlers receive the deletes.
func (s *Set) Retire(w *Want) {
	if lease := s.part(w); lease != nil {
		lease.Retire()
	}
	s.emptied()
}

// part gives up one reference. After the last one it returns the lease, which
// the caller has to release: by then the remaining wants know whether they lack
// anything that it showed.
func (s *Set) part(w *Want) *informerpool.Lease {
	s.mu.Lock()
	lease, debts := s.releaseLocked(w)
	s.mu.Unlock()

	s.settle(debts)

	return lease
}

// releaseLocked gives up one reference. After the last one it returns the
// lease, and the debts to settle before the lease is released. A read that has
// begun finds the want parted and starts again, so that nothing more is shown
// from it.
func (s *Set) releaseLocked(w *Want) (*informerpool.Lease, []*debt) {
	if w.refs--; w.refs > 0 || s.all[w.Selection] != w {
		return nil, nil
	}
	answered := w.lease != nil && s.answers(w)
	delete(s.all, w.Selection)
	w.parted.Store(true)
	s.index.removeLocked(w)
	if answered {
		s.leaveLocked(w)
	}
	debts := s.indebtLocked(w)
	if w.err != nil || w.missing.Load() {
		s.awaitKindsLocked()
	}
	s.config.OnChanged(w.Selection, false)

	return w.lease, debts
}

// leaveLocked reports to Config.OnChanged the wants that a released one has
// answered for, and no other one answers for now. Their informers do not change
// with that.
func (s *Set) leaveLocked(w *Want) {
	if !s.config.Observed() {
		return
	}
	for _, other := range s.Covered(w.Selection) {
		if !slices.ContainsFunc(s.index.of(w.GVK).listing(other.scope), s.answers) {
			s.config.OnChanged(other.Selection, true)
		}
	}
}

// answers reports whether the informer of a want answers reads that set no
// limits, apart from debts.
func (s *Set) answers(w *Want) bool {
	return w.lease.ListedIn(s.config.Epoch()) && w.lease.Trust(s.config.StaleAfter) == nil
}

func (s *Set) let(leases ...*informerpool.Lease) {
	for _, l := range leases {
		if l != nil {
			l.Release()
		}
	}
	s.emptied()
}

// emptied calls OnEmpty if nothing is wanted any more.
func (s *Set) emptied() {
	if !s.Any() {
		s.config.OnEmpty()
	}
}
