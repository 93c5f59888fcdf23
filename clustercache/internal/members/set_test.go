// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package members_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/internal/members"
)

// world records what a set does with its members.
type world struct {
	mu     sync.Mutex // protects the fields below
	wanted map[int]bool
	next   int
	live   map[int]int // by value: the thing that it was acquired for
	inside map[int]int // by thing: the value that entered last, until it left
	broken []string
}

func newWorld(pause func()) (*world, *members.Set[int, int]) {
	w := &world{wanted: map[int]bool{}, live: map[int]int{}, inside: map[int]int{}}
	return w, members.New(members.Config[int, int]{
		Wanted: func(c int) bool {
			defer pause()
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.wanted[c]
		},
		Acquire: func(c int) (int, bool) {
			defer pause()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.next++
			w.live[w.next] = c
			return w.next, true
		},
		Entered: func(c, v int) {
			defer pause()
			pause()
			w.mu.Lock()
			defer w.mu.Unlock()
			if _, has := w.live[v]; !has {
				w.broken = append(w.broken, "entered after it had left")
			}
			w.inside[c] = v
		},
		Left: func(c, v int) {
			defer pause()
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.live[v] != c {
				w.broken = append(w.broken, "ended twice")
			}
			delete(w.live, v)
			if w.inside[c] == v {
				delete(w.inside, c)
			}
		},
	})
}

func (w *world) set(c int, wanted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted[c] = wanted
}

func (w *world) members() (out []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, wanted := range w.wanted {
		if wanted {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) held() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Values(w.live))
}

// TestMembersAreThoseThatAreWantedHoweverLooksInterleave: changes and looks of
// many goroutines, each step of which takes a random time, end in what the last
// changes ask for, with one value for each member.
func TestMembersAreThoseThatAreWantedHoweverLooksInterleave(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that can be repeated
			var mu sync.Mutex
			n := func(below int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(below)
			}
			w, set := newWorld(func() { time.Sleep(time.Duration(n(5)) * time.Millisecond) })
			closes := n(4) == 0
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					for range 10 {
						c := n(3)
						w.set(c, n(2) == 0)
						set.Look(c)
					}
				})
			}
			if closes {
				time.Sleep(time.Duration(n(60)) * time.Millisecond)
				set.Close()
			}
			all.Wait()

			require.Empty(t, w.broken)
			if closes {
				require.Empty(t, w.held(), "seed %d", seed)
				require.Empty(t, w.inside, "seed %d", seed)
				require.Empty(t, set.All())
				return
			}
			require.Equal(t, w.members(), w.held(), "seed %d", seed)
			require.Equal(t, w.members(), slices.Sorted(maps.Keys(set.All())), "seed %d", seed)
			require.Equal(t, set.All(), w.inside, "seed %d", seed)
			for c := range 3 {
				require.False(t, set.Due(c))
			}
		})
	}
}

// TestNothingEntersAClosedSet: what a look acquires after the end is ended.
func TestNothingEntersAClosedSet(t *testing.T) {
	w, set := newWorld(func() {})
	w.set(1, true)
	require.True(t, set.Due(1))
	set.Look(1)
	require.Equal(t, map[int]int{1: 1}, set.All())
	set.Close()
	require.Empty(t, w.held())
	require.False(t, set.Due(1))
	set.Look(1)
	require.Empty(t, w.held())
	require.Empty(t, set.All())
}

// TestWhatCannotBeAcquiredIsNoMember: the look ends instead of trying for ever.
func TestWhatCannotBeAcquiredIsNoMember(t *testing.T) {
	set := members.New(members.Config[int, int]{
		Wanted:  func(int) bool { return true },
		Acquire: func(int) (int, bool) { return 0, false },
	})
	set.Look(1)
	require.Empty(t, set.All())
	require.True(t, set.Due(1))
}
