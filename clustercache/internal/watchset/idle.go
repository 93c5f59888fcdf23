// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"time"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Keep ensures that reads in mode AutoWatch have a reference to a selection,
// and records that it is in use. It returns nil if the cluster is being
// forgotten.
func (s *Set) Keep(id Selection) *Want {
	w := s.add(id, true)
	if w != nil {
		s.config.Timers.SetSooner(s.idle, time.Now().Add(s.config.IdleTimeout)) // another one may be due earlier
	}
	return w
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
		s.follow(w)
	}
	if len(leases) > 0 {
		s.let(leases...)
	}
	s.config.Timers.Set(s.idle, next)
}
