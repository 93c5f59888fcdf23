// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func TestTriggerDeliversOneOrAllOnceMoreAtLowPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		changes := []predicate.Predicate{predicate.GenerationChangedPredicate{}}
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps, Predicates: changes},
			controller.EnqueueObject)
		s.TriggerAll() // before Start there is nothing to deliver
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.Names())
		before := api.Total()
		s.Trigger(fleettest.RequestFor("two"))
		s.Trigger(fleettest.RequestFor("none"))
		s.Trigger(controller.Request{
			Cluster:   fleettest.Key("none"),
			GVK:       fleettest.ConfigMap,
			ObjectKey: fleettest.RequestFor("one").ObjectKey,
		})
		require.Equal(t, []string{"(two)"}, q.Names())
		s.TriggerAll()
		require.Equal(t, []string{"(one)", "(two)"}, q.Names())
		require.Equal(t, before, api.Total(), "no request was sent")

		// An event that is merged with a change that the predicate rejects is
		// still delivered.
		s.Pause()
		s.Trigger(fleettest.RequestFor("one"))
		synctest.Wait()
		api.Put("one", "2", nil)
		synctest.Wait()
		s.Continue()
		require.Equal(t, []string{"one"}, q.Names())
		s.Stop()
		s.TriggerAll()
		require.Empty(t, q.Names())

		// A predicate may reject triggered objects, independently of changes.
		never := []predicate.Predicate{predicate.Funcs{GenericFunc: func(event.GenericEvent) bool { return false }}}
		s = controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps, Predicates: never},
			controller.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.Names())
		s.TriggerAll()
		require.Empty(t, q.Names())
		s.Stop()
	})
}

// TestHazardTriggerBeforeTheStartIsLost: it is kept until then, also for what a
// start does not deliver by itself, and is not for the second run.
func TestHazardTriggerBeforeTheStartIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := fleettest.NewSource(t)
		owner := fleettest.Owner("idle") // it declares nothing
		requests := &fleettest.Queue[reconcile.Request]{}
		s := controller.DeclarerSource(cc, controller.EnqueueDeclarer(owner.GVK))
		s.Trigger(controller.Request{GVK: owner.GVK, ObjectKey: owner.ObjectKey})
		s.Trigger(controller.Request{GVK: owner.GVK, ObjectKey: owner.ObjectKey})
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, s.Start(ctx, requests))
		require.Equal(t, map[string]int{"idle": 1}, requested(requests))
		cancel()
		synctest.Wait()
		require.NoError(t, s.Start(t.Context(), requests))
		require.Empty(t, requested(requests))
		require.NoError(t, s.Close(t.Context()))

		// Objects whose creation a predicate rejects.
		triggered := []predicate.Predicate{predicate.Funcs{
			CreateFunc:  func(event.CreateEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return true },
		}}
		o := controller.ObjectSource(cc,
			events.Selection{Kinds: fleettest.ConfigMaps, Predicates: triggered}, controller.EnqueueObject)
		o.Trigger(fleettest.RequestFor("one"))
		o.Trigger(fleettest.RequestFor("none"))
		o.Pause()
		require.NoError(t, o.Start(t.Context(), q))
		require.Empty(t, q.Names(), "it is paused")
		o.Continue()
		require.Equal(t, []string{"(one)"}, q.Names())
		o.Stop()

		stopped := controller.DeclarerSource(cc, controller.EnqueueDeclarer(owner.GVK))
		stopped.Stop()
		stopped.Trigger(controller.Request{GVK: owner.GVK, ObjectKey: owner.ObjectKey})
		require.NoError(t, stopped.Start(t.Context(), requests))
		require.Empty(t, requested(requests))
	})
}

func TestResyncIntervalDeliversEverythingUntilStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		s := controller.ObjectSource(cc, events.Selection{
			Kinds:          fleettest.ConfigMaps,
			ResyncInterval: time.Hour,
		}, controller.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.Names())
		before := api.Count("stream /api/v1/configmaps")
		for range 3 {
			time.Sleep(time.Hour)
			require.Subset(t, q.Names(), []string{"(one)", "(two)"})
		}
		require.Equal(t, before, api.Count("stream /api/v1/configmaps"), "the server is not asked")
		s.Stop()
		time.Sleep(3 * time.Hour)
		require.Empty(t, q.Names())
	})
}

