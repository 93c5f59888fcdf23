// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	// testPolicy has the default values.
	testPolicy = policy{grace: 30 * time.Second, minInterval: 2 * time.Second, maxInterval: 512 * time.Second}
	epoch      = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func TestDecideRelease(t *testing.T) {
	for _, p := range []policy{testPolicy, {grace: 0}} {
		for _, phase := range []Phase{0, Acquiring, Held, Releasing} {
			for owners := range 3 {
				// The clock may jump either way.
				for _, since := range []time.Duration{-time.Hour, -1, 0, 1, p.grace - 1, p.grace, p.grace + 1,
					time.Hour} {
					r := resourceFacts{phase: phase, owners: owners, freed: epoch}
					now := epoch.Add(since)
					at, ok := p.releaseAt(r)
					idle := phase == Held && owners == 0
					require.Equal(t, idle, ok, "%+v", r)
					if idle {
						require.Equal(t, epoch.Add(p.grace), at)
					}
					require.Equal(t, idle && since >= p.grace, p.mayRelease(r, now), "%+v after %s", r, since)
				}
			}
		}
	}
}

func TestDecideInterval(t *testing.T) {
	for n, want := range []time.Duration{2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512} {
		require.Equal(t, want*time.Second, testPolicy.interval(n))
	}
	const most = time.Duration(1<<63 - 1)
	for _, tc := range []struct {
		p    policy
		n    int
		want time.Duration
	}{
		{policy{minInterval: 3, maxInterval: 10}, 1, 6},
		{policy{minInterval: 3, maxInterval: 10}, 2, 10},
		{policy{minInterval: 3, maxInterval: 10}, 1 << 40, 10},
		{policy{minInterval: 5, maxInterval: 5}, 0, 5},
		{policy{minInterval: 5, maxInterval: 5}, 7, 5},
		{policy{minInterval: 3, maxInterval: most}, 61, 3 << 61},
		{policy{minInterval: 3, maxInterval: most}, 62, most},
		{policy{minInterval: 3, maxInterval: most}, 1000, most},
	} {
		require.Equal(t, tc.want, tc.p.interval(tc.n), "%+v", tc)
	}
}

// TestDecideRandomOwners plays random histories of an owner and compares the
// decisions with the rule: an owner is collected exactly when it was found gone
// twice, the grace apart, without a sign of life since before the first.
func TestDecideRandomOwners(t *testing.T) {
	collected, kept := 0, 0
	for seed := range uint64(5000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		p := policy{
			grace:       time.Duration(rnd.IntN(4)) * 10 * time.Second,
			minInterval: time.Duration(1+rnd.IntN(3)) * time.Second,
		}
		p.maxInterval = p.minInterval << rnd.IntN(10)
		var f ownerFacts
		var firstGone *time.Time
		now := epoch
		for range 40 {
			now = now.Add(time.Duration(rnd.IntN(20)) * time.Second)
			asked, during := f.proofs, rnd.IntN(6)
			// Events between the query and its answer.
			switch during {
			case 0:
				f = f.proven()
				firstGone = nil
			case 1:
				f.pending++
				f = f.proven()
				firstGone = nil
			}
			now = now.Add(time.Duration(rnd.IntN(3)) * time.Second)
			a := []answer{unknown, alive, gone, gone, gone, gone}[rnd.IntN(6)]
			spoke := f.proofs != asked || f.pending > 0
			next, at, collect := p.judge(f, a, asked, now)

			if a == alive {
				firstGone = nil
			}
			if a == gone && !spoke && firstGone == nil {
				firstGone = new(now)
			}
			want := a == gone && !spoke && now.Sub(*firstGone) >= p.grace
			require.Equal(t, want, collect, "seed %d: %+v answer %d asked %d at %s", seed, f, a, asked, now.Sub(epoch))
			if firstGone == nil {
				require.Zero(t, next.goneSince, "seed %d", seed)
			} else {
				require.Equal(t, *firstGone, next.goneSince, "seed %d", seed)
			}
			if collect {
				collected++
				break
			}
			kept++
			wait := at.Sub(now)
			require.Positive(t, wait, "seed %d: no busy loop", seed)
			require.LessOrEqual(t, wait, max(p.maxInterval, p.grace), "seed %d: looked at again", seed)
			require.Equal(t, f.pending, next.pending)
			require.GreaterOrEqual(t, next.proofs, f.proofs)
			f = next
			if f.pending > 0 {
				f.pending--
				f = f.proven()
				firstGone = nil
			}
		}
	}
	require.Greater(t, collected, 1000)
	require.Greater(t, kept, 10000)
}

// TestDecideRandomBooks plays random histories of resources: a resource with an
// owner is never released, and every other one exactly when its grace is over.
func TestDecideRandomBooks(t *testing.T) {
	released, kept := 0, 0
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		now := epoch.Add(time.Duration(rnd.IntN(120)) * time.Second)
		owners := make([][]int, rnd.IntN(6))
		for i := range owners {
			owners[i] = rnd.Perm(10)[:rnd.IntN(5)]
		}
		for key := range 10 {
			r := resourceFacts{
				phase: Phase(1 + rnd.IntN(3)),
				freed: epoch.Add(time.Duration(rnd.IntN(120)) * time.Second),
			}
			for _, uses := range owners {
				if slices.Contains(uses, key) {
					r.owners++
				}
			}
			want := r.owners == 0 && r.phase == Held && now.Sub(r.freed) >= testPolicy.grace
			require.Equal(t, want, testPolicy.mayRelease(r, now), "seed %d: %+v", seed, r)
			if want {
				released++
			} else {
				kept++
			}
		}
	}
	require.Greater(t, released, 1000)
	require.Greater(t, kept, 1000)
}
