// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
	"github.com/fleetcache/fleetcache/internal/repeat"
)

func TestLateSubscriberIsToldOfEverythingOnce(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 100 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for range 20 {
			r := pooltest.NewRecorder()
			go s.Put("ns", "live", 1)
			sub := pooltest.Subscribe(t, p, l, r)
			go s.Put("ns", "o5", 2)
			require.NoError(t, sub.WaitForSync(context.Background(), l))
			require.True(t, sub.HasSynced(l))
			require.GreaterOrEqual(t, len(r.State()), 100, "synced means told")
			synctest.Wait()
			require.Equal(t, s.State(nil), r.State())
			r.RequireSound(t)
		}
	})
}

func TestHandlerFindsWhatItIsToldOf(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 20 {
			s.Put("ns", fmt.Sprint("o", i), 1)
		}
		s.Block = pooltest.Hang()
		l := pooltest.Acquire(t, p, pooltest.Everything)
		var initial, missing atomic.Int32
		pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(e informerpool.Event) {
			if e.Initial {
				initial.Add(1)
			}
			if _, err := l.Get(e.New.GetNamespace(), e.New.GetName()); err != nil {
				missing.Add(1)
			}
		}))
		synctest.Wait()
		close(s.Block)
		require.NoError(t, l.WaitForSync(context.Background()))
		synctest.Wait()
		s.Put("ns", "later", 1)
		synctest.Wait()
		require.EqualValues(t, 20, initial.Load())
		require.Zero(t, missing.Load())
	})
}

func TestSlowSubscriberIsBoundedAndStopsNobody(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		block := make(chan struct{})
		slow := pooltest.NewRecorder()
		slow.Before = func(informerpool.Event) { <-block }
		fast := pooltest.NewRecorder()
		slowSub := pooltest.Subscribe(t, p, l, slow)
		pooltest.Subscribe(t, p, l, fast)
		for i := range 2000 {
			s.Put("ns", fmt.Sprint("o", i%10), i)
			synctest.Wait()
		}
		require.Len(t, fast.Take(), 2000)
		require.LessOrEqual(t, slowSub.Pending(), 10)
		close(block)
		synctest.Wait()
		require.Equal(t, s.State(nil), slow.State())
		require.LessOrEqual(t, len(slow.Take()), 20)
		slow.RequireSound(t)
		fast.RequireSound(t)
	})
}

func TestNoCallAfterClose(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		for i := range 300 {
			var closed, late atomic.Bool
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			sub := pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) {
				if closed.Load() {
					late.Store(true)
				}
			}))
			go s.Put("ns", "a", i)
			if i%2 == 0 {
				require.NoError(t, l.Close(context.Background()))
			} else {
				require.NoError(t, sub.Close(context.Background()))
			}
			closed.Store(true)
			s.Put("ns", "a", -i)
			synctest.Wait()
			require.False(t, late.Load())
			l.Release()
		}
	})
}

func TestCloseWaitsForTheRunningCall(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		var returned atomic.Bool
		pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) {
			time.Sleep(time.Second)
			returned.Store(true)
		}))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, l.Close(ctx), context.DeadlineExceeded)
		require.NoError(t, l.Close(context.Background()))
		_ = returned.Load()
		time.Sleep(time.Second)
	})
}

func TestHandlerMayCloseWhatCallsIt(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "b", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		other := pooltest.AcquireSynced(t, p, pooltest.Everything)
		var calls atomic.Int32
		var sub *informerpool.Subscription
		ready := make(chan struct{})
		sub = p.Subscribe(informerpool.HandlerFunc(func(informerpool.Event) {
			<-ready
			calls.Add(1)
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if err := sub.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if _, err := other.Get("ns", "a"); err != nil {
				t.Error(err)
			}
		}))
		require.NoError(t, sub.Add(l))
		close(ready)
		synctest.Wait()
		require.EqualValues(t, 1, calls.Load())
	})
}

func TestBlockedHandlerDoesNotHoldUpOtherInformers(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		block := make(chan struct{})
		pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) { <-block }))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Close(ctx), context.DeadlineExceeded, "the handler's goroutine is waited for")
		close(block)
	})
}

func TestPanicsAreIsolatedAndCounted(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		bad := pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) { panic("no") }))
		good := pooltest.Record(t, p, l)
		synctest.Wait()
		s.Put("ns", "a", 2)
		synctest.Wait()
		require.EqualValues(t, 2, bad.Panics())
		require.Len(t, good.Take(), 2)
		require.NoError(t, bad.Close(context.Background()))
	})
}

func TestReusedNameIsADeleteAndAnAdd(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		block := make(chan struct{})
		r.Before = func(informerpool.Event) { <-block }
		pooltest.Subscribe(t, p, l, r)
		s.Put("ns", "b", 1) // keeps the handler busy if it comes first
		synctest.Wait()
		s.Delete("ns", "a")
		s.Put("ns", "a", 2)
		synctest.Wait()
		close(block)
		synctest.Wait()
		r.RequireSound(t)
		require.Equal(t, s.State(nil), r.State())
	})
}

func TestResyncAndTrigger(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "b", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		sub := pooltest.Subscribe(t, p, l, r)
		synctest.Wait()
		r.Take()
		sub.Resync(l)
		synctest.Wait()
		require.ElementsMatch(t, []string{"Updated ns/a@101", "Updated ns/b@102"}, r.Take())
		sub.Trigger(l, "ns", "b")
		sub.Trigger(l, "ns", "none")
		synctest.Wait()
		require.Equal(t, []string{"Updated ns/b@102"}, r.Take())
		r.RequireSound(t)
	})
}

