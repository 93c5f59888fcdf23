// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/internal/tenure"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var east, west = client.ObjectKey{Name: "east"}, client.ObjectKey{Name: "west"}

// changes collects what Changed is called with.
type changes struct {
	mu   sync.Mutex // protects the fields below
	all  []map[int]bool
	left map[int]bool // slots whose caches are not filled
}

func (c *changes) leave(slots ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = map[int]bool{}
	for _, n := range slots {
		c.left[n] = true
	}
}

func (c *changes) unfilled(slots map[int]bool) map[int]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := maps.Clone(slots)
	maps.DeleteFunc(out, func(n int, _ bool) bool { return !c.left[n] })
	return out
}

func (c *changes) add(slots map[int]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, maps.Clone(slots))
}

// told returns all calls since the last forget.
func (c *changes) told() []map[int]bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func (c *changes) forget() {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = nil
}

// run runs a Tenure until the test ends.
func run(t *testing.T) (*tenure.Tenure, *clustercachetest.Sharding, *changes) {
	t.Helper()
	s, c := clustercachetest.NewSharding(), &changes{}
	return follow(t, s, c), s, c
}

// follow runs a Tenure of a sharding until the test ends.
func follow(t *testing.T, s ownership.Sharding, c *changes) *tenure.Tenure {
	t.Helper()
	timers := timetable.NewTimers()
	tn := tenure.New(tenure.Config{
		Sharding: s,
		Timers:   timers,
		Changed:  c.add,
		Unfilled: c.unfilled,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { timers.Run(ctx); ended <- struct{}{} }()
	go func() { tn.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() {
		cancel()
		<-ended
		<-ended
	})
	synctest.Wait()
	return tn
}

// drained reports whether a drain has ended.
func drained(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestWorkIsForOwnersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		refused := func() {
			t.Helper()
			_, _, err := tn.Begin(t.Context(), east)
			require.ErrorIs(t, err, ownership.ErrNotOwner)
			var of *ownership.NotOwnerError
			require.ErrorAs(t, err, &of)
			require.Equal(t, east, of.Cluster)
			require.False(t, tn.Owns(east))
		}
		refused()
		s.StandBy(east)
		refused()
		require.True(t, tn.Serves(east))
		s.Gain(east)
		require.True(t, tn.Owns(east))
		require.False(t, tn.Owns(west))
		_, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		s.Drain(east, time.Minute)
		refused()
		require.True(t, tn.Serves(east))
		done()
		s.Lose(east)
		refused()
		s.Cool(east)
		require.False(t, tn.Serves(east))
		require.Equal(t, tenure.Moves{Gained: 1, Lost: 1}, tn.Moves())
	})
}

func TestDrainWaitsForTheWorkOfItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		s.Gain(east)
		s.Gain(west)
		ctx, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		_, wrote, err := tn.Permit(t.Context(), east)
		require.NoError(t, err)
		_, other, err := tn.Begin(t.Context(), west)
		require.NoError(t, err)
		defer other()

		over := s.Drain(east, 8*time.Second)
		require.False(t, drained(over))
		time.Sleep(time.Second)
		done()
		done()
		require.False(t, drained(over), "a write is under way")
		wrote()
		require.True(t, drained(over))
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)

		require.True(t, drained(s.Drain(east, time.Second)), "nothing is under way")
	})
}

// TestDrainEndsWorkThatDoesNotEnd leaves it a quarter of the time.
func TestDrainEndsWorkThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		s.Gain(east)
		ctx, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		begin := time.Now()
		over := s.Drain(east, 8*time.Second)
		<-ctx.Done()
		require.Equal(t, 6*time.Second, time.Since(begin))
		require.ErrorIs(t, context.Cause(ctx), ownership.ErrNotOwner)
		require.False(t, drained(over))
		done()
		require.True(t, drained(over))

		// A drain that is over does not end the work of the next ownership.
		s.Lose(east)
		s.Gain(east)
		_, done, err = tn.Begin(t.Context(), east)
		require.NoError(t, err)
		s.Drain(east, 8*time.Second)
		s.Lose(east)
		done()
		s.Gain(east)
		ctx, done, err = tn.Begin(t.Context(), east)
		require.NoError(t, err)
		defer done()
		time.Sleep(time.Minute)
		require.NoError(t, ctx.Err())
	})
}

func TestLossEndsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		s.Gain(east)
		s.Gain(west)
		ctx, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		other, otherDone, err := tn.Begin(t.Context(), west)
		require.NoError(t, err)
		defer otherDone()
		s.Lose(east)
		require.ErrorIs(t, context.Cause(ctx), ownership.ErrNotOwner)
		require.NoError(t, other.Err())

		// Work that goes on all the same belongs to the next drain, too.
		s.Cool(east)
		s.Gain(east)
		over := s.Drain(east, time.Minute)
		require.False(t, drained(over))
		done()
		require.True(t, drained(over))
	})
}

func TestEveryGainIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, c := run(t)
		s.StandBy(east)
		synctest.Wait()
		s.Gain(east)
		synctest.Wait()
		s.Lose(east)
		synctest.Wait()
		n := s.Slot(east)
		require.Equal(t, []map[int]bool{{n: false}, {n: true}, {n: false}}, c.told())
	})
}

