// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"slices"
	"time"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Release gives up one reference. After the last one, end ends the lease in one
// of the ways that there are.
func (s *Set) Release(w *Want, end func(*informerpool.Lease)) {
	s.mu.Lock()
	lease, left := s.releaseLocked(w)
	s.mu.Unlock()

	for _, other := range left {
		s.Lag.follow(other)
	}
	if lease != nil {
		end(lease)
	}
	s.emptied()
}

// releaseLocked gives up one reference. After the last one it returns the
// lease, and the wants that the want has answered for.
func (s *Set) releaseLocked(w *Want) (lease *informerpool.Lease, left []*Want) {
	if w.refs--; w.refs > 0 || s.all[w.Selection] != w {
		return nil, nil
	}
	answered := w.lease != nil && s.Lag.answers(w)
	delete(s.all, w.Selection)
	s.Index.removeLocked(w)
	if answered {
		left = s.leaveLocked(w)
	}
	if w.err != nil || w.missing.Load() {
		s.awaitKindsLocked()
	}
	s.config.OnChanged(w.Selection, false)

	return w.lease, left
}

// leaveLocked returns the wants that a released one has answered for. It reports
// to Config.OnChanged those that no other one answers for now. Their informers
// do not change with that.
func (s *Set) leaveLocked(w *Want) []*Want {
	if !s.config.Observed() {
		return nil
	}
	left := s.Index.Covered(w.Selection)
	for _, other := range left {
		if !slices.ContainsFunc(s.Index.of(w.GVK).listing(other.scope), s.Lag.answers) {
			s.config.OnChanged(other.Selection, true)
		}
	}
	return left
}

// emptied calls OnEmpty if nothing is wanted any more.
func (s *Set) emptied() {
	if !s.Any() {
		s.config.OnEmpty()
	}
}

// releaseIdle releases the wants that reads have not used lately.
func (s *Set) releaseIdle() {
	now := time.Now()
	var leases []*informerpool.Lease
	var left []*Want
	var next time.Time
	s.mu.Lock()
	for _, w := range s.all {
		if !w.auto {
			continue
		}
		end := w.used.Add(s.config.IdleTimeout)
		if now.Before(end) {
			if next.IsZero() || end.Before(next) {
				next = end
			}
			continue
		}

		w.auto = false
		lease, answered := s.releaseLocked(w)
		leases, left = append(leases, lease), append(left, answered...)
	}

	s.mu.Unlock()

	for _, w := range left {
		s.Lag.follow(w)
	}
	for _, lease := range leases {
		if lease != nil {
			lease.Release()
		}
	}
	if len(leases) > 0 {
		s.emptied()
	}
	s.config.Timers.Set(s.idle, next)
}
