// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

func TestUseBeforeRunIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.inUse = func(_ context.Context, owner string) (bool, error) { return owner != "gone", nil }
		w.declare("o", "a")
		w.declare("gone", "b")
		w.declare("dropped", "c")
		w.Drop("dropped")
		time.Sleep(time.Hour)
		require.Empty(t, w.looked(time.Now()))
		require.Equal(t, []string{"a", "b", "c"}, w.live())

		defer w.run()()
		require.Equal(t, []string{"a", "b"}, w.live(), "what was due is done at once")
		require.Len(t, w.looked(time.Now()), 2)
		time.Sleep(grace)
		synctest.Wait()
		require.Equal(t, []string{"a"}, w.live())
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		require.Equal(t, gc.ErrRunning, w.Run(t.Context()))
		stop()
		require.Equal(t, gc.ErrClosed, w.Run(t.Context()))
	})
}

func TestRunWithCtxThatHasEnded(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.Run(canceled(t)))
	_, err := w.Declare(t.Context(), "o", "a")
	require.Equal(t, gc.ErrClosed, err)
}

func TestAfterStopErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.run()
		w.declare("o", "a", "b")
		w.declare("p", "b")
		w.Drop("p")
		stop()
		for _, uses := range [][]string{{"a", "b"}, {"a"}, {"c"}, nil} {
			change, err := w.Declare(t.Context(), "o", uses...)
			require.Equal(t, gc.ErrClosed, err)
			require.Equal(t, gc.Change[string]{}, change)
		}
		swept, err := w.Sweep(t.Context())
		require.Equal(t, gc.ErrClosed, err)
		require.Equal(t, gc.Swept[string, string]{}, swept)

		// The records stay readable, and nothing is released behind the back of
		// the code that tears down.
		require.ElementsMatch(t, []string{"a", "b"}, w.Uses("o"))
		require.Len(t, w.Snapshot().Resources, 2)
		require.ElementsMatch(t, []string{"a", "b"}, w.Drop("o"))
		time.Sleep(time.Hour)
		require.Equal(t, []string{"acquired a", "acquired b"}, w.took())
	})
}

// TestStopIsPromptAndJoins stops the collector in each state in which it may be
// waiting.
func TestStopIsPromptAndJoins(t *testing.T) {
	sweep := func(w *world) func() error {
		swept := async(func() (gc.Swept[string, string], error) { return w.Sweep(w.t.Context()) })
		return func() error {
			_, err := swept()
			return err
		}
	}
	declare := func(w *world, owner string, uses ...string) func() error {
		declared := async(func() (gc.Change[string], error) {
			return w.Declare(w.t.Context(), owner, uses...)
		})
		return func() error {
			_, err := declared()
			return err
		}
	}
	none := func() error { return gc.ErrClosed }
	hang := func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}
	hungLook := func(w *world) {
		w.inUse = func(ctx context.Context, owner string) (bool, error) { return false, hang(ctx, owner) }
		w.declare("o", "a")
		time.Sleep(2 * second)
	}
	cases := map[string]func(w *world) (result func() error){
		"idle":      func(*world) func() error { return none },
		"in grace":  func(w *world) func() error { w.declare("o", "a"); w.Drop("o"); return none },
		"look due":  func(w *world) func() error { w.declare("o", "a"); return none },
		"look hung": func(w *world) func() error { hungLook(w); return none },
		"looks waiting for a slot": func(w *world) func() error {
			w.declare("p", "a")
			hungLook(w)
			return none
		},
		"look waiting for the rate": func(w *world) func() error {
			w.declare("o", "a")
			w.declare("p", "a")
			time.Sleep(2 * second)
			return none
		},
		"sweep hung": func(w *world) func() error {
			w.inUse = func(ctx context.Context, owner string) (bool, error) { return false, hang(ctx, owner) }
			w.declare("o", "a")
			return sweep(w)
		},
		"acquire hung": func(w *world) func() error {
			w.acquire = hang
			return declare(w, "o", "a")
		},
		"waiting for the acquire of another": func(w *world) func() error {
			w.acquire = hang
			declare(w, "o", "a")
			synctest.Wait()
			return declare(w, "p", "a")
		},
		"waiting for another declaration": func(w *world) func() error {
			w.acquire = hang
			declare(w, "o", "a")
			synctest.Wait()
			return declare(w, "o", "b")
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *gc.Options[string, string]) { o.Concurrency, o.Rate = 1, 0.001 })
				stop := w.run()
				result := prepare(w)
				synctest.Wait()
				require.LessOrEqual(t, stop(), second)
				// Run has joined the calls: they have already ended, and none
				// runs a callback later.
				require.False(t, running(func() (any, error) { return nil, result() }))
				require.ErrorIs(t, result(), gc.ErrClosed)
				w.looked(time.Now())
				time.Sleep(time.Hour)
				require.Empty(t, w.looked(time.Now()))
				require.NotContains(t, w.took(), "released a")
			})
		})
	}
}

