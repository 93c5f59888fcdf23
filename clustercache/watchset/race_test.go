// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/watchset"
)

func TestReplaceWaitsForTheCallsOfARemovedEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, configMap("one"), configMap("two"))
		var running atomic.Int32
		var ended atomic.Int32
		s := f.newSet(watchset.Options{Handle: func(ctx context.Context, _ watchset.Event) error {
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done() // that of the entry
			ended.Add(1)
			time.Sleep(time.Second)
			return ctx.Err()
		}})
		f.replace(s, entries{"e": of("a", "")})
		require.EqualValues(t, 1, running.Load())
		began := time.Now()
		_, err := s.Replace(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		require.Zero(t, running.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, ended.Load(), "the failed call must not be repeated")
	})
}

func TestReplaceIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := newFleet(t, configMap("one")), make(chan struct{})
		s := f.newSet(watchset.Options{Handle: func(context.Context, watchset.Event) error {
			<-release
			return nil
		}})
		f.replace(s, entries{"e": of("a", "")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		change, err := s.Replace(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, watchset.Change{Removed: []string{"e"}}, change, "it is in effect")
		require.Empty(t, s.Statuses())
		_, err = s.Replace(ctx, entries{"e": of("a", "")})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, s.Statuses(), "nothing has changed")
		close(release)
	})
}

func TestHandlersMayReplaceAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one"), configMap("two")), &recorder{}
		var s *watchset.Set
		s = f.newSet(watchset.Options{Handle: func(ctx context.Context, e watchset.Event) error {
			if e.Entry == "last" {
				return s.Close(context.Background())
			}
			_, err := s.Replace(context.WithoutCancel(ctx), entries{"last": of("b", "")})
			if err != nil {
				return err
			}
			return r.handle(ctx, e)
		}})
		f.replace(s, entries{"first": of("a", "")})
		require.Len(t, r.take(), 1, "the entry was removed by its first event")
		_, err := s.Replace(t.Context(), nil)
		require.ErrorIs(t, err, clustercache.ErrClosed)
		require.Empty(t, f.cc.Clusters())
	})
}

func TestOnStatusMayReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newFleet(t, configMap("one")), &recorder{}
		var s *watchset.Set
		s = f.newSet(watchset.Options{
			Handle: r.handle,
			OnStatus: func(now watchset.Status) {
				if now.Entry == "first" && now.State == watchset.Synced {
					_, err := s.Replace(t.Context(), entries{"second": of("b", "")})
					require.NoError(t, err)
				}
			},
		})
		f.replace(s, entries{"first": of("a", "")})
		require.Contains(t, r.take(), "second b/one Added initial")
		require.Len(t, s.Statuses(), 1)
	})
}

func TestCloseWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, configMap("one"), configMap("two"))
		var calls, running atomic.Int32
		s := f.newSet(watchset.Options{Concurrency: 2, Handle: func(ctx context.Context, _ watchset.Event) error {
			calls.Add(1)
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		}})
		f.replace(s, entries{"e": of("a", "")})
		require.NoError(t, s.Close(t.Context()))
		require.Zero(t, running.Load())
		require.EqualValues(t, 2, calls.Load())
		require.Empty(t, f.cc.Clusters())
		require.NoError(t, s.Close(t.Context()))
	})
}

func TestCloseAfterStopWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, configMap("one"))
		s := f.newSet(watchset.Options{Handle: dawdle})
		f.replace(s, entries{"e": of("a", "")})
		began := time.Now()
		s.Stop()
		require.Zero(t, time.Since(began))
		require.NoError(t, s.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
	})
}

// dawdle is a handler that returns a second after its context has ended.
func dawdle(ctx context.Context, _ watchset.Event) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	return nil
}

// The end of the ClusterCache ends a set that is not stopped.
func TestSetEndsWithTheClusterCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, configMap("one"))
		entered := false
		s := f.newSet(watchset.Options{Handle: func(ctx context.Context, _ watchset.Event) error {
			entered = true
			<-ctx.Done()
			return nil
		}})
		f.replace(s, entries{"e": of("a", "")})
		began := time.Now()
		f.end()
		require.Zero(t, time.Since(began))
		require.True(t, entered)
		synctest.Wait()
		_, err := s.Replace(t.Context(), nil)
		require.ErrorIs(t, err, clustercache.ErrClosed)
		require.Empty(t, s.Statuses())
	})
}

func TestSetThatWasNeverUsedLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		s := f.newSet(watchset.Options{})
		s.Stop()
		_, err := s.Replace(t.Context(), entries{"e": of("a", "")})
		require.ErrorIs(t, err, clustercache.ErrClosed)
	})
}

// Replace, Stop and the end of the ClusterCache at the same time leave no watch
// behind, and no call begins after Close.
func TestReplaceAndStopRace(t *testing.T) {
	for i := range 30 {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, configMap("one"), configMap("two"))
			var closed atomic.Bool
			var after atomic.Int32
			s := f.newSet(watchset.Options{Concurrency: 2, Handle: func(context.Context, watchset.Event) error {
				if closed.Load() {
					after.Add(1)
				}
				return nil
			}})
			var racers sync.WaitGroup
			for n := range 3 {
				racers.Go(func() {
					for k := range 10 {
						_, err := s.Replace(t.Context(), entries{
							fmt.Sprint(n):     of("a", []string{"", "app=x"}[k%2]),
							fmt.Sprint(k % 4): of("b", ""),
						})
						if err != nil {
							require.ErrorIs(t, err, clustercache.ErrClosed)
						}
					}
				})
			}
			racers.Go(func() {
				for range i * 20 {
					runtime.Gosched()
				}
				require.NoError(t, s.Close(t.Context()))
				closed.Store(true)
			})
			racers.Wait()
			synctest.Wait()
			require.Zero(t, after.Load())
			require.Empty(t, f.cc.Clusters(), "a cluster is still wanted")
		})
	}
}
