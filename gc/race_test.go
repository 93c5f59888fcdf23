// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

// referee counts the real uses of each resource: from after Declare returned
// until before the owner stops using it.
type referee struct {
	t      *testing.T
	live   [4]atomic.Bool
	handed [4]atomic.Int32
	gone   [4]atomic.Bool
}

func (f *referee) acquire(_ context.Context, r int) error {
	runtime.Gosched()
	if f.live[r].Swap(true) {
		f.t.Errorf("resource %d acquired twice", r)
	}
	return nil
}

func (f *referee) release(r int) {
	if n := f.handed[r].Load(); n > 0 {
		f.t.Errorf("resource %d released, but %d use it", r, n)
	}
	if !f.live[r].Swap(false) {
		f.t.Errorf("resource %d released twice", r)
	}
	runtime.Gosched()
}

func (f *referee) inUse(_ context.Context, owner int) (bool, error) {
	gone := f.gone[owner].Load()
	// Between the read and the answer, the owner may come back.
	runtime.Gosched()
	return !gone, nil
}

// use plays one life cycle of an owner.
func (f *referee) use(c *gc.Collector[int, int], rnd *rand.Rand, owner int) {
	f.gone[owner].Store(false)
	var uses []int
	for range 1 + rnd.IntN(3) {
		next := rnd.Perm(len(f.live))[:1+rnd.IntN(3)]
		for _, r := range uses {
			if !slices.Contains(next, r) {
				f.handed[r].Add(-1)
			}
		}
		if _, err := c.Declare(f.t.Context(), owner, next...); err != nil {
			f.t.Errorf("declare: %v", err)
		}
		for _, r := range next {
			if !slices.Contains(uses, r) {
				f.handed[r].Add(1)
			}
		}
		uses = next
		for range rnd.IntN(4) {
			for _, r := range uses {
				if !f.live[r].Load() {
					f.t.Errorf("resource %d is handed out but not live", r)
				}
			}
			runtime.Gosched()
		}
	}
	for _, r := range uses {
		f.handed[r].Add(-1)
	}
	if rnd.IntN(2) == 0 {
		c.Drop(owner)
	} else {
		f.gone[owner].Store(true)
	}
}

// TestHandedOutIsLiveThroughARaceOfDeclareDropAndSweep plays a thousand rounds
// of four owners against two sweepers and Run, without grace, so that a
// resource may be released at every moment.
func TestHandedOutIsLiveThroughARaceOfDeclareDropAndSweep(t *testing.T) {
	f := &referee{t: t}
	c, err := gc.New(gc.Options[int, int]{
		Acquire: f.acquire, Release: f.release, InUse: f.inUse, Grace: -1, Rate: 1e9, MinInterval: time.Microsecond,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := async(func() (any, error) { return nil, c.Run(ctx) })
	for round := range 1000 {
		var owners, sweepers sync.WaitGroup
		var over atomic.Bool
		for i := range 4 {
			rnd := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			owners.Go(func() { f.use(c, rnd, i) })
		}
		for range 2 {
			sweepers.Go(func() {
				for !over.Load() {
					if _, err := c.Sweep(t.Context()); err != nil {
						t.Errorf("sweep: %v", err)
					}
				}
			})
		}
		owners.Wait()
		over.Store(true)
		sweepers.Wait()

		// A look that began while an owner existed is a sign of life, whenever
		// it answers, so one sweep after an owner disappeared silently may not
		// suffice. Run may also be collecting the last owner, so one more sweep
		// releases what that frees.
		for range 10 {
			_, err = c.Sweep(t.Context())
			require.NoError(t, err)
			if len(c.Snapshot().Owners) == 0 {
				break
			}
		}
		_, err = c.Sweep(t.Context())
		require.NoError(t, err)
		for r := range f.live {
			require.False(t, f.live[r].Load(), "round %d: resource %d is unused and must be gone", round, r)
		}
		require.Empty(t, c.Snapshot().Owners)
		if t.Failed() {
			t.Fatalf("failed in round %d", round)
		}
	}
	cancel()
	_, err = ended()
	require.NoError(t, err)
	require.Zero(t, c.Size())
}

// TestUnusedIsGoneWithinGraceAndOneSweep plays random owners in virtual time,
// and compares each release with the last use recorded in a plain map.
func TestUnusedIsGoneWithinGraceAndOneSweep(t *testing.T) {
	for seed := range uint64(20) {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("seed %d running %t", seed, running), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { playGrace(t, seed, running) })
			})
		}
	}
}

func playGrace(t *testing.T, seed uint64, running bool) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, noLiveness)
	if running {
		defer w.run()()
	}
	names := []string{"a", "b", "c", "d"}
	model := map[string]map[string]bool{}
	lastUse := map[string]time.Time{}
	for range 300 {
		// Before, at and after the end of the grace.
		time.Sleep([]time.Duration{0, time.Second, grace / 2, grace - 1, grace, grace + 1}[rnd.IntN(6)])
		synctest.Wait()
		if !running {
			w.sweep()
		}
		var want []string
		for _, r := range names {
			used := slices.ContainsFunc([]string{"o", "p", "q"}, func(o string) bool { return model[o][r] })
			if used {
				lastUse[r] = time.Now()
			}
			if last, ok := lastUse[r]; ok && (used || time.Since(last) < grace) {
				want = append(want, r)
			}
		}
		require.Equal(t, want, w.live())

		owner := []string{"o", "p", "q"}[rnd.IntN(3)]
		uses := names[:0:0]
		for _, r := range names {
			if rnd.IntN(3) == 0 {
				uses = append(uses, r)
			}
		}
		for r := range model[owner] {
			lastUse[r] = time.Now()
		}
		model[owner] = map[string]bool{}
		if rnd.IntN(4) == 0 {
			w.Drop(owner)
			continue
		}
		w.declare(owner, uses...)
		for _, r := range uses {
			model[owner][r] = true
			lastUse[r] = time.Now()
		}
	}
}
