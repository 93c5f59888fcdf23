// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

var errBad = errors.New("bad")

func TestDeclareReplacesTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		require.Equal(t, gc.Change[string]{Added: []string{"a", "b"}}, w.declare("o", "a", "b"))
		require.Equal(t, []string{"acquired a", "acquired b"}, w.took())

		require.Equal(t, gc.Change[string]{Added: []string{"c"}, Removed: []string{"a"}}, w.declare("o", "b", "c"))
		require.Equal(t, []string{"acquired c"}, w.took(), "b must stay untouched")
		require.ElementsMatch(t, []string{"b", "c"}, w.Uses("o"))

		count := func() []int { owners, resources := w.Len(); return []int{owners, resources} }
		require.Equal(t, []int{1, 3}, count())
		time.Sleep(grace)
		w.sweep()
		require.Equal(t, []string{"released a"}, w.took())
		require.Equal(t, []int{1, 2}, count())

		require.Equal(t, gc.Change[string]{Removed: []string{"b", "c"}}, w.declare("o"))
		require.Empty(t, w.Uses("o"))
		require.Equal(t, []int{0, 2}, count())
	})
}

func TestDeclareIdenticalSetTouchesNothing(t *testing.T) {
	w := newWorld(t)
	w.declare("o", "a", "b")
	w.took()
	for _, uses := range [][]string{{"a", "b"}, {"b", "a"}, {"a", "b", "a", "b"}} {
		require.Equal(t, gc.Change[string]{}, w.declare("o", uses...))
	}
	require.Empty(t, w.took())
	require.Equal(t, gc.Change[string]{Removed: []string{"b"}}, w.declare("o", "a", "a"), "repetitions are not the set")
	require.Equal(t, gc.Change[string]{Added: []string{"c"}}, w.declare("o", "a", "c", "c"))
}

func TestDeclareIdenticalSetNeverBlocks(t *testing.T) {
	w := newWorld(t)
	w.declare("o", "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.Declare(ctx, "o", "a")
	require.NoError(t, err)
}

func TestDeclareHoldsNewBeforeLettingGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, noGrace)
		defer w.run()()
		w.declare("o", "a")
		g := newGate()
		w.acquire = g.pass
		declared := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "b") })
		synctest.Wait()
		require.Equal(t, []string{"a"}, w.live(), "a must live until b is held")
		close(g.open)
		_, err := declared()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"b"}, w.live())
	})
}

func TestDeclareManyOwnersAcquireOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate()
		w.acquire = g.pass
		var results []func() (gc.Change[string], error)
		for i := range 20 {
			results = append(results, async(func() (gc.Change[string], error) {
				return w.Declare(t.Context(), fmt.Sprint(i), "a")
			}))
		}
		synctest.Wait()
		require.Len(t, g.entered, 1)
		close(g.open)
		for _, result := range results {
			change, err := result()
			require.NoError(t, err)
			require.Equal(t, []string{"a"}, change.Added)
		}
		require.Equal(t, []string{"acquired a"}, w.took())
		require.Len(t, w.Owners("a"), 20)

		// Owners are a set, not a count: freeing twice does not affect another
		// owner's use.
		for i := range 19 {
			w.Drop(fmt.Sprint(i))
			w.Drop(fmt.Sprint(i))
		}
		time.Sleep(grace)
		w.sweep()
		require.Equal(t, []string{"a"}, w.live())
		require.Equal(t, []string{"19"}, w.Owners("a"))
	})
}

func TestDeclareBadResourceFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		broken := true
		w.acquire = func(_ context.Context, r string) error {
			if broken && strings.HasPrefix(r, "bad") {
				return fmt.Errorf("dial %s: %w", r, errBad)
			}
			return nil
		}
		w.declare("o", "a", "b")
		change, err := w.Declare(t.Context(), "o", "bad1", "b", "bad2", "c")
		require.Equal(t, gc.Change[string]{Added: []string{"c"}, Removed: []string{"a"}}, change)
		require.ErrorIs(t, err, errBad)
		failed, ok := errors.AsType[*gc.ResourceError[string]](err)
		require.True(t, ok)
		require.Equal(t, "bad1", failed.Resource)
		require.Equal(t, "resource bad1: dial bad1: bad\nresource bad2: dial bad2: bad", err.Error())
		require.ElementsMatch(t, []string{"b", "c"}, w.Uses("o"))
		require.Empty(t, w.Owners("bad1"))

		// A resource that never became live leaves nothing behind, and is not
		// released.
		w.Drop("o")
		time.Sleep(grace)
		require.Equal(t, []string{"a", "b", "c"}, w.sweep().Released)
		require.Zero(t, w.Size())

		broken = false
		require.Equal(t, []string{"bad1"}, w.declare("o", "bad1").Added, "a retry must work")
	})
}

func TestDeclareCutShortLetsNothingGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.declare("o", "a")
		w.acquire = func(ctx context.Context, r string) error {
			if r == "slow" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		change, err := w.Declare(ctx, "o", "b", "slow", "c")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, gc.Change[string]{Added: []string{"b"}}, change)
		require.ElementsMatch(t, []string{"a", "b"}, w.Uses("o"))

		change, err = w.Declare(ctx, "o", "c")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, gc.Change[string]{}, change, "a ctx that has ended changes nothing")
		require.ElementsMatch(t, []string{"a", "b"}, w.Uses("o"))

		change, err = w.Declare(ctx, "o", "a")
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, gc.Change[string]{}, change, "not even by removing")

		require.Equal(t, []string{"a", "b"}, w.declare("o", "c").Removed)
	})
}