func TestPauseKeepsTheCacheAndMerges(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		r := pooltest.NewRecorder()
		sub := pooltest.Subscribe(t, p, l, r)
		sub.Pause()
		for i := range 5 {
			s.Put("ns", "a", i)
		}
		synctest.Wait()
		require.Empty(t, r.Take())
		require.Equal(t, s.State(nil), pooltest.Contents(t, l))
		sub.Continue()
		synctest.Wait()
		require.Equal(t, []string{"Added ns/a@105"}, r.Take())
	})
}

func TestOneSubscriptionOverManyInformers(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		r := pooltest.NewRecorder()
		sub := p.Subscribe(r)
		var leases []*informerpool.Lease
		for i := range 10 {
			ns := fmt.Sprint("ns", i)
			s.Put(ns, "a", 1)
			l := pooltest.Acquire(t, p, pooltest.In(ns))
			require.NoError(t, sub.Add(l))
			require.NoError(t, sub.Add(l), "adding again changes nothing")
			leases = append(leases, l)
		}
		for _, l := range leases {
			require.NoError(t, sub.WaitForSync(context.Background(), l))
		}
		require.Len(t, r.Take(), 10)
		leases[3].Release()
		s.Put("ns3", "a", 2)
		s.Put("ns4", "a", 2)
		synctest.Wait()
		require.Equal(t, []string{"Updated ns4/a@112"}, r.Take())
		require.False(t, sub.HasSynced(leases[3]))
	})
}

func TestResourceEventHandlerGetsTombstonesOnlyForUnknownStates(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		s.Put("ns", "b", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		var adds, initial, updates int
		var deleted []any
		pooltest.Subscribe(t, p, l, informerpool.ResourceEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, isInInitialList bool) {
				adds++
				if isInInitialList {
					initial++
				}
			},
			UpdateFunc: func(_, _ any) { updates++ },
			DeleteFunc: func(o any) { deleted = append(deleted, o) },
		}))
		synctest.Wait()
		s.Put("ns", "c", 1)
		s.Put("ns", "c", 2)
		synctest.Wait()
		s.Delete("ns", "a")
		synctest.Wait()
		s.FailWith(pooltest.ErrUnreachable)
		s.Cut(io.ErrUnexpectedEOF)
		s.Delete("ns", "b")
		s.Compact()
		s.Heal()
		pooltest.After(time.Minute)
		require.Equal(t, 3, adds)
		require.Equal(t, 2, initial)
		require.Len(t, deleted, 2)
		require.IsType(t, &informerpool.Object{}, deleted[0])
		tombstone, ok := deleted[1].(cache.DeletedFinalStateUnknown)
		require.True(t, ok)
		require.Equal(t, "ns/b", tombstone.Key)
		require.IsType(t, &informerpool.Object{}, tombstone.Obj)
	})
}

func TestSubscriptionHasNoGoroutineWhenIdle(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		for range 100 {
			pooltest.Subscribe(t, p, l, pooltest.NewRecorder())
		}
		synctest.Wait()
		require.NotContains(t, pooltest.Stacks(), "(*Subscription).deliver")
		require.Equal(t, 1, strings.Count(pooltest.Stacks(), "(*reflector).run("), "and an informer has one")
	})
}

// TestHazardNilHandlerPanicsWithEachEvent: it is an error instead.
func TestHazardNilHandlerPanicsWithEachEvent(t *testing.T) {
	pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
		s.Put("ns", "a", 1)
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		sub := p.Subscribe(nil)
		err := sub.Add(l)
		synctest.Wait()
		require.Zero(t, sub.Panics())
		_, ok := errors.AsType[*informerpool.OptionError](err)
		require.True(t, ok, "%v", err)
	})
}

// TestHazardHandlerIsToldBeforeReadsAreAnswered: a handler that receives an object
// of the first list, or of the first one in another epoch, finds that the informer
// has listed in that.
func TestHazardHandlerIsToldBeforeReadsAreAnswered(t *testing.T) {
	for range repeat.Times(40) {
		pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			fill := func(resource string) {
				for n := range 300 {
					s.Put("ns", resource+strconv.Itoa(n), 1)
				}
			}
			fill("first")
			second := informerpool.Epoch("second")
			epochs := map[string]informerpool.Epoch{"f": s.Epoch, "s": second}
			l := pooltest.Acquire(t, p, pooltest.Everything)
			var told, early atomic.Int64
			pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(e informerpool.Event) {
				if e.New == nil {
					return
				}
				told.Add(1)
				if !l.ListedIn(epochs[e.New.GetName()[:1]]) {
					early.Add(1)
				}
			}))
			synctest.Wait()
			s.Become(second, 1)
			fill("second")
			pooltest.After(time.Minute)
			require.EqualValues(t, 600, told.Load())
			require.Zero(t, early.Load())
		})
	}
}

// TestHazardHandlerIsToldBeforeTheScopeIsKnown: a handler that receives an object
// of a list finds whether objects are in namespaces, although the cache had none
// before.
func TestHazardHandlerIsToldBeforeTheScopeIsKnown(t *testing.T) {
	for range repeat.Times(40) {
		pooltest.Bubble(t, nil, func(t *testing.T, s *pooltest.Server, p *informerpool.Pool) {
			l := pooltest.AcquireSynced(t, p, pooltest.Everything)
			var told, early atomic.Int64
			pooltest.Subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) {
				told.Add(1)
				if _, known := l.Namespaced(); !known {
					early.Add(1)
				}
			}))
			s.Away(func() {
				for n := range 300 {
					s.Put("ns", strconv.Itoa(n), 1)
				}
			})
			require.EqualValues(t, 300, told.Load())
			require.Zero(t, early.Load())
		})
	}
}
