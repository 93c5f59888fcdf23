// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package loudness

import (
	"maps"
	"sync"
	"time"
)

const (
	// calm is the time after which a cause counts as a new one.
	calm = time.Minute
	// maxEpisode is the time after which it does so although informers never
	// ceased to report it: they may do so for reasons of their own.
	maxEpisode = 10 * time.Minute
	// maxShared bounds the number of causes that are remembered. Those beyond
	// are not known to be shared.
	maxShared = 32
)

// Shared are the causes that the informers of a cluster reported lately. What
// interrupts all of them, such as the restart of a server, has one line then.
// The zero value has none. Shared is safe for concurrent use.
type Shared struct {
	mu sync.Mutex // protects of; no other lock is taken under it
	of map[string]episode
}

// episode is a cause that is reported again and again.
type episode struct{ first, last time.Time }

func (e episode) over(now time.Time) bool {
	return now.Sub(e.last) >= calm || now.Sub(e.first) >= maxEpisode
}

// First reports whether no informer has reported a cause lately, and takes note
// of it. Causes that differ in numbers alone are the same one.
func (s *Shared) First(cause string, now time.Time) bool {
	cause = kind(cause)
	s.mu.Lock()
	defer s.mu.Unlock()

	if e, known := s.of[cause]; known && !e.over(now) {
		e.last = now
		s.of[cause] = e
		return false
	}
	maps.DeleteFunc(s.of, func(_ string, e episode) bool { return e.over(now) })
	if s.of == nil {
		s.of = map[string]episode{}
	}
	if len(s.of) < maxShared {
		s.of[cause] = episode{first: now, last: now}
	}

	return true
}