func TestPauseKeepsTheCacheAndContinueDeliversTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps},
			controller.EnqueueObject)
		c := controller.ClusterSource(cc, func(_ context.Context, e events.Cluster) []controller.Request {
			return []controller.Request{{Cluster: e.Cluster, ObjectKey: client.ObjectKey{Name: string(e.Type)}}}
		})
		s.Pause()
		c.Pause()
		require.NoError(t, s.Start(t.Context(), q))
		require.NoError(t, c.Start(t.Context(), q))
		for i := range 5 {
			api.Put("three", strconv.Itoa(i), nil)
			synctest.Wait()
		}
		require.Empty(t, q.Names(), "a pause before Start holds from the first event on")
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
			fleettest.RequestFor("three").ObjectKey,
			fleettest.ConfigMaps[0].DeepCopyObject().(client.Object), clustercache.CacheOnly))
		before := api.Total()
		s.Continue()
		c.Continue()
		require.Equal(t, []string{"(Connected)", "(one)", "(two)", "three"}, q.Names())
		require.Equal(t, before, api.Total(), "nothing was listed anew")

		s.Pause()
		c.Pause()
		api.Put("one", "7", nil)
		synctest.Wait()
		api.Die()
		time.Sleep(time.Minute)
		require.Empty(t, q.Names())
		s.Continue()
		c.Continue()
		require.Equal(t, []string{"Disconnected", "one"}, q.Names())
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, c.Close(t.Context()))
	})
}

func TestNoCallbackAfterCloseOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		for i := range 200 {
			var closed, late atomic.Bool
			check := func() {
				time.Sleep(time.Millisecond)
				if closed.Load() {
					late.Store(true)
				}
			}
			feed := events.Selection{
				Kinds: fleettest.ConfigMaps,
				Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(client.Object) bool {
					check()
					return true
				})},
			}
			mapping := func(context.Context, client.ObjectKey, client.Object) []controller.Request {
				check()
				return nil
			}
			s := controller.ObjectSource(cc, feed, mapping)
			c := controller.ClusterSource(cc, func(context.Context, events.Cluster) []controller.Request {
				check()
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			require.NoError(t, s.Start(ctx, q))
			require.NoError(t, c.Start(ctx, q))
			go api.Put("one", strconv.Itoa(i), nil)
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
			api.Put("two", strconv.Itoa(i), nil)
			synctest.Wait()
			require.False(t, late.Load())
			cancel()
		}
		synctest.Wait()
		require.Equal(t, 1, fleettest.Status(t, cc).Watches)
		require.Zero(t, fleettest.Subscriptions(t, cc))
	})
}

