// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/clustercache"
)

func TestTriggerDeliversOneOrAllOnceMoreAtLowPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		changes := []predicate.Predicate{predicate.GenerationChangedPredicate{}}
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps, Predicates: changes}, clustercache.EnqueueObject)
		s.TriggerAll() // before Start there is nothing to deliver
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.names())
		before := api.total()
		s.Trigger(request("two"))
		s.Trigger(request("none"))
		s.Trigger(clustercache.Request{Cluster: key("none"), GVK: configMap, ObjectKey: request("one").ObjectKey})
		require.Equal(t, []string{"(two)"}, q.names())
		s.TriggerAll()
		require.Equal(t, []string{"(one)", "(two)"}, q.names())
		require.Equal(t, before, api.total(), "no request was sent")

		// An event that is merged with a change that the predicate rejects is
		// still delivered.
		s.Pause()
		s.Trigger(request("one"))
		synctest.Wait()
		api.put("one", "2", nil)
		synctest.Wait()
		s.Continue()
		require.Equal(t, []string{"one"}, q.names())
		s.Stop()
		s.TriggerAll()
		require.Empty(t, q.names())

		// A predicate may reject triggered objects, independently of changes.
		never := []predicate.Predicate{predicate.Funcs{GenericFunc: func(event.GenericEvent) bool { return false }}}
		s = clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps, Predicates: never}, clustercache.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.names())
		s.TriggerAll()
		require.Empty(t, q.names())
		s.Stop()
	})
}

func TestResyncIntervalDeliversEverythingUntilStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps, ResyncInterval: time.Hour}, clustercache.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.names())
		before := api.count("stream /api/v1/configmaps")
		for range 3 {
			time.Sleep(time.Hour)
			require.Subset(t, q.names(), []string{"(one)", "(two)"})
		}
		require.Equal(t, before, api.count("stream /api/v1/configmaps"), "the server is not asked")
		s.Stop()
		time.Sleep(3 * time.Hour)
		require.Empty(t, q.names())
	})
}

func TestPauseKeepsTheCacheAndContinueDeliversTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps}, clustercache.EnqueueObject)
		c := clustercache.ClusterSource(cc, func(_ context.Context, e clustercache.ClusterEvent) []clustercache.Request {
			return []clustercache.Request{{Cluster: e.Cluster, ObjectKey: client.ObjectKey{Name: string(e.Type)}}}
		})
		s.Pause()
		c.Pause()
		require.NoError(t, s.Start(t.Context(), q))
		require.NoError(t, c.Start(t.Context(), q))
		for i := range 5 {
			api.put("three", strconv.Itoa(i), nil)
			synctest.Wait()
		}
		require.Empty(t, q.names(), "a pause before Start holds from the first event on")
		require.NoError(t, cc.Reader(key("a")).Get(t.Context(), request("three").ObjectKey, configMaps[0].DeepCopyObject().(client.Object), clustercache.CacheOnly))
		before := api.total()
		s.Continue()
		c.Continue()
		require.Equal(t, []string{"(Connected)", "(one)", "(two)", "three"}, q.names())
		require.Equal(t, before, api.total(), "nothing was listed anew")

		s.Pause()
		c.Pause()
		api.put("one", "7", nil)
		synctest.Wait()
		api.die()
		time.Sleep(time.Minute)
		require.Empty(t, q.names())
		s.Continue()
		c.Continue()
		require.Equal(t, []string{"Disconnected", "one"}, q.names())
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestNoCallbackAfterCloseOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		for i := range 200 {
			var closed, late atomic.Bool
			check := func() {
				time.Sleep(time.Millisecond)
				if closed.Load() {
					late.Store(true)
				}
			}
			feed := clustercache.ObjectFeed{Kinds: configMaps, Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool {
				check()
				return true
			})}}
			s := clustercache.ObjectSource(cc, feed, func(context.Context, client.ObjectKey, client.Object) []clustercache.Request {
				check()
				return nil
			})
			c := clustercache.ClusterSource(cc, func(context.Context, clustercache.ClusterEvent) []clustercache.Request {
				check()
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, s.Start(ctx, q))
			require.NoError(t, c.Start(ctx, q))
			go api.put("one", strconv.Itoa(i), nil)
			time.Sleep(time.Duration(i%7) * time.Millisecond / 2)
			if i%3 == 0 {
				cancel() // the controller ends first; Close waits nevertheless
			}
			if i%3 == 1 {
				s.Stop()
				c.Stop()
			}
			require.NoError(t, s.Close(t.Context()))
			require.NoError(t, c.Close(t.Context()))
			require.NoError(t, s.Close(t.Context()), "it is idempotent")
			closed.Store(true)
			api.put("two", strconv.Itoa(i), nil)
			synctest.Wait()
			require.False(t, late.Load())
			cancel()
		}
		synctest.Wait()
		require.Equal(t, 1, status(t, cc).Watches)
		require.Zero(t, cc.Feeds())
	})
}

