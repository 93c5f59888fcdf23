// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

func TestAcquireErrorIsSharedByThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate()
		w.acquire = func(ctx context.Context, r string) error {
			return errors.Join(g.pass(ctx, r), errBad)
		}
		var results []func() (gc.Change[string], error)
		for i := range 10 {
			results = append(results, async(func() (gc.Change[string], error) {
				return w.Declare(t.Context(), fmt.Sprint(i), "a")
			}))
		}
		synctest.Wait()
		close(g.open)
		for _, result := range results {
			_, err := result()
			require.ErrorIs(t, err, errBad)
		}
		require.Len(t, g.entered, 1, "ten failures in a row would take ten times as long")
		require.Zero(t, w.Size())
	})
}

func TestAcquireErrorOfCallerWhoseCtxEndedIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate()
		w.acquire = g.pass
		ctx, cancel := context.WithCancel(t.Context())
		first := async(func() (gc.Change[string], error) { return w.Declare(ctx, "o", "a") })
		synctest.Wait()
		second := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "p", "a") })
		synctest.Wait()
		cancel()
		_, err := first()
		require.ErrorIs(t, err, context.Canceled)
		close(g.open)
		_, err = second()
		require.NoError(t, err)
		require.Equal(t, []string{"p"}, w.Owners("a"))
	})
}

func TestAcquirePanicIsAnError(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int32
	w.acquire = func(context.Context, string) error {
		if calls.Add(1) == 1 {
			panic(errBad)
		}
		return nil
	}
	_, err := w.Declare(t.Context(), "o", "a")
	require.ErrorIs(t, err, errBad)
	p, ok := errors.AsType[*gc.PanicError](err)
	require.True(t, ok)
	require.Equal(t, "Acquire", p.Callback)
	require.Contains(t, string(p.Stack), "TestAcquirePanicIsAnError")
	require.EqualError(t, err, "resource a: Acquire panicked: bad")
	require.Zero(t, w.Size())
	w.declare("o", "a")
}

func TestAcquireGoexitLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate()
		w.acquire = func(ctx context.Context, r string) error {
			if err := g.pass(ctx, r); len(g.entered) > 1 {
				return err
			}
			runtime.Goexit()
			return nil
		}
		first := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "a") })
		synctest.Wait()
		second := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "p", "a") })
		synctest.Wait()
		close(g.open)
		_, err := first()
		require.EqualError(t, err, "ended by Goexit")
		_, err = second()
		require.NoError(t, err, "who waited tries for itself")
		require.Equal(t, []string{"p"}, w.Owners("a"))
		w.declare("o", "a")
	})
}
