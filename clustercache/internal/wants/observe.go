// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"time"

	"github.com/fleetcache/fleetcache/informerpool"
)

// InformerChanged reports the change of an informer to Config.OnChanged, for
// each want that it serves. reads reports whether reads may be answered
// differently.
func (s *Set) InformerChanged(key informerpool.Key, reads bool) {
	if !s.config.Observed() {
		return
	}
	for served := range s.config.Pool.Serves(key) {
		for _, w := range s.Index.Keyed(served) {
			flipped := s.observeTrust(w)
			s.config.OnChanged(w.Selection, reads || flipped)
		}
	}
}

// Observe begins to observe what time alone changes: that an informer whose
// server shows no sign of life is not trusted any more. It continues for as
// long as Config.Observed reports true.
func (s *Set) Observe() {
	if !s.config.Observed() {
		return
	}
	for _, w := range s.Index.Readable() {
		if s.observeTrust(w) {
			s.config.OnChanged(w.Selection, true)
		}
	}
}

// observeTrust looks whether a want's informer is trusted, and again when that
// may end. It reports whether it has ended, or has returned, since it last
// looked.
func (s *Set) observeTrust(w *Want) (flipped bool) {
	w.trust.Lock() // what a look found must not replace what a later one has found
	defer w.trust.Unlock()

	ends := w.lease.TrustEnds(s.config.StaleAfter)
	expired := !ends.IsZero() && time.Now().After(ends)
	if !ends.IsZero() && !expired {
		s.config.Timers.SetSooner(s.trust, ends.Add(time.Millisecond))
	}
	flipped = w.trust.expired != expired
	w.trust.expired = expired
	return flipped
}
