// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/gc"
)

const second = time.Second

func TestLooksAtOwnerInUseFromSecondsToEightMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		start := time.Now()
		w.declare("o", "a")
		time.Sleep(3000 * second)
		require.Equal(t, []time.Duration{
			2 * second, 6 * second, 14 * second, 30 * second, 62 * second, 126 * second, 254 * second, 510 * second,
			1022 * second, 1534 * second, 2046 * second, 2558 * second,
		}, w.looked(start))
		require.Equal(t, []string{"acquired a"}, w.took(), "a used resource is never released")

		// A declaration is no reason to look more often.
		w.declare("o", "a", "b")
		w.declare("o", "a", "b")
		time.Sleep(1024 * second)
		require.Equal(t, []time.Duration{3070 * second, 3582 * second}, w.looked(start))
	})
}

func TestVanishedOwnerIsCollectedAfterGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		w.inUse = func(_ context.Context, owner string) (bool, error) { return owner == "p", nil }
		start := time.Now()
		w.declare("o", "a", "b")
		w.declare("p", "b")

		time.Sleep(2 * second)
		synctest.Wait()
		require.ElementsMatch(t, []string{"a", "b"}, w.Uses("o"), "one look is not enough")
		w.looked(start)

		time.Sleep(grace - 1)
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, w.live())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []string{"b"}, w.live(), "the grace must not be counted twice")
		require.Empty(t, w.Uses("o"))
		require.Equal(t, []string{"p"}, w.Owners("b"))
		require.Contains(t, w.logged(), `"level"=0 "msg"="owner is gone" "owner"="o"`)
		require.Contains(t, w.logged(), `"level"=1 "msg"="resource released" "resource"="a"`)

		// Looks at an owner end with it.
		w.Drop("p")
		w.looked(start)
		time.Sleep(time.Hour)
		require.Empty(t, w.looked(start))
		require.Zero(t, w.Size())
	})
}

func TestOneWrongAnswerNeverCollects(t *testing.T) {
	for _, next := range []string{"in use", "declared", "declared something else"} {
		t.Run(next, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.run()()
				var looks atomic.Int32
				w.inUse = func(context.Context, string) (bool, error) { return looks.Add(1) != 3, nil }
				start := time.Now()
				w.declare("o", "a")
				time.Sleep(15 * second)
				require.Equal(t, []time.Duration{2 * second, 6 * second, 14 * second}, w.looked(start))
				require.Equal(t, start.Add(14*second), w.Snapshot().Owners[0].GoneSince)

				// After a suspicion that proved wrong, the intervals start
				// again from the shortest.
				want := []time.Duration{(14 + 30) * second, (14 + 30 + 4) * second}
				switch next {
				case "declared":
					w.declare("o", "a")
					want = []time.Duration{(15 + 2) * second, (15 + 2 + 4) * second, (15 + 2 + 4 + 8) * second}
				case "declared something else":
					w.declare("o", "a", "b")
					want = []time.Duration{(15 + 2) * second, (15 + 2 + 4) * second, (15 + 2 + 4 + 8) * second}
				}
				if next != "in use" {
					require.Zero(t, w.Snapshot().Owners[0].GoneSince)
				}
				time.Sleep(35 * second)
				looked := w.looked(start)
				require.Equal(t, want, looked[:len(want)])
				require.Zero(t, w.Snapshot().Owners[0].GoneSince)
				time.Sleep(time.Hour)
				require.Contains(t, w.live(), "a")
			})
		})
	}
}