// TestChangesThatAreUndoneAreMerged has Changed take its time.
func TestChangesThatAreUndoneAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, timers := clustercachetest.NewSharding(), timetable.NewTimers()
		var all []map[int]bool
		tn := tenure.New(tenure.Config{
			Sharding: s,
			Timers:   timers,
			Changed: func(slots map[int]bool) {
				all = append(all, maps.Clone(slots))
				time.Sleep(time.Second)
			},
			Unfilled: func(map[int]bool) map[int]bool { return nil },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); tn.Run(ctx) }()
		synctest.Wait()
		s.StandBy(west) // a slot that is not warm would be so first, in an event of its own
		time.Sleep(2 * time.Second)
		s.StandBy(east)
		time.Sleep(2 * time.Second)
		m, n := s.Slot(west), s.Slot(east)
		s.Gain(west)
		synctest.Wait()
		s.Gain(east)
		s.Lose(east)
		time.Sleep(2 * time.Second)
		s.Gain(east)
		synctest.Wait()
		s.Lose(east)
		s.Gain(east)
		s.StandBy(east)
		time.Sleep(3 * time.Second)
		cancel()
		<-ended
		require.Equal(t, []map[int]bool{{m: false}, {n: false}, {m: true}, {n: false}, {n: true}, {n: true}}, all)
	})
}

// TestFilledCachesAreReported: the owner waits for it before it hands over.
func TestFilledCachesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, c := run(t)
		c.leave(s.Slot(east))
		warm := s.StandBy(east)
		require.True(t, drained(s.StandBy(west)))
		time.Sleep(time.Minute)
		require.False(t, drained(warm))
		c.leave()
		time.Sleep(10 * time.Second)
		require.True(t, drained(warm))

		// Nothing is reported of a slot that is not to be warm any more.
		c.leave(s.Slot(east))
		warm = s.StandBy(east)
		s.Cool(east)
		c.leave()
		time.Sleep(time.Minute)
		require.False(t, drained(warm))
	})
}

func TestClosedTenureOwnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		s.Gain(east)
		ctx, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		_, wrote, err := tn.Permit(t.Context(), east)
		require.NoError(t, err)
		s.Drain(east, time.Minute)
		closed := errors.New("closed")
		tn.Close(closed)
		require.ErrorIs(t, context.Cause(ctx), closed)
		require.False(t, tn.Owns(east))
		require.True(t, drained(s.Drain(west, time.Minute)))
		done()
		wrote()
		s.Lose(east)
		s.Gain(east)
		require.False(t, tn.Owns(east))
	})
}

// TestDrainAtTheEndWaitsForWork has a process that is asked to stop: the Tenure
// is closed, and its Run ends, before the sharding drains the slots.
func TestDrainAtTheEndWaitsForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, timers := clustercachetest.NewSharding(), &changes{}, timetable.NewTimers()
		tn := tenure.New(tenure.Config{
			Sharding: s,
			Timers:   timers,
			Changed:  c.add,
			Unfilled: c.unfilled,
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		go func() { tn.Run(ctx); close(ended) }()
		synctest.Wait()
		s.Gain(east)
		s.Gain(west)
		work, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		_, wrote, err := tn.Permit(t.Context(), east)
		require.NoError(t, err)

		closed := errors.New("closed")
		cancel(closed)
		<-ended
		require.ErrorIs(t, context.Cause(work), closed)
		require.False(t, tn.Owns(east))
		require.True(t, drained(s.Drain(west, time.Minute)))
		over := s.Drain(east, time.Minute)
		require.False(t, drained(over), "a reconcile is under way")
		done()
		require.False(t, drained(over), "a write is under way")
		wrote()
		require.True(t, drained(over))

		s.Lose(east)
		s.Gain(east)
		require.False(t, tn.Owns(east))
		require.True(t, drained(s.Drain(east, time.Minute)))
	})
}

func TestOnlyReplicaOwnsEverything(t *testing.T) {
	var tn *tenure.Tenure
	require.Nil(t, tenure.New(tenure.Config{}))
	require.True(t, tn.Owns(east))
	require.True(t, tn.Serves(east))
	require.Nil(t, tn.State(east))
	ctx, done, err := tn.Begin(t.Context(), east)
	require.NoError(t, err)
	require.Equal(t, t.Context(), ctx)
	done()
	require.NoError(t, tn.Write(t.Context(), east, func(ctx context.Context) error { return ctx.Err() }))
	tn.SetClusters(nil)
	tn.Close(nil)
}

// TestLostWriteIsAlsoItsOwnError keeps what the server said.
func TestLostWriteIsAlsoItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		s.Gain(east)
		own := errors.New("own")
		err := tn.Write(t.Context(), east, func(ctx context.Context) error {
			s.Lose(east)
			<-ctx.Done()
			return own
		})
		require.ErrorIs(t, err, own)
		require.ErrorIs(t, err, ownership.ErrNotOwner)
		s.Gain(east)
		require.Equal(t, own, tn.Write(t.Context(), east, func(context.Context) error { return own }))
		require.NoError(t, tn.Write(t.Context(), east, func(context.Context) error {
			s.Lose(east)
			return nil
		}), "it succeeded")
	})
}

func TestStateOfAClusterIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		n := s.Slot(east)
		var states []ownership.State
		note := func() {
			states = append(states, *tn.State(east))
			time.Sleep(time.Second)
		}
		begin := time.Now()
		note()
		s.StandBy(east)
		note()
		s.Gain(east)
		note()
		s.Drain(east, time.Minute)
		note()
		s.Lose(east)
		note()
		at := func(i int) time.Time { return begin.Add(time.Duration(i) * time.Second) }
		require.True(t, slices.Equal([]ownership.State{
			{Slot: n},
			{Slot: n, StandsBy: true, Since: at(1)},
			{Slot: n, Owned: true, Token: 1, Since: at(2)},
			{Slot: n, Draining: true, Token: 1, Since: at(3)},
			{Slot: n, StandsBy: true, Since: at(4)},
		}, states), states)
	})
}
