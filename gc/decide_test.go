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
				for _, since := range []time.Duration{-time.Hour, -1, 0, 1, p.grace - 1, p.grace, p.grace + 1, time.Hour} {
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

func TestDecideOwner(t *testing.T) {
	now := epoch.Add(time.Hour)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	in := func(d time.Duration) time.Time { return now.Add(d) }
	const s = time.Second
	cases := map[string]struct {
		facts   ownerFacts
		answer  answer
		asked   uint64
		want    ownerFacts
		at      time.Time
		collect bool
	}{
		"in use": {ownerFacts{proofs: 3}, alive, 3, ownerFacts{proofs: 4, used: 1}, in(4 * s), false},
		"in use, for the third time": {ownerFacts{used: 2}, alive, 0,
			ownerFacts{proofs: 1, used: 3}, in(16 * s), false},
		"in use, after failures and suspicion": {ownerFacts{failed: 5, goneSince: ago(60 * s)}, alive, 0,
			ownerFacts{proofs: 1, used: 1}, in(4 * s), false},
		"in use, and overtaken": {ownerFacts{proofs: 9, pending: 1}, alive, 2,
			ownerFacts{proofs: 10, pending: 1, used: 1}, in(4 * s), false},
		"unknown":       {ownerFacts{used: 7}, unknown, 0, ownerFacts{used: 7, failed: 1}, in(2 * s), false},
		"unknown again": {ownerFacts{used: 7, failed: 2}, unknown, 0, ownerFacts{used: 7, failed: 3}, in(8 * s), false},
		"unknown, and suspected": {ownerFacts{goneSince: ago(90 * s)}, unknown, 0,
			ownerFacts{goneSince: ago(90 * s), failed: 1}, in(2 * s), false},
		"unknown, and overtaken": {ownerFacts{proofs: 9}, unknown, 2, ownerFacts{proofs: 9, failed: 1}, in(2 * s), false},
		"gone":                   {ownerFacts{used: 7, failed: 2}, gone, 0, ownerFacts{goneSince: now}, in(30 * s), false},
		"gone, too early again": {ownerFacts{goneSince: ago(29 * s)}, gone, 0,
			ownerFacts{goneSince: ago(29 * s)}, in(s), false},
		"gone, for the grace": {ownerFacts{goneSince: ago(30 * s)}, gone, 0,
			ownerFacts{goneSince: ago(30 * s)}, time.Time{}, true},
		"gone, from the future": {ownerFacts{goneSince: in(time.Hour)}, gone, 0,
			ownerFacts{goneSince: in(time.Hour)}, in(time.Hour + 30*s), false},
		"gone, but it spoke": {ownerFacts{proofs: 3, used: 7, failed: 2, goneSince: ago(60 * s)}, gone, 2,
			ownerFacts{proofs: 3, goneSince: ago(60 * s)}, in(2 * s), false},
		"gone, but it is speaking": {ownerFacts{pending: 1, goneSince: ago(60 * s)}, gone, 0,
			ownerFacts{pending: 1, goneSince: ago(60 * s)}, in(2 * s), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, at, collect := testPolicy.judge(tc.facts, tc.answer, tc.asked, now)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.at, at)
			require.Equal(t, tc.collect, collect)
		})
	}
	_, _, collect := policy{}.judge(ownerFacts{}, gone, 0, now)
	require.True(t, collect, "without grace one look decides")
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