func TestCloseOfASourceIsBoundedByItsContextAndWorksFromWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		var s *clustercache.TypedObjectSource[clustercache.Request]
		var c *clustercache.TypedClusterSource[clustercache.Request]
		calls := 0
		var errs []error
		s = clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps}, func(context.Context, client.ObjectKey, client.Object) []clustercache.Request {
			calls++
			errs = append(errs, s.Close(context.Background()))
			return nil
		})
		c = clustercache.ClusterSource(cc, func(context.Context, clustercache.ClusterEvent) []clustercache.Request {
			errs = append(errs, c.Close(context.Background()))
			return nil
		})
		require.NoError(t, s.Start(t.Context(), q))
		synctest.Wait()
		require.NoError(t, c.Start(t.Context(), q))
		synctest.Wait()
		require.Equal(t, 1, calls, "the second object came after the end")
		require.Equal(t, []error{nil, nil}, errs)
		api.die()
		time.Sleep(time.Minute)
		require.Len(t, errs, 2)

		block := make(chan struct{})
		stuck := clustercache.ClusterSource(cc, func(context.Context, clustercache.ClusterEvent) []clustercache.Request {
			<-block
			return nil
		})
		require.NoError(t, stuck.Start(t.Context(), q))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, stuck.Close(ctx), context.DeadlineExceeded)
		close(block)
		require.NoError(t, stuck.Close(t.Context()))
	})
}

// TestSourceServesSeveralControllersAndOutlivesThem: a source may be started
// again, and by several controllers; the end of one controller affects only its
// own run. After Stop, or with a context that has ended, Start does nothing and
// leaves nothing behind.
func TestSourceServesSeveralControllersAndOutlivesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := sourced(t)
		first, second := &queue[clustercache.Request]{}, &queue[clustercache.Request]{}
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps, Watch: true}, clustercache.EnqueueObject)
		ctx, end := context.WithCancel(t.Context())
		require.NoError(t, s.Start(ctx, first))
		require.NoError(t, s.Start(t.Context(), second))
		require.Equal(t, []string{"(one)", "(two)"}, first.names())
		require.Equal(t, []string{"(one)", "(two)"}, second.names(), "every one has every event")
		end()
		synctest.Wait()
		api.put("one", "2", nil)
		require.Empty(t, first.names())
		require.Equal(t, []string{"one"}, second.names())
		for range 100 {
			require.NoError(t, s.Start(ctx, first)) // this context has ended
			require.Empty(t, first.names())
		}
		require.NoError(t, s.Start(t.Context(), first))
		require.Equal(t, []string{"(one)", "(two)"}, first.names())
		s.Stop()
		require.NoError(t, s.Start(t.Context(), first))
		synctest.Wait()
		require.Empty(t, first.names())
		require.Equal(t, 1, status(t, cc).Watches)
		require.Zero(t, cc.Feeds())
	})
}

// TestStopThatRacesWithStartLeavesNothing: in either order, with Stop and with
// the controller's end.
func TestStopThatRacesWithStartLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := sourced(t)
		for i := range 2000 {
			ctx, cancel := context.WithCancel(t.Context())
			s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps, Watch: true, ResyncInterval: time.Hour}, clustercache.EnqueueObject)
			var racers sync.WaitGroup
			racers.Go(func() {
				if i%2 == 0 {
					cancel()
				} else {
					s.Stop()
				}
			})
			racers.Go(func() {
				if err := s.Start(ctx, q); err != nil {
					t.Error(err)
				}
			})
			racers.Wait()
			s.Stop()
			cancel()
		}
		synctest.Wait()
		require.Zero(t, cc.Feeds())
		require.Equal(t, 1, status(t, cc).Watches)
		q.take()
		time.Sleep(3 * time.Hour)
		require.Empty(t, q.take())
	})
}

func TestMappingCanBeSwappedWhileTheSourceRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		s := clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: configMaps}, clustercache.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.names())
		s.SetMapping(func(context.Context, client.ObjectKey, client.Object) []clustercache.Request {
			return []clustercache.Request{request("swapped")}
		})
		api.put("one", "2", nil)
		require.Equal(t, []string{"swapped"}, q.names())
		s.TriggerAll()
		require.Equal(t, []string{"(swapped)", "(swapped)"}, q.names())
		s.Stop()
	})
}

func TestClusterSourceDeliversWhatItsFiltersLetPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := sourced(t)
		all := func(_ context.Context, e clustercache.ClusterEvent) []clustercache.Request {
			return []clustercache.Request{{Cluster: e.Cluster, ObjectKey: client.ObjectKey{Name: string(e.Type)}}}
		}
		for _, o := range []clustercache.ClusterSourceOptions{
			{Types: []clustercache.ClusterEventType{clustercache.Disconnected}},
			{Clusters: func(c client.ObjectKey) bool { return c != key("a") }},
			{Filter: func(e clustercache.ClusterEvent) bool { return e.Phase == clustercache.PhaseDisconnected }},
		} {
			s := clustercache.ClusterSource(cc, all, clustercache.ClusterSourceOptions{}, o)
			require.NoError(t, s.Start(t.Context(), q))
			require.Empty(t, q.names())
			api.die()
			time.Sleep(time.Minute)
			if o.Clusters == nil {
				require.Equal(t, []string{"Disconnected"}, q.names())
			}
			api.live()
			time.Sleep(time.Minute)
			require.Empty(t, q.names())
			require.NoError(t, s.Close(t.Context()))
		}
		for _, o := range []clustercache.ClusterSourceOptions{{Debounce: -1}, {MaxDelay: -1}} {
			var e *clustercache.OptionError
			require.ErrorAs(t, clustercache.ClusterSource(cc, all, o).Start(t.Context(), q), &e)
		}
	})
}