// TestUnknownNeverCollects gives every kind of answer that proves nothing, for
// long enough that a wrong rule would collect.
func TestUnknownNeverCollects(t *testing.T) {
	const failed, partly = `"msg"="owner could not be looked at" "error"`,
		`"level"=1 "msg"="owner could be seen only in part" "owner"="o" "reason"`
	cases := map[string]struct {
		inUse func(ctx context.Context) (bool, error)
		want  string
		logs  string
	}{
		"error":          {func(context.Context) (bool, error) { return false, errBad }, "bad", failed},
		"error and true": {func(context.Context) (bool, error) { return true, errBad }, "bad", failed},
		"partial": {func(context.Context) (bool, error) { return false, gc.ErrPartial },
			"gc: partial information", partly},
		"wrapped partial": {func(context.Context) (bool, error) {
			return false, fmt.Errorf("2 of 3: %w", gc.ErrPartial)
		}, "2 of 3: gc: partial information", partly},
		"canceled by itself": {func(context.Context) (bool, error) { return false, context.Canceled },
			"context canceled", failed},
		"time-out": {func(ctx context.Context) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}, "context deadline exceeded", failed},
		"time-out swallowed": {func(ctx context.Context) (bool, error) {
			<-ctx.Done()
			return false, nil
		}, "context deadline exceeded", failed},
		"panic": {func(context.Context) (bool, error) { panic("oops") }, "InUse panicked: oops", failed},
		"goexit": {func(context.Context) (bool, error) {
			runtime.Goexit()
			return false, nil
		}, "gc: callback ended its goroutine", failed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, func(o *gc.Options[string, string]) {
					o.Timeout = time.Millisecond
					o.Concurrency = 1
				})
				defer w.run()()
				var ok atomic.Bool
				w.inUse = func(ctx context.Context, owner string) (bool, error) {
					if ok.Load() || owner != "o" {
						return false, nil
					}
					return tc.inUse(ctx)
				}
				start := time.Now()
				w.declare("o", "a")
				w.declare("other", "b")
				time.Sleep(2000 * second)
				require.Equal(t, []string{"a"}, w.live(), "the loop goes on for others, and keeps what is unknown")
				require.EqualError(t, w.Snapshot().Owners[0].Err, tc.want)
				require.Contains(t, w.logged(), tc.logs)
				var looks []time.Duration
				for _, at := range w.looked(start) {
					looks = append(looks, at.Truncate(second))
				}
				require.Equal(t, []time.Duration{2 * second, 2 * second, 4 * second, 8 * second, 16 * second,
					32 * second}, looks[:6])
				require.Len(t, looks, 13, "the looks at o, and two at the other")

				swept, err := w.Sweep(t.Context())
				require.EqualError(t, err, "owner o: "+tc.want)
				blamed, isOwnerError := errors.AsType[*gc.OwnerError[string]](err)
				require.True(t, isOwnerError)
				require.Equal(t, "o", blamed.Owner)
				require.Equal(t, gc.Swept[string, string]{}, swept)

				ok.Store(true)
				time.Sleep(512*second + grace)
				synctest.Wait()
				require.Empty(t, w.live(), "a real answer collects at last")
				require.Zero(t, w.Size())
			})
		})
	}
}

func TestErrorBetweenLooksIsNoProofOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		var looks atomic.Int32
		w.inUse = func(context.Context, string) (bool, error) {
			if n := looks.Add(1); n == 2 || n == 3 {
				return false, errBad
			}
			return false, nil
		}
		w.declare("o", "a")
		time.Sleep(2*second + grace)
		synctest.Wait()
		require.Equal(t, []string{"a"}, w.live(), "unknown at the deciding look")
		require.Error(t, w.Snapshot().Owners[0].Err)
		time.Sleep(2*second + 4*second)
		synctest.Wait()
		require.Empty(t, w.live())
	})
}

func TestDeclareDuringLookWins(t *testing.T) {
	for _, uses := range []string{"a", "a b", "b"} {
		t.Run(uses, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Without grace, one answer decides.
				w := newWorld(t, noGrace)
				defer w.run()()
				g := newGate()
				w.inUse = func(ctx context.Context, owner string) (bool, error) { return false, g.pass(ctx, owner) }
				w.declare("o", "a")
				time.Sleep(2 * second)
				require.Equal(t, "o", <-g.entered)

				// The query has already read the state from before this
				// declaration, and will answer from it.
				w.declare("o", strings.Fields(uses)...)
				g.open <- struct{}{}
				synctest.Wait()
				require.ElementsMatch(t, strings.Fields(uses), w.Uses("o"))
				require.Equal(t, strings.Fields(uses), w.live())

				time.Sleep(2 * second)
				g.open <- struct{}{}
				synctest.Wait()
				require.Empty(t, w.live(), "but it is looked at again")
			})
		})
	}
}

func TestLookDuringDeclarationCollectsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, noGrace)
		w.declare("o", "a")
		g := newGate()
		w.acquire = g.pass
		w.inUse = func(context.Context, string) (bool, error) { return false, nil }
		declared := async(func() (gc.Change[string], error) { return w.Declare(t.Context(), "o", "a", "b") })
		synctest.Wait()
		require.Equal(t, gc.Swept[string, string]{}, w.sweep(), "an owner that is declaring is alive")
		close(g.open)
		_, err := declared()
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"a", "b"}, w.Uses("o"))
		require.ElementsMatch(t, []string{"a", "b"}, w.sweep().Released)
	})
}

func TestDropAndDeclareDuringLookStartAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, noGrace)
		defer w.run()()
		g := newGate()
		w.inUse = func(ctx context.Context, owner string) (bool, error) { return false, g.pass(ctx, owner) }
		start := time.Now()
		w.declare("o", "a")
		time.Sleep(2 * second)
		require.Equal(t, "o", <-g.entered)
		w.Drop("o")
		time.Sleep(second)
		w.declare("o", "a")
		g.open <- struct{}{}
		synctest.Wait()
		require.Equal(t, []string{"a"}, w.Uses("o"))
		require.Equal(t, start.Add(5*second), w.Snapshot().Owners[0].NextLook)
		w.Drop("o")
		time.Sleep(time.Hour)
		require.Zero(t, w.Size())
	})
}

func TestLooksAreBoundedInNumberAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *gc.Options[string, string]) { o.Concurrency, o.Rate = 3, 10 })
		defer w.run()()
		var now, most atomic.Int32
		w.inUse = func(context.Context, string) (bool, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(50 * time.Millisecond)
			return true, nil
		}
		for i := range 100 {
			w.declare(fmt.Sprint(i), "a")
		}
		start := time.Now()
		time.Sleep(2 * second)
		swept := async(func() (gc.Swept[string, string], error) { return w.Sweep(t.Context()) })
		_, err := swept()
		require.NoError(t, err)
		require.LessOrEqual(t, most.Load(), int32(3))
		looked := w.looked(start)
		require.GreaterOrEqual(t, len(looked), 100)
		for i, at := range looked {
			if i >= 13 {
				require.GreaterOrEqual(t, at-looked[i-13], second, "no more than ten a second, with bursts of three")
			}
		}
		require.Equal(t, int32(3), most.Load())
	})
}

func TestHungLookDelaysNeitherReleasesNorOtherLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.run()()
		w.inUse = func(ctx context.Context, owner string) (bool, error) {
			if strings.HasPrefix(owner, "hung") {
				<-ctx.Done()
				return false, ctx.Err()
			}
			return true, nil
		}
		start := time.Now()
		for i := range 7 {
			w.declare(fmt.Sprint("hung", i), "a")
		}
		w.declare("o", "b")
		w.Drop("o")
		w.declare("p", "c")
		time.Sleep(12*second - 1)
		synctest.Wait()
		require.NoError(t, errOf(w, "hung1"))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, errOf(w, "hung1"), context.DeadlineExceeded)
		time.Sleep(grace - 12*second)
		synctest.Wait()
		require.Equal(t, []string{"a", "c"}, w.live())
		var times []time.Duration
		w.mu.Lock()
		for _, l := range w.looks {
			if l.owner == "p" {
				times = append(times, l.at.Sub(start))
			}
		}
		w.mu.Unlock()
		require.Equal(t, []time.Duration{2 * second, 6 * second, 14 * second, 30 * second}, times)
	})
}

// errOf returns why the last look at an owner was inconclusive.
func errOf(w *world, owner string) error {
	for _, o := range w.Snapshot().Owners {
		if o.Owner == owner {
			return o.Err
		}
	}
	return nil
}

func TestDropOfOwnerThatWaitsToBeLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *gc.Options[string, string]) { o.Concurrency = 1 })
		defer w.run()()
		g := newGate()
		w.inUse = func(ctx context.Context, owner string) (bool, error) { return true, g.pass(ctx, owner) }
		w.declare("o", "a")
		time.Sleep(second)
		w.declare("p", "a")
		time.Sleep(second)
		require.Equal(t, "o", <-g.entered)
		time.Sleep(second)
		synctest.Wait()
		w.Drop("p")
		w.declare("q", "a")
		close(g.open)
		time.Sleep(2 * second)
		synctest.Wait()
		require.Len(t, g.entered, 1, "the slot kept for p serves the others")
		require.Equal(t, "q", <-g.entered)
	})
}

func TestWithoutInUseOwnersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, noLiveness)
		defer w.run()()
		w.declare("o", "a")
		require.Zero(t, w.Snapshot().Owners[0].NextLook)
		time.Sleep(24 * time.Hour)
		w.sweep()
		require.Equal(t, []string{"a"}, w.live())
	})
}

// TestHazardLooksThatOverlapCollectAnOwner: two looks begin at the same moment,
// in a cache that has not seen the owner yet. One of them is answered after the
// grace, which makes it no second opinion.
func TestHazardLooksThatOverlapCollectAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *gc.Options[string, string]) { o.Grace = 5 * second })
		var calls atomic.Int32
		w.inUse = func(context.Context, string) (bool, error) {
			if calls.Add(1) == 2 {
				time.Sleep(8 * second)
			}
			return false, nil
		}
		w.declare("o", "a")
		for _, swept := range []func() (gc.Swept[string, string], error){
			async(func() (gc.Swept[string, string], error) { return w.Sweep(t.Context()) }),
			async(func() (gc.Swept[string, string], error) { return w.Sweep(t.Context()) }),
		} {
			got, err := swept()
			require.NoError(t, err)
			require.Equal(t, gc.Swept[string, string]{}, got)
		}
		require.Equal(t, []string{"a"}, w.Uses("o"))
		require.Equal(t, gc.Swept[string, string]{Collected: []string{"o"}, Released: []string{"a"}}, w.sweep())
	})
}
