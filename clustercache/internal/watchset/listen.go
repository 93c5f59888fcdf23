// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"slices"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Listen connects a subscription to the want's informer: now, or once there is
// one.
func (s *Set) Listen(w *Want, sub *informerpool.Subscription) {
	s.mu.Lock()
	lease := w.lease
	if lease == nil {
		w.waiting = append(w.waiting, sub)
	}
	s.mu.Unlock()

	if lease != nil {
		_ = sub.Add(lease) // it fails only if one of the two has ended meanwhile
	}
}

// Unlisten forgets a subscription that waits for the want's informer.
func (s *Set) Unlisten(w *Want, sub *informerpool.Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if i := slices.Index(w.waiting, sub); i >= 0 {
		w.waiting = slices.Delete(slices.Clone(w.waiting), i, i+1)
	}
}