func TestDeclareOfOneOwnerInOrderLastWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		g := newGate()
		w.acquire = func(ctx context.Context, r string) error {
			if r == "slow" {
				return g.pass(ctx, r)
			}
			return nil
		}
		var results []func() (gc.Change[string], error)
		for _, uses := range [][]string{{"slow", "a"}, {"b"}, {"slow"}, {"c", "d"}} {
			results = append(results, async(func() (gc.Change[string], error) {
				return w.Declare(t.Context(), "o", uses...)
			}))
			synctest.Wait()
		}
		require.True(t, running(results[3]))
		require.Empty(t, w.Uses("o"), "a later declaration must not overtake")

		w.declare("other", "d")
		require.Equal(t, []string{"d"}, w.Uses("other"), "another owner must not wait")

		_, err := w.Declare(canceled(t), "o", "e")
		require.ErrorIs(t, err, context.Canceled, "each waits as long as its own ctx allows")

		close(g.open)
		var changes []gc.Change[string]
		for _, result := range results {
			change, err := result()
			require.NoError(t, err)
			changes = append(changes, change)
		}
		require.Equal(t, []string{"slow", "a"}, changes[0].Added)
		require.Equal(t, []string{"b"}, changes[1].Added)
		require.Equal(t, []string{"slow"}, changes[2].Added)
		require.Equal(t, []string{"c", "d"}, changes[3].Added)
		require.ElementsMatch(t, []string{"c", "d"}, w.Uses("o"))
	})
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestDeclareIdenticalSetQueuesBehindDeclarationUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.declare("o", "a")
		g := newGate()
		w.acquire = g.pass
		first := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "b") })
		synctest.Wait()
		second := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "a") })
		require.True(t, running(second))
		_, err := w.Declare(canceled(t), "o")
		require.Equal(t, context.Canceled, err)
		require.Equal(t, []string{"a"}, w.Uses("o"), "who did not wait for its turn changes nothing")
		close(g.open)
		_, err = first()
		require.NoError(t, err)
		_, err = second()
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, w.Uses("o"), "the last must win, though it names what was used before both")
	})
}

func TestDeclareWaitsForReleaseAndAcquiresAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, noLiveness)
		defer w.run()()
		g := newGate()
		w.release = func(r string) { _ = g.pass(t.Context(), r) }
		w.declare("o", "a")
		w.Drop("o")
		time.Sleep(grace)
		require.Equal(t, "a", <-g.entered)

		// The release is in progress: the resource must not be handed out
		// before it has ended.
		declared := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "a") })
		require.True(t, running(declared))
		require.Equal(t, gc.Releasing, w.Snapshot().Resources[0].Phase)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.Declare(ctx, "p", "a")
		require.ErrorIs(t, err, context.DeadlineExceeded, "each waits as long as its own ctx allows")

		close(g.open)
		_, err = declared()
		require.NoError(t, err)
		require.Equal(t, []string{"acquired a", "released a", "acquired a"}, w.took())
		require.Equal(t, []string{"a"}, w.live())
		time.Sleep(10 * grace)
		require.Equal(t, []string{"a"}, w.live())
	})
}

func TestDeclareWithinGraceKeepsTheResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		w.declare("o", "a")
		for range 5 {
			w.Drop("o")
			time.Sleep(grace - 1)
			w.declare("p", "a")
			time.Sleep(2 * grace)
			w.declare("o", "a")
			w.Drop("p")
		}
		require.Equal(t, []string{"acquired a"}, w.took())
	})
}

func TestCallbacksMayCallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, noGrace)
		defer w.run()()
		ask := func() {
			w.Snapshot()
			w.Owners("a")
			w.Uses("o")
		}
		w.acquire = func(_ context.Context, r string) error {
			ask()
			if r == "a" {
				w.declare("p", "b")
			}
			return nil
		}
		w.release = func(r string) {
			ask()
			if r == "a" {
				w.declare("p", "b", "c")
			}
		}
		w.inUse = func(_ context.Context, owner string) (bool, error) {
			ask()
			if owner == "o" {
				w.Drop("o")
			}
			return true, nil
		}
		w.declare("o", "a")
		require.Equal(t, []string{"a", "b"}, w.live())
		time.Sleep(2 * second)
		synctest.Wait()
		require.Equal(t, []string{"b", "c"}, w.live())
	})
}

func TestWithoutAcquireDeclaredIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released []string
		c, err := gc.New(gc.Options[string, string]{
			Release: func(r string) { released = append(released, r) },
		})
		require.NoError(t, err)
		_, err = c.Declare(t.Context(), "o", "a")
		require.NoError(t, err)
		require.Equal(t, gc.Held, c.Snapshot().Resources[0].Phase)
		c.Drop("o")
		time.Sleep(grace)
		_, err = c.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, released)
	})
}

func TestChurnLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		for i := range 500 {
			owner := fmt.Sprint("o", i)
			for j := range 20 {
				w.declare(owner, fmt.Sprint(i%7, "/", j), fmt.Sprint(i%5, "/", j))
			}
			w.Drop(owner)
		}
		time.Sleep(grace)
		synctest.Wait()
		require.Zero(t, w.Size())
		require.Empty(t, w.live())
		stop()
	})
}
