// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/fleetcache/fleetcache/informerpool"
)

func TestLateSubscriberIsToldOfEverythingOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 100 {
			s.put("ns", fmt.Sprint("o", i), 1)
		}
		l := acquireSynced(t, p, everything)
		for range 20 {
			r := newRecorder()
			go s.put("ns", "live", 1)
			sub := subscribe(t, p, l, r)
			go s.put("ns", "o5", 2)
			require.NoError(t, sub.WaitForSync(context.Background(), l))
			require.True(t, sub.HasSynced(l))
			require.GreaterOrEqual(t, len(r.told()), 100, "synced means told")
			synctest.Wait()
			require.Equal(t, s.state(nil), r.told())
			r.requireSound(t)
		}
	})
}

func TestHandlerFindsWhatItIsToldOf(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 20 {
			s.put("ns", fmt.Sprint("o", i), 1)
		}
		s.block = hang()
		l := acquire(t, p, everything)
		var initial, missing atomic.Int32
		subscribe(t, p, l, informerpool.HandlerFunc(func(e informerpool.Event) {
			if e.Initial {
				initial.Add(1)
			}
			if _, err := l.Get(e.New.GetNamespace(), e.New.GetName()); err != nil {
				missing.Add(1)
			}
		}))
		synctest.Wait()
		close(s.block)
		require.NoError(t, l.WaitForSync(context.Background()))
		synctest.Wait()
		s.put("ns", "later", 1)
		synctest.Wait()
		require.EqualValues(t, 20, initial.Load())
		require.Zero(t, missing.Load())
	})
}

func TestSlowSubscriberIsBoundedAndStopsNobody(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		block := make(chan struct{})
		slow := newRecorder()
		slow.before = func(informerpool.Event) { <-block }
		fast := newRecorder()
		slowSub := subscribe(t, p, l, slow)
		subscribe(t, p, l, fast)
		for i := range 2000 {
			s.put("ns", fmt.Sprint("o", i%10), i)
			synctest.Wait()
		}
		require.Len(t, fast.take(), 2000)
		require.LessOrEqual(t, slowSub.Pending(), 10)
		close(block)
		synctest.Wait()
		require.Equal(t, s.state(nil), slow.told())
		require.LessOrEqual(t, len(slow.take()), 20)
		slow.requireSound(t)
		fast.requireSound(t)
	})
}

func TestNoCallAfterClose(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		for i := range 300 {
			var closed, late atomic.Bool
			l := acquireSynced(t, p, everything)
			sub := subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) {
				if closed.Load() {
					late.Store(true)
				}
			}))
			go s.put("ns", "a", i)
			if i%2 == 0 {
				require.NoError(t, l.Close(context.Background()))
			} else {
				require.NoError(t, sub.Close(context.Background()))
			}
			closed.Store(true)
			s.put("ns", "a", -i)
			synctest.Wait()
			require.False(t, late.Load())
			l.Release()
		}
	})
}

func TestCloseWaitsForTheRunningCall(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		var returned atomic.Bool
		subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) {
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
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.put("ns", "b", 1)
		l := acquireSynced(t, p, everything)
		other := acquireSynced(t, p, everything)
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
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		block := make(chan struct{})
		subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) { <-block }))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Close(ctx), context.DeadlineExceeded, "the handler's goroutine is waited for")
		close(block)
	})
}

func TestPanicsAreIsolatedAndCounted(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		bad := subscribe(t, p, l, informerpool.HandlerFunc(func(informerpool.Event) { panic("no") }))
		good := newRecorder()
		subscribe(t, p, l, good)
		synctest.Wait()
		s.put("ns", "a", 2)
		synctest.Wait()
		require.EqualValues(t, 2, bad.Panics())
		require.Len(t, good.take(), 2)
		require.NoError(t, bad.Close(context.Background()))
	})
}

func TestReusedNameIsADeleteAndAnAdd(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		block := make(chan struct{})
		r.before = func(informerpool.Event) { <-block }
		subscribe(t, p, l, r)
		s.put("ns", "b", 1) // keeps the handler busy if it comes first
		synctest.Wait()
		s.delete("ns", "a")
		s.put("ns", "a", 2)
		synctest.Wait()
		close(block)
		synctest.Wait()
		r.requireSound(t)
		require.Equal(t, s.state(nil), r.told())
	})
}

func TestResyncAndTrigger(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.put("ns", "b", 1)
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		sub := subscribe(t, p, l, r)
		synctest.Wait()
		r.take()
		sub.Resync(l)
		synctest.Wait()
		require.ElementsMatch(t, []string{"Updated ns/a@101", "Updated ns/b@102"}, r.take())
		sub.Trigger(l, "ns", "b")
		sub.Trigger(l, "ns", "none")
		synctest.Wait()
		require.Equal(t, []string{"Updated ns/b@102"}, r.take())
		r.requireSound(t)
	})
}

func TestPauseKeepsTheCacheAndMerges(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		r := newRecorder()
		sub := subscribe(t, p, l, r)
		sub.Pause()
		for i := range 5 {
			s.put("ns", "a", i)
		}
		synctest.Wait()
		require.Empty(t, r.take())
		require.Equal(t, s.state(nil), contents(t, l))
		sub.Continue()
		synctest.Wait()
		require.Equal(t, []string{"Added ns/a@105"}, r.take())
	})
}

func TestOneSubscriptionOverManyInformers(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		r := newRecorder()
		sub := p.Subscribe(r)
		var leases []*informerpool.Lease
		for i := range 10 {
			ns := fmt.Sprint("ns", i)
			s.put(ns, "a", 1)
			l := acquire(t, p, in(ns))
			require.NoError(t, sub.Add(l))
			require.NoError(t, sub.Add(l), "adding again changes nothing")
			leases = append(leases, l)
		}
		for _, l := range leases {
			require.NoError(t, sub.WaitForSync(context.Background(), l))
		}
		require.Len(t, r.take(), 10)
		leases[3].Release()
		s.put("ns3", "a", 2)
		s.put("ns4", "a", 2)
		synctest.Wait()
		require.Equal(t, []string{"Updated ns4/a@112"}, r.take())
		require.False(t, sub.HasSynced(leases[3]))
	})
}

func TestResourceEventHandlerGetsTombstonesOnlyForUnknownStates(t *testing.T) {
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		s.put("ns", "b", 1)
		l := acquireSynced(t, p, everything)
		var adds, initial, updates int
		var deleted []any
		subscribe(t, p, l, informerpool.ResourceEventHandler(cache.ResourceEventHandlerDetailedFuncs{
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
		s.put("ns", "c", 1)
		s.put("ns", "c", 2)
		synctest.Wait()
		s.delete("ns", "a")
		synctest.Wait()
		s.set(func(s *modelServer) { s.fail = func(string) error { return errUnreachable } })
		s.cut(io.ErrUnexpectedEOF)
		s.delete("ns", "b")
		s.compact()
		s.set(func(s *modelServer) { s.fail = nil })
		after(time.Minute)
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
	bubble(t, nil, func(t *testing.T, s *modelServer, p *informerpool.Pool) {
		s.put("ns", "a", 1)
		l := acquireSynced(t, p, everything)
		for range 100 {
			subscribe(t, p, l, newRecorder())
		}
		synctest.Wait()
		require.NotContains(t, stacks(), "(*Subscription).deliver")
		require.Equal(t, 1, strings.Count(stacks(), "(*reflector).run("), "and an informer has one")
	})
}
