// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"
)

// settlement says whether it is settled which clusters selectors select: once
// the resolver has listed the clusters, and has answered for each of them.
type settlement struct {
	mu        sync.Mutex // protects the fields below; nothing else is locked under it
	listed    bool
	undecided map[*cluster]struct{}
	settled   chan struct{} // closed while it is
}

func newSettlement(listed bool) *settlement {
	s := &settlement{listed: listed, undecided: map[*cluster]struct{}{}, settled: make(chan struct{})}
	if listed {
		close(s.settled)
	}
	return s
}

// add is called with each new cluster, and before it is resolved.
func (s *settlement) add(c *cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.listed && len(s.undecided) == 0 {
		s.settled = make(chan struct{})
	}
	s.undecided[c] = struct{}{}
}

// awaits reports whether the resolver has yet to answer for a cluster.
func (s *settlement) awaits(c *cluster) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, undecided := s.undecided[c]
	return undecided
}

// decide records that the resolver has answered for a cluster. It reports
// whether it is settled by that.
func (s *settlement) decide(c *cluster) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	_, was := s.undecided[c]
	delete(s.undecided, c)
	return was && s.settleLocked()
}

// list records that the resolver has listed the clusters, and all of them were
// added. It reports whether it is settled by that.
func (s *settlement) list() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	first := !s.listed
	s.listed = true
	return first && s.settleLocked()
}

func (s *settlement) settleLocked() bool {
	if !s.listed || len(s.undecided) > 0 {
		return false
	}
	close(s.settled)
	return true
}

// done returns a channel that is closed while it is settled.
func (s *settlement) done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}