func TestCloseOfASourceIsBoundedByItsContextAndWorksFromWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		var s *controller.TypedObjectSource[controller.Request]
		var c *controller.TypedClusterSource[controller.Request]
		calls := 0
		var errs []error
		closing := func(context.Context, client.ObjectKey, client.Object) []controller.Request {
			calls++
			errs = append(errs, s.Close(context.Background()))
			return nil
		}
		s = controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps}, closing)
		c = controller.ClusterSource(cc, func(context.Context, events.Cluster) []controller.Request {
			errs = append(errs, c.Close(context.Background()))
			return nil
		})
		require.NoError(t, s.Start(t.Context(), q))
		synctest.Wait()
		require.NoError(t, c.Start(t.Context(), q))
		synctest.Wait()
		require.Equal(t, 1, calls, "the second object came after the end")
		require.Equal(t, []error{nil, nil}, errs)
		api.Die()
		time.Sleep(time.Minute)
		require.Len(t, errs, 2)

		block := make(chan struct{})
		stuck := controller.ClusterSource(cc, func(context.Context, events.Cluster) []controller.Request {
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
		cc, api, _ := fleettest.NewSource(t)
		first, second := &fleettest.Queue[controller.Request]{}, &fleettest.Queue[controller.Request]{}
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps, Watch: true},
			controller.EnqueueObject)
		ctx, end := context.WithCancel(t.Context())
		require.NoError(t, s.Start(ctx, first))
		require.NoError(t, s.Start(t.Context(), second))
		require.Equal(t, []string{"(one)", "(two)"}, first.Names())
		require.Equal(t, []string{"(one)", "(two)"}, second.Names(), "every one has every event")
		end()
		synctest.Wait()
		api.Put("one", "2", nil)
		require.Empty(t, first.Names())
		require.Equal(t, []string{"one"}, second.Names())
		for range 100 {
			require.NoError(t, s.Start(ctx, first)) // this context has ended
			require.Empty(t, first.Names())
		}
		require.NoError(t, s.Start(t.Context(), first))
		require.Equal(t, []string{"(one)", "(two)"}, first.Names())
		s.Stop()
		require.NoError(t, s.Start(t.Context(), first))
		synctest.Wait()
		require.Empty(t, first.Names())
		require.Equal(t, 1, fleettest.Status(t, cc).Watches)
		require.Zero(t, fleettest.Subscriptions(t, cc))
	})
}

// TestStopThatRacesWithStartLeavesNothing: in either order, with Stop and with
// the controller's end.
func TestStopThatRacesWithStartLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := fleettest.NewSource(t)
		for i := range 2000 {
			ctx, cancel := context.WithCancel(t.Context())
			s := controller.ObjectSource(cc, events.Selection{
				Kinds:          fleettest.ConfigMaps,
				Watch:          true,
				ResyncInterval: time.Hour,
			}, controller.EnqueueObject)
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
		require.Zero(t, fleettest.Subscriptions(t, cc))
		require.Equal(t, 1, fleettest.Status(t, cc).Watches)
		q.Take()
		time.Sleep(3 * time.Hour)
		require.Empty(t, q.Take())
	})
}

func TestMappingCanBeSwappedWhileTheSourceRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps},
			controller.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.Names())
		s.SetMapping(func(context.Context, client.ObjectKey, client.Object) []controller.Request {
			return []controller.Request{fleettest.RequestFor("swapped")}
		})
		api.Put("one", "2", nil)
		require.Equal(t, []string{"swapped"}, q.Names())
		s.TriggerAll()
		require.Equal(t, []string{"(swapped)", "(swapped)"}, q.Names())
		s.Stop()
	})
}

func TestClusterSourceDeliversWhatItsFiltersLetPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		all := func(_ context.Context, e events.Cluster) []controller.Request {
			return []controller.Request{{Cluster: e.Cluster, ObjectKey: client.ObjectKey{Name: string(e.Type)}}}
		}
		for _, o := range []controller.ClusterSourceOptions{
			{Types: []events.ClusterType{events.Disconnected}},
			{Clusters: func(c client.ObjectKey) bool { return c != fleettest.Key("a") }},
			{Filter: func(e events.Cluster) bool { return e.Phase == status.PhaseDisconnected }},
		} {
			s := controller.ClusterSource(cc, all, controller.ClusterSourceOptions{}, o)
			require.NoError(t, s.Start(t.Context(), q))
			require.Empty(t, q.Names())
			api.Die()
			time.Sleep(time.Minute)
			if o.Clusters == nil {
				require.Equal(t, []string{"Disconnected"}, q.Names())
			}
			api.Live()
			time.Sleep(time.Minute)
			require.Empty(t, q.Names())
			require.NoError(t, s.Close(t.Context()))
		}
		for _, o := range []controller.ClusterSourceOptions{{Debounce: -1}, {MaxDelay: -1}} {
			var e *clustercache.OptionError
			require.ErrorAs(t, controller.ClusterSource(cc, all, o).Start(t.Context(), q), &e)
		}
	})
}

