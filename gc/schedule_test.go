// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScheduleAgreesWithAMap(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		tt := newSchedule[int]()
		model := map[int]time.Time{}
		for range 200 {
			key := rnd.IntN(20)
			at := epoch.Add(time.Duration(rnd.IntN(50)) * time.Second)
			switch rnd.IntN(4) {
			case 0, 1:
				tt.set(key, at)
				model[key] = at
			case 2:
				tt.remove(key)
				delete(model, key)
			case 3:
				var earliest *time.Time
				for _, m := range model {
					if earliest == nil || m.Before(*earliest) {
						earliest = &m
					}
				}
				got, ok := tt.pop(at)
				require.Equal(t, earliest != nil && !earliest.After(at), ok)
				if ok {
					require.Equal(t, *earliest, model[got])
					delete(model, got)
				}
			}
			got, ok := tt.at(key)
			want, wantOK := model[key]
			require.Equal(t, wantOK, ok)
			require.Equal(t, want, got)
		}
		require.Equal(t, 2*len(model), tt.size())
		for range len(model) {
			_, ok := tt.pop(epoch.Add(time.Hour))
			require.True(t, ok)
		}
		require.Zero(t, tt.size())
	}
}

func TestScheduleWaitFollowsTheFirstDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newSchedule[string]()
		start := time.Now()
		in := func(d time.Duration) time.Time { return start.Add(d) }
		ctx, cancel := context.WithCancel(t.Context())
		var rings []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			for tt.wait(ctx) {
				rings = append(rings, time.Since(start))
				_, ok := tt.pop(time.Now())
				if !ok {
					t.Error("wait returned though nothing is due")
				}
			}
		}()
		synctest.Wait()
		tt.set("a", in(10*time.Second))
		tt.set("b", in(20*time.Second))
		synctest.Wait()
		tt.set("b", in(5*time.Second)) // becomes first
		tt.set("c", in(7*time.Second))
		tt.set("d", in(30*time.Second))
		synctest.Wait()
		tt.remove("c") // was next after b
		time.Sleep(6 * time.Second)
		tt.set("a", in(15*time.Second)) // the first is postponed
		time.Sleep(10 * time.Second)
		tt.set("e", start) // overdue
		tt.set("f", in(20*time.Second))
		synctest.Wait()
		tt.remove("f") // was first
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{5 * time.Second, 15 * time.Second, 16 * time.Second, 30 * time.Second}, rings)
		tt.set("g", in(time.Hour))
		cancel()
		<-done
	})
}

func TestSchedulePopsInOrder(t *testing.T) {
	tt := newSchedule[int]()
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(1000) {
		tt.set(i, epoch.Add(time.Duration(i)))
	}
	var got []int
	for i, ok := tt.pop(epoch.Add(499)); ok; i, ok = tt.pop(epoch.Add(499)) {
		got = append(got, i)
	}
	require.Len(t, got, 500)
	require.True(t, slices.IsSorted(got))
}
