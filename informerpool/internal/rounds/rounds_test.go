// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rounds_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fleetcache/fleetcache/informerpool/internal/rounds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const interval = 3 * time.Minute

// visited records when each member was visited.
type visited struct {
	mu   sync.Mutex
	at   map[int][]time.Time
	hang chan struct{} // blocks the visits of negative members
}

func (v *visited) visit(member int) (again bool) {
	v.mu.Lock()
	v.at[member] = append(v.at[member], time.Now())
	v.mu.Unlock()

	if member < 0 {
		<-v.hang
	}
	return false
}

func (v *visited) last(member int) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if of := v.at[member]; len(of) > 0 {
		return of[len(of)-1]
	}
	return time.Time{}
}

func (v *visited) count(member int) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.at[member])
}

// run runs a test with rounds, which are stopped in the end.
func run(t *testing.T, test func(t *testing.T, v *visited, r *rounds.Rounds[int])) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		v := &visited{at: map[int][]time.Time{}, hang: make(chan struct{})}
		r := rounds.New(ctx, interval, running.Go, v.visit)
		test(t, v, r)
		r.Stop()
		cancel()
		close(v.hang)
		running.Wait()
		time.Sleep(2 * interval) // nothing begins after Stop: a timer would reuse the WaitGroup
	})
}

// TestEachMemberIsVisitedOncePerInterval: members that join at once are visited
// at different times.
func TestEachMemberIsVisitedOncePerInterval(t *testing.T) {
	run(t, func(t *testing.T, v *visited, r *rounds.Rounds[int]) {
		began, members := time.Now(), make([]rounds.Member[int], 100)
		for i := range members {
			members[i].Value = i
			r.Join(&members[i])
		}
		busiest := 0
		for range 720 { // an hour
			time.Sleep(5 * time.Second)
			synctest.Wait()
			now := 0
			for i := range members {
				last := v.last(i)
				if last.IsZero() {
					last = began
				}
				require.Less(t, time.Since(last), interval)
				if time.Since(last) < 5*time.Second {
					now++
				}
			}
			busiest = max(busiest, now)
		}
		require.Less(t, busiest, 40, "the visits are not spread over the interval")
		for i := range members {
			require.LessOrEqual(t, v.count(i), int(time.Hour/(interval*3/4))+1)
		}
	})
}

// TestHazardVisitsHang: other members are visited in time.
func TestHazardVisitsHang(t *testing.T) {
	run(t, func(t *testing.T, v *visited, r *rounds.Rounds[int]) {
		members := make([]rounds.Member[int], 100)
		for i := range members {
			members[i].Value = i - 50
			r.Join(&members[i])
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i := range 50 {
			require.GreaterOrEqual(t, v.count(i), 20)
			require.Equal(t, 1, v.count(-1-i), "a member is not visited twice at a time")
		}
	})
}

// TestMemberThatLeftIsNotVisited, nor one that leaves during a visit.
func TestMemberThatLeftIsNotVisited(t *testing.T) {
	run(t, func(t *testing.T, v *visited, r *rounds.Rounds[int]) {
		left, during := &rounds.Member[int]{Value: 1}, &rounds.Member[int]{Value: -1}
		r.Join(left)
		r.Leave(left)
		r.Join(during)
		time.Sleep(interval)
		synctest.Wait()
		require.Equal(t, 1, v.count(-1))
		r.Leave(during)
		v.hang <- struct{}{}
		time.Sleep(2 * interval)
		synctest.Wait()
		require.Zero(t, v.count(1))
		require.Equal(t, 1, v.count(-1))
	})
}

// TestVisitWithoutAResultIsRepeatedSooner than after a whole interval.
func TestVisitWithoutAResultIsRepeatedSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		var count atomic.Int32
		r := rounds.New(ctx, interval, running.Go, func(int) bool { count.Add(1); return true })
		r.Join(&rounds.Member[int]{})
		time.Sleep(interval)
		synctest.Wait()
		before := count.Load()
		time.Sleep(interval)
		synctest.Wait()
		require.GreaterOrEqual(t, count.Load()-before, int32(4))
		require.LessOrEqual(t, count.Load()-before, int32(8))
		r.Stop()
		cancel()
		running.Wait()
	})
}
