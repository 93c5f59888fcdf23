// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

func TestSweepWithoutRunDoesARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var vanished atomic.Bool
		w.inUse = func(_ context.Context, owner string) (bool, error) {
			return owner == "p" || !vanished.Load(), nil
		}
		w.declare("o", "a", "b")
		w.declare("p", "b")
		w.declare("q", "c")
		w.Drop("q")
		for range 3 {
			require.Equal(t, gc.Swept[string, string]{}, w.sweep())
		}
		time.Sleep(grace - 1)
		require.Equal(t, gc.Swept[string, string]{}, w.sweep())
		time.Sleep(time.Nanosecond)
		require.Equal(t, gc.Swept[string, string]{Released: []string{"c"}}, w.sweep())

		vanished.Store(true)
		require.Equal(t, gc.Swept[string, string]{}, w.sweep())
		time.Sleep(grace)
		require.Equal(t, gc.Swept[string, string]{Collected: []string{"o"}, Released: []string{"a"}}, w.sweep())
		require.Equal(t, []string{"b"}, w.live())
		require.Equal(t, []string{"p"}, w.Owners("b"))
	})
}

func TestSweepWithoutGraceDecidesAtOnce(t *testing.T) {
	w := newWorld(t, noGrace)
	w.inUse = func(context.Context, string) (bool, error) { return false, nil }
	w.declare("o", "a")
	require.Equal(t, gc.Swept[string, string]{Collected: []string{"o"}, Released: []string{"a"}}, w.sweep())
	require.Zero(t, w.Size())
}

func TestSweepKeepsResourceThatAnotherOwnerUsedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inUse = func(_ context.Context, owner string) (bool, error) { return owner != "o", nil }
		w.declare("o", "a")
		w.declare("p", "a")
		w.sweep()
		time.Sleep(grace - second)
		w.Drop("p")
		time.Sleep(second)
		require.Equal(t, gc.Swept[string, string]{Collected: []string{"o"}}, w.sweep(),
			"gone for the grace, but the resource was used a second ago")
		require.Equal(t, time.Now().Add(-second), w.Snapshot().Resources[0].UnusedSince)
		time.Sleep(grace - second)
		require.Equal(t, []string{"a"}, w.sweep().Released)
	})
}

func TestSweepGoesOnAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inUse = func(_ context.Context, owner string) (bool, error) {
			if owner == "o" {
				panic("oops")
			}
			return false, errBad
		}
		w.release = func(r string) {
			if r == "b" {
				panic(errBad)
			}
		}
		for i, r := range []string{"a", "b", "c"} {
			w.declare("q", r)
			w.Drop("q")
			time.Sleep(time.Duration(i))
		}
		w.declare("o", "x")
		w.declare("p", "x")
		time.Sleep(grace)
		swept, err := w.Sweep(t.Context())
		require.Equal(t, []string{"a", "b", "c"}, swept.Released)
		require.ErrorContains(t, err, "owner o: InUse panicked: oops")
		require.ErrorContains(t, err, "owner p: bad")
		require.ErrorContains(t, err, "resource b: Release panicked: bad")
		failed, ok := errors.AsType[*gc.ResourceError[string]](err)
		require.True(t, ok)
		require.Equal(t, "b", failed.Resource)
		require.ErrorIs(t, failed, errBad)
		require.Equal(t, []string{"x"}, w.live())
		w.declare("q", "b")
	})
}

func TestReleasePanicDoesNotStopRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, noGrace)
		defer w.run()()
		w.release = func(r string) {
			if r == "a" {
				panic("oops")
			}
		}
		for _, r := range []string{"a", "b"} {
			w.declare("o", r)
			w.Drop("o")
			synctest.Wait()
		}
		require.Empty(t, w.live())
		require.Zero(t, w.Size())
		require.Contains(t, w.logged(), `"msg"="release failed" "error"="resource a: Release panicked: oops"`)
	})
}

func TestSweepWaitsForReleaseUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		g := newGate()
		w.release = func(r string) { _ = g.pass(t.Context(), r) }
		w.declare("o", "a")
		w.Drop("o")
		time.Sleep(grace)
		<-g.entered
		swept := async(func() (gc.Swept[string, string], error) { return w.Sweep(t.Context()) })
		require.True(t, running(swept), "what was due before the sweep is gone after it")

		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		_, err := w.Sweep(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		close(g.open)
		_, err = swept()
		require.NoError(t, err)
		require.Empty(t, w.live())
	})
}

func TestSweepEndsWithItsCtx(t *testing.T) {
	for _, where := range []string{"looking", "waiting for the rate", "waiting for a slot"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *gc.Options[string, string]) {
					o.Concurrency = 1
					if where == "waiting for the rate" {
						o.Rate = 0.001
					}
				})
				w.inUse = func(ctx context.Context, _ string) (bool, error) {
					if where != "waiting for the rate" {
						<-ctx.Done()
					}
					return false, ctx.Err()
				}
				w.declare("q", "b")
				w.Drop("q")
				time.Sleep(grace)
				for i := range 3 {
					w.declare(fmt.Sprint(i), "a")
				}
				if where == "waiting for a slot" {
					other := async(func() (gc.Swept[string, string], error) { return w.Sweep(t.Context()) })
					synctest.Wait()
					defer func() { _, _ = other() }()
				}
				start, size := time.Now(), w.Size()
				ctx, cancel := context.WithTimeout(t.Context(), second)
				defer cancel()
				swept, err := w.Sweep(ctx)
				require.Equal(t, context.DeadlineExceeded.Error(), err.Error(), "no owner is blamed for it")
				require.Equal(t, second, time.Since(start))
				require.Equal(t, gc.Swept[string, string]{}, swept)
				for _, o := range w.Snapshot().Owners {
					require.NoError(t, o.Err)
				}
				require.Equal(t, size, w.Size(), "all slots and turns are given back")
				if where == "waiting for the rate" {
					w.sweep()
					require.Equal(t, []time.Duration{0, 1000 * second, 2000 * second, 3000 * second}, w.looked(start),
						"what was not looked at does not count")
				}
			})
		})
	}
}

// TestReleaseChecksAgain covers the step between "is due" and "is released", in
// which a Declare may come.
func TestReleaseChecksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		require.False(t, w.ReleaseIfUnused("a"), "not in the books any more")
		w.declare("o", "a")
		w.Drop("o")
		time.Sleep(grace)
		w.declare("o", "a")
		require.False(t, w.ReleaseIfUnused("a"), "claimed")
		w.Drop("o")
		require.False(t, w.ReleaseIfUnused("a"), "claimed and let go: a new grace")
		time.Sleep(grace)
		require.True(t, w.ReleaseIfUnused("a"))
		require.Empty(t, w.live())
	})
}

func TestDeclareOfWhatIsDueButNotYetReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate()
		w.release = func(r string) {
			if r == "a" {
				_ = g.pass(t.Context(), r)
			}
		}
		w.declare("o", "a")
		w.Drop("o")
		time.Sleep(time.Nanosecond)
		w.declare("o", "b", "c")
		w.Drop("o")
		time.Sleep(grace)
		swept := async(func() (gc.Swept[string, string], error) { return w.Sweep(t.Context()) })
		require.Equal(t, "a", <-g.entered)
		w.took()
		w.declare("p", "b")
		require.Empty(t, w.took(), "it is still live, so it takes neither waiting nor Acquire")
		close(g.open)
		ret, err := swept()
		require.NoError(t, err)
		require.Equal(t, []string{"a", "c"}, ret.Released)
		require.Equal(t, []string{"b"}, w.live())
	})
}
