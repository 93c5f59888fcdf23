// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// debounced starts a source with a window of one second, and discards the
// requests of the initial objects.
func debounced(t *testing.T, cc *clustercache.ClusterCache, q *fleettest.Queue[controller.Request],
	limit time.Duration) *controller.TypedObjectSource[controller.Request] {
	t.Helper()
	s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps},
		controller.EnqueueObject, controller.ObjectSourceOptions{Debounce: time.Second, MaxDelay: limit})
	require.NoError(t, s.Start(t.Context(), q))
	time.Sleep(time.Second)
	require.Equal(t, []string{"(one)", "(two)"}, q.Names())
	return s
}

func TestBurstIsOneDeliveryAWindowAfterItsLastEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		s := debounced(t, cc, q, 0)
		for i := range 5 {
			api.Put("one", strconv.Itoa(i), nil)
			time.Sleep(600 * time.Millisecond)
		}
		api.Put("two", "2", nil) // has its own window
		last := time.Now()
		time.Sleep(399 * time.Millisecond)
		require.Empty(t, q.Names())
		time.Sleep(time.Minute)
		got := q.Take()
		require.Len(t, got, 2)
		require.Equal(t, fleettest.Queued[controller.Request]{Request: fleettest.RequestFor("one"),
			At: last.Add(400 * time.Millisecond)}, got[0])
		require.Equal(t, fleettest.Queued[controller.Request]{Request: fleettest.RequestFor("two"),
			At: last.Add(time.Second)}, got[1])
		s.Stop()
	})
}

func TestSteadyEventsCannotStarveADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		for limit, every := range map[time.Duration]time.Duration{0: 10 * time.Second,
			3 * time.Second: 3 * time.Second} {
			s := debounced(t, cc, q, limit)
			begin := time.Now()
			for range 600 { // a minute
				api.Put("one", strconv.Itoa(rand.Int()), nil)
				time.Sleep(100 * time.Millisecond)
			}
			end := time.Now()
			time.Sleep(time.Second)
			got := q.Take()
			require.GreaterOrEqual(t, len(got), int(time.Minute/every)-1)
			for i, x := range got {
				require.LessOrEqual(t, x.At.Sub(begin), time.Duration(i+1)*(every+100*time.Millisecond))
			}
			require.True(t, got[len(got)-1].At.After(end.Add(-100*time.Millisecond)), "the last event is not lost")
			s.Stop()
			require.Empty(t, q.Take())
		}
	})
}

// TestDebounceNeverLosesTheFinalState reads each object when its request
// arrives: the last read returns the last state.
func TestDebounceNeverLosesTheFinalState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		var mu sync.Mutex
		seen := map[string]string{}
		q.Full = func(r controller.Request) {
			o := &corev1.ConfigMap{}
			if err := cc.Cluster(r.Cluster).Reader().Get(t.Context(), r.ObjectKey, o,
				clustercache.CacheOnly); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[r.Name] = o.Data["value"]
		}
		s := debounced(t, cc, q, 2*time.Second)
		final := map[string]string{}
		for i := range 3000 {
			name := fmt.Sprint("o", rand.IntN(20))
			final[name] = strconv.Itoa(i)
			api.Put(name, final[name], nil)
			time.Sleep(rand.N(200 * time.Millisecond))
			if i%500 == 499 {
				s.Pause()
				time.Sleep(rand.N(5 * time.Second))
				s.Continue()
			}
		}
		time.Sleep(2 * time.Second)
		deliveries := len(q.Take())
		require.Less(t, deliveries, 2900)
		mu.Lock()
		defer mu.Unlock()
		for name, value := range final {
			require.Equal(t, value, seen[name])
		}
		s.Stop()
	})
}

func TestStopQueuesWhatWaitsAndPauseHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		s := debounced(t, cc, q, 0)
		api.Put("one", "1", nil)
		synctest.Wait()
		s.Pause()
		time.Sleep(time.Hour)
		require.Empty(t, q.Names())
		s.Continue()
		require.Equal(t, []string{"one"}, q.Names())
		api.Put("one", "2", nil)
		require.Empty(t, q.Names())
		s.Stop()
		require.Equal(t, []string{"one"}, q.Names())
	})
}

func TestChangeRaisesTheLowPriorityOfAWaitingRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		s := debounced(t, cc, q, 0)
		s.TriggerAll()
		synctest.Wait()
		api.Put("one", "1", nil)
		time.Sleep(time.Second)
		require.Equal(t, []string{"(two)", "one"}, q.Names())
		s.Stop()
	})
}

func TestDebounceHasNoGoroutineForAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		for i := range 500 {
			api.Put(fmt.Sprint("o", i), "1", nil)
		}
		synctest.Wait()
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps},
			controller.EnqueueObject, controller.ObjectSourceOptions{Debounce: time.Hour})
		require.NoError(t, s.Start(t.Context(), q))
		synctest.Wait()
		buf := make([]byte, 1<<20)
		require.NotContains(t, string(buf[:runtime.Stack(buf, true)]), "debounce.(*Queue")
		time.Sleep(time.Hour)
		require.Len(t, q.Take(), 502)
		s.Stop()
	})
}

func TestClusterSourceDebounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		s := controller.ClusterSource(cc, func(_ context.Context,
			e events.Cluster) []controller.Request {
			return []controller.Request{{Cluster: e.Cluster}}
		}, controller.ClusterSourceOptions{Debounce: 5 * time.Minute, MaxDelay: time.Hour})
		require.NoError(t, s.Start(t.Context(), q))
		for range 10 {
			api.Die()
			time.Sleep(time.Minute)
			api.Live()
			time.Sleep(time.Minute)
		}
		require.Empty(t, q.Take())
		time.Sleep(5 * time.Minute)
		require.Len(t, q.Take(), 1)
		require.NoError(t, s.Close(t.Context()))
	})
}
