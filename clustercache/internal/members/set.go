// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"maps"
	"sync"
)

// Config has what a Set calls, without holding its lock.
type Config[C comparable, V any] struct {
	// Wanted reports whether c is a member. Every change of its result must be
	// followed by a call of Look.
	Wanted func(c C) bool
	// Acquire makes what is kept of a new member. It returns false if that
	// cannot be made, and Look will be called again if it can.
	Acquire func(c C) (V, bool)
	// Entered is called once v can be found in the set. It must not close the
	// set.
	Entered func(c C, v V)
	// Left ends v, which can no longer be found in the set. If Entered was
	// called with v, it has returned by then. Left is also called for a surplus
	// one, which could never be found, while c may have another.
	Left func(c C, v V)
}

// Set has a value for each member. Make one with [New]. All methods may be
// called from many goroutines.
type Set[C comparable, V any] struct {
	config Config[C, V]

	mu struct {
		sync.Mutex // nothing else is locked under it

		all      map[C]V
		entering map[C]struct{} // Entered is being called: c stays until it returns
		entered  *sync.Cond     // nothing is entering any more
		closed   bool
	}
}

// New returns an empty set.
func New[C comparable, V any](config Config[C, V]) *Set[C, V] {
	s := &Set[C, V]{config: config}
	s.mu.all, s.mu.entering = map[C]V{}, map[C]struct{}{}
	s.mu.entered = sync.NewCond(&s.mu.Mutex)
	return s
}

// All returns all members, as a copy.
func (s *Set[C, V]) All() map[C]V {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.all)
}

// Due reports whether Look would change anything.
func (s *Set[C, V]) Due(c C) bool {
	wanted := s.config.Wanted(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.mu.all[c]
	return has != wanted && !s.mu.closed
}

// Look makes c a member, or ends that, as Wanted returns.
func (s *Set[C, V]) Look(c C) {
	for {
		wanted := s.config.Wanted(c)
		s.mu.Lock()
		v, has := s.mu.all[c]
		_, entering := s.mu.entering[c] // the look that called Entered looks again
		done := s.mu.closed || has == wanted || entering
		if has && !done {
			delete(s.mu.all, c)
		}
		s.mu.Unlock()

		switch {
		case done:
			return
		case has:
			s.config.Left(c, v)
		case !s.enter(c):
			return
		}
	}
}

// enter makes c a member, unless it is one by now. It returns false if that is
// not possible.
func (s *Set[C, V]) enter(c C) bool {
	v, ok := s.config.Acquire(c)
	if !ok {
		return false
	}
	s.mu.Lock()
	_, has := s.mu.all[c]
	surplus := has || s.mu.closed
	if !surplus {
		s.mu.all[c], s.mu.entering[c] = v, struct{}{}
	}
	s.mu.Unlock()

	if surplus {
		s.config.Left(c, v)
		return true
	}
	s.config.Entered(c, v)
	s.mu.Lock()
	if delete(s.mu.entering, c); len(s.mu.entering) == 0 {
		s.mu.entered.Broadcast()
	}
	s.mu.Unlock()

	return true
}

// Close ends all members, for good. It waits for calls of Entered. A call of
// Look that is under way ends by itself what it acquires from now on.
func (s *Set[C, V]) Close() {
	s.mu.Lock()
	s.mu.closed = true
	for len(s.mu.entering) > 0 {
		s.mu.entered.Wait()
	}
	all := s.mu.all
	s.mu.all = map[C]V{}
	s.mu.Unlock()

	for c, v := range all {
		s.config.Left(c, v)
	}
}