func TestStopWaitsForCallbacks(t *testing.T) {
	for _, name := range []string{"Acquire", "Release", "InUse"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				slow := func() error { time.Sleep(2*second + grace + second/2); return nil }
				switch name {
				case "Acquire":
					w.acquire = func(context.Context, string) error { return slow() }
				case "Release":
					w.release = func(string) { _ = slow() }
				case "InUse":
					w.inUse = func(context.Context, string) (bool, error) { return true, slow() }
				}
				stop := w.run()
				go func() {
					_, _ = w.Declare(t.Context(), "o", "a")
					if name == "Release" {
						w.Drop("o")
					}
				}()
				time.Sleep(2*second + grace)
				took := stop()
				require.Positive(t, took, "a callback that does not honour its ctx is waited for")
				require.NotContains(t, w.phase, "acquiring")
				require.NotContains(t, w.phase, "releasing")
			})
		})
	}
}

func TestNewRejectsInvalidOptions(t *testing.T) {
	for name, change := range map[string]func(*gc.Options[string, string]){
		"Release":     func(o *gc.Options[string, string]) { o.Release = nil },
		"MinInterval": func(o *gc.Options[string, string]) { o.MinInterval = -1 },
		"MaxInterval": func(o *gc.Options[string, string]) { o.MaxInterval = second },
		"Timeout":     func(o *gc.Options[string, string]) { o.Timeout = -1 },
		"Concurrency": func(o *gc.Options[string, string]) { o.Concurrency = -1 },
		"Rate":        func(o *gc.Options[string, string]) { o.Rate = math.NaN() },
	} {
		options := gc.Options[string, string]{Release: func(string) {}}
		change(&options)
		_, err := gc.New(options)
		require.ErrorContains(t, err, "gc: Options."+name)
	}
	_, err := gc.New(gc.Options[string, string]{Release: func(string) {}, MaxInterval: -1})
	require.ErrorContains(t, err, "gc: Options.MaxInterval must not be negative")
	_, err = gc.New(gc.Options[string, string]{Release: func(string) {}, MinInterval: time.Hour})
	require.NoError(t, err)
}

func TestSnapshotTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		start := time.Now()
		require.Equal(t, gc.Snapshot[string, string]{
			Owners: []gc.OwnerStatus[string, string]{}, Resources: []gc.ResourceStatus[string, string]{},
		}, w.Snapshot())
		require.Empty(t, w.Owners("a"))
		require.Empty(t, w.Uses("o"))

		w.declare("o", "a", "b")
		w.declare("p", "b", "c")
		time.Sleep(second)
		w.Drop("p")
		g := newGate()
		w.acquire = g.pass
		declared := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "q", "d") })
		synctest.Wait()
		s := w.Snapshot()
		require.Len(t, s.Owners, 1)
		require.ElementsMatch(t, []string{"a", "b"}, s.Owners[0].Uses)
		s.Owners[0].Uses = nil
		require.Equal(t, gc.OwnerStatus[string, string]{Owner: "o", NextLook: start.Add(2 * second)}, s.Owners[0])
		require.ElementsMatch(t, []gc.ResourceStatus[string, string]{
			{Resource: "a", Phase: gc.Held, Owners: []string{"o"}},
			{Resource: "b", Phase: gc.Held, Owners: []string{"o"}},
			{Resource: "c", Phase: gc.Held, UnusedSince: start.Add(second)},
			{Resource: "d", Phase: gc.Acquiring},
		}, s.Resources)
		close(g.open)
		_, err := declared()
		require.NoError(t, err)
		require.Equal(t, []string{"q"}, w.Owners("d"))
	})
	require.Equal(t, "Acquiring Held Releasing Unknown",
		gc.Acquiring.String()+" "+gc.Held.String()+" "+gc.Releasing.String()+" "+gc.Phase(0).String())
}

// TestHazardReleaseEndsTheLoop: a Release and a Collected that end their
// goroutine concern one resource and one owner. Nothing else would be released
// any more.
func TestHazardReleaseEndsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var collected []string
		w := newWorld(t, func(o *gc.Options[string, string]) {
			o.Concurrency = 1
			o.Collected = func(owner string) {
				collected = append(collected, owner)
				runtime.Goexit()
			}
		})
		w.inUse = func(_ context.Context, owner string) (bool, error) { return owner == "p", nil }
		w.release = func(resource string) {
			if resource == "a" {
				runtime.Goexit()
			}
		}
		stop := w.run()
		w.declare("o", "a")
		w.declare("p", "b", "c")
		time.Sleep(time.Minute + grace)
		synctest.Wait()
		require.Equal(t, []string{"o"}, collected)
		require.Contains(t, w.logged(), `"error"="resource a: gc: callback ended its goroutine"`)
		require.Equal(t, []string{"b", "c"}, w.live())
		require.Contains(t, w.logged(), `"msg"="owner is gone" "owner"="o"`)

		w.declare("p", "b")
		time.Sleep(grace)
		synctest.Wait()
		require.Equal(t, []string{"b"}, w.live())
		w.Drop("p")
		time.Sleep(grace)
		synctest.Wait()
		require.Empty(t, w.live())
		require.Zero(t, w.Size())
		stop()
	})
}
