// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
)

// awaitEnd waits until work has ended.
func awaitEnd(work context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-work.Done():
	case <-time.After(time.Hour):
		require.Fail(t, "it does not end")
	}
}

// TestHazardLeaseEndsByTheClockWithoutAnEvent: whoever delivers events is late,
// or hangs.
func TestHazardLeaseEndsByTheClockWithoutAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		s.Gain(east)
		s.Gain(west)
		s.SetUntil(east, time.Now().Add(10*time.Second))
		begin := time.Now()
		work, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		defer done()
		s.SetUntil(west, time.Now()) // of another slot
		require.True(t, tn.Owns(east))
		require.True(t, tn.State(east).Owned)

		awaitEnd(work, t)
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.ErrorIs(t, context.Cause(work), ownership.ErrNotOwner)
		require.False(t, tn.Owns(east))
		require.False(t, tn.State(east).Owned)
		_, _, err = tn.Begin(t.Context(), east)
		require.ErrorIs(t, err, ownership.ErrNotOwner)
		_, _, err = tn.Permit(t.Context(), east)
		require.ErrorIs(t, err, ownership.ErrNotOwner)
	})
}

// TestWorkGoesOnWithRenewals: each moves on when it ends, and a timeout that is
// derived from it counts.
func TestWorkGoesOnWithRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, c := run(t)
		s.Gain(east)
		s.SetUntil(east, time.Now().Add(10*time.Second))
		synctest.Wait()
		c.forget()
		begin := time.Now()
		work, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		defer done()
		bounded, cancel := context.WithTimeout(work, time.Minute+time.Second)
		defer cancel()
		for range 60 {
			time.Sleep(2 * time.Second)
			s.SetUntil(east, time.Now().Add(10*time.Second))
			require.NoError(t, work.Err())
			require.True(t, tn.Owns(east))
			require.Equal(t, time.Since(begin) > time.Minute, bounded.Err() != nil)
		}
		require.ErrorIs(t, bounded.Err(), context.DeadlineExceeded)
		awaitEnd(work, t)
		require.Equal(t, 130*time.Second, time.Since(begin))
		require.ErrorIs(t, context.Cause(work), ownership.ErrNotOwner)
	})
}

// TestWorkEndsForItsOwnReason: the caller's deadline and end are no loss.
func TestWorkEndsForItsOwnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, _ := run(t)
		s.Gain(east)
		s.SetUntil(east, time.Now().Add(10*time.Second))
		parent, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		work, done, err := tn.Begin(parent, east)
		require.NoError(t, err)
		deadline, ok := work.Deadline()
		require.True(t, ok)
		require.Equal(t, 3*time.Second, time.Until(deadline))
		awaitEnd(work, t)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(work), context.DeadlineExceeded)
		done()

		work, done, err = tn.Begin(t.Context(), east)
		require.NoError(t, err)
		done()
		done()
		synctest.Wait()
		require.ErrorIs(t, context.Cause(work), context.Canceled)
		require.NotErrorIs(t, context.Cause(work), ownership.ErrNotOwner)
		require.True(t, drained(s.Drain(east, time.Minute)), "no work is left")
	})
}

// hung is a sharding that delivers no events any more.
type hung struct {
	*clustercachetest.Sharding
	hangs atomic.Bool
}

// Subscribe implements ownership.Sharding.
func (h *hung) Subscribe(handler func(ownership.Event)) func() {
	return h.Sharding.Subscribe(func(e ownership.Event) {
		if !h.hangs.Load() {
			handler(e)
		}
	})
}

// TestLossEndsWorkWithoutItsEvent: the slot is released, since its drain has
// taken too long, and the event waits behind a subscriber that hangs.
func TestLossEndsWorkWithoutItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hung{Sharding: clustercachetest.NewSharding()}
		tn := follow(t, s, &changes{})
		s.Gain(east)
		work, done, err := tn.Begin(t.Context(), east)
		require.NoError(t, err)
		defer done()
		require.True(t, tn.Owns(east))
		s.hangs.Store(true)
		s.Lose(east)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(work), ownership.ErrNotOwner)
		require.False(t, tn.Owns(east))
		require.False(t, tn.State(east).Owned)
	})
}

// TestHazardLeaseIsRenewedTooLate: somebody was told that the cluster is not
// owned, and left something out. No event tells that it is owned again.
func TestHazardLeaseIsRenewedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, s, c := run(t)
		s.Gain(east)
		synctest.Wait()
		n := s.Slot(east)
		for _, told := range []func(){
			func() { require.False(t, tn.Owns(east)) },
			func() { require.False(t, tn.State(east).Owned) },
			func() {
				_, _, err := tn.Begin(t.Context(), east)
				require.ErrorIs(t, err, ownership.ErrNotOwner)
			},
			func() {
				_, _, err := tn.Permit(t.Context(), east)
				require.ErrorIs(t, err, ownership.ErrNotOwner)
			},
		} {
			synctest.Wait()
			c.forget()
			s.SetUntil(east, time.Now())
			told()
			time.Sleep(3 * time.Second)
			require.Equal(t, []map[int]bool{{n: false}}, c.told())
			s.SetUntil(east, time.Time{})
			time.Sleep(time.Second)
			require.Equal(t, []map[int]bool{{n: false}, {n: true}}, c.told())
			require.True(t, tn.Owns(east))
		}

		// If nobody was told, nothing was left out.
		c.forget()
		s.SetUntil(east, time.Now())
		time.Sleep(time.Second)
		s.SetUntil(east, time.Time{})
		time.Sleep(time.Minute)
		require.Empty(t, c.told())

		// A loss ends the look, and the next gain tells.
		s.SetUntil(east, time.Now())
		require.False(t, tn.Owns(east))
		s.Lose(east)
		synctest.Wait()
		c.forget()
		time.Sleep(time.Minute)
		require.Empty(t, c.told())
		s.Gain(east)
		synctest.Wait()
		require.Equal(t, []map[int]bool{{n: true}}, c.told())
	})
}
