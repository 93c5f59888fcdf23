// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

func TestDropReleasesAfterGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		w.declare("o", "a", "b")
		w.declare("p", "b")
		require.Empty(t, w.Drop("nobody"))
		require.ElementsMatch(t, []string{"a", "b"}, w.Drop("o"))
		require.Empty(t, w.Drop("o"))

		time.Sleep(grace - 1)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, w.live())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []string{"b"}, w.live())

		w.declare("o", "a")
		require.Equal(t, []string{"acquired a", "acquired b", "released a", "acquired a"}, w.took(), "afresh")
	})
}

func TestDropOvertakesDeclarationUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.declare("o", "a")
		g := newGate()
		w.acquire = func(ctx context.Context, r string) error {
			if r == "slow" {
				return g.pass(ctx, r)
			}
			return nil
		}
		first := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "b", "slow", "c") })
		synctest.Wait()
		queued := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "a", "b") })
		synctest.Wait()
		time.Sleep(second)
		require.ElementsMatch(t, []string{"a", "b"}, w.Drop("o"))
		require.Empty(t, w.Uses("o"))
		later := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "b", "d") })
		synctest.Wait()

		close(g.open)
		for _, result := range []func() (gc.Change[string], error){first, queued} {
			change, err := result()
			require.Equal(t, gc.ErrDropped, err)
			require.Equal(t, gc.Change[string]{}, change)
		}
		_, err := later()
		require.NoError(t, err, "what comes after the drop is not affected")
		require.ElementsMatch(t, []string{"b", "d"}, w.Uses("o"))
		require.Equal(t, time.Now().Add(2*second), w.Snapshot().Owners[0].NextLook, "as for a new owner")

		// The resource was acquired for no owner, and is released like every
		// unused one.
		require.Equal(t, []string{"a", "b", "d", "slow"}, w.live())
		time.Sleep(grace)
		require.Equal(t, []string{"a", "slow"}, w.sweep().Released)
		w.Drop("o")
		time.Sleep(grace)
		w.sweep()
		require.Zero(t, w.Size())
	})
}

func TestDropOfOwnerDeclaringForTheFirstTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate()
		w.acquire = g.pass
		declared := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "a") })
		synctest.Wait()
		require.Empty(t, w.Drop("o"))
		close(g.open)
		_, err := declared()
		require.Equal(t, gc.ErrDropped, err)
		time.Sleep(grace)
		require.Equal(t, []string{"a"}, w.sweep().Released)
		require.Zero(t, w.Size())
	})
}