// TestCloseOfASourceWaitsForDelayedRequests: that the timer, or the end of the
// controller, is queuing.
func TestCloseOfASourceWaitsForDelayedRequests(t *testing.T) {
	for _, controllerEnds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cc, _, q := fleettest.NewSource(t)
			release := make(chan struct{})
			q.Full = func(controller.Request) { <-release }
			selection := events.Selection{Kinds: fleettest.ConfigMaps}
			options := controller.ObjectSourceOptions{Debounce: time.Second}
			s := controller.ObjectSource(cc, selection, controller.EnqueueObject, options)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			require.NoError(t, s.Start(ctx, q))
			synctest.Wait()
			if controllerEnds {
				end()
			} else {
				time.Sleep(time.Second)
			}
			synctest.Wait()
			s.Stop() // does not wait
			bounded, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, s.Close(bounded), context.DeadlineExceeded)
			close(release)
			require.NoError(t, s.Close(t.Context()))
			require.Len(t, q.Take(), 2)
		})
	}
}

func TestStopEndsTheContextOfAMappingThatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := fleettest.NewSource(t)
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps},
			func(ctx context.Context, _ client.ObjectKey, _ client.Object) []controller.Request {
				<-ctx.Done()
				return []controller.Request{fleettest.RequestFor("last")}
			})
		c := controller.ClusterSource(cc, func(ctx context.Context, _ events.Cluster) []controller.Request {
			<-ctx.Done()
			return []controller.Request{fleettest.RequestFor("last")}
		})
		require.NoError(t, s.Start(t.Context(), q))
		require.NoError(t, c.Start(t.Context(), q))
		synctest.Wait()
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, []string{"(last)", "(last)"}, q.Names(), "what it returns is not lost")
	})
}

func TestNilMappingIsAnErrorAndReplacesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, q := fleettest.NewSource(t)
		selection := events.Selection{Kinds: fleettest.ConfigMaps}
		for _, s := range []source.TypedSource[controller.Request]{
			controller.ObjectSource[controller.Request](cc, selection, nil),
			controller.ClusterSource[controller.Request](cc, nil),
		} {
			var e *clustercache.OptionError
			require.ErrorAs(t, s.Start(t.Context(), q), &e)
			require.Equal(t, "mapping", e.Field)
		}

		s := controller.ObjectSource(cc, selection, controller.EnqueueObject)
		require.NoError(t, s.Start(t.Context(), q))
		require.Equal(t, []string{"(one)", "(two)"}, q.Names())
		s.SetMapping(nil)
		api.Put("one", "2", nil)
		require.Equal(t, []string{"one"}, q.Names())
		require.Zero(t, s.Failures())
		require.NoError(t, s.Close(t.Context()))
		require.Zero(t, fleettest.Subscriptions(t, cc))

		pods := []client.Object{(*unstructured.Unstructured)(nil), (*corev1.Pod)(nil), nil}
		nothing := controller.ObjectSource(cc, events.Selection{Kinds: pods}, controller.EnqueueObject)
		require.Equal(t, "fleetcache object source", nothing.String())
		require.Error(t, nothing.Start(t.Context(), q))
	})
}

// TestFailuresOfEndedRunsAreCountedOnce: the run of a controller that has ended
// is forgotten, and its failures are not.
func TestFailuresOfEndedRunsAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, q := fleettest.NewSource(t)
		s := controller.ObjectSource(cc, events.Selection{Kinds: fleettest.ConfigMaps},
			func(context.Context, client.ObjectKey, client.Object) []controller.Request { panic("no") })
		done := make(chan struct{})
		go func() { // the count never falls
			defer close(done)
			for last := int64(0); last < 200; time.Sleep(time.Microsecond) {
				now := s.Failures()
				if now < last {
					t.Errorf("%d after %d", now, last)
				}
				last = now
			}
		}()
		for range 100 {
			ctx, end := context.WithCancel(t.Context())
			require.NoError(t, s.Start(ctx, q))
			time.Sleep(10 * time.Microsecond)
			end()
		}
		<-done
		require.EqualValues(t, 200, s.Failures())
		require.NoError(t, s.Close(t.Context()))
	})
}
