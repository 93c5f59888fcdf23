// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// subscriptionKinds make subscriptions of both kinds, whose events are reported
// as short texts: "Connected" or "Added one", in parentheses if they are
// initial or delivered once more.
var subscriptionKinds = map[string]func(*clustercache.ClusterCache, func(string)) (events.Subscription, error){
	"objects": func(cc *clustercache.ClusterCache, handler func(string)) (events.Subscription, error) {
		selection := events.Selection{Kinds: fleettest.ConfigMaps, Watch: true}
		return cc.Subscribe(selection, func(e events.Object) {
			handler(marked(string(e.Type)+" "+e.Object().GetName(), e.Initial || e.Resync))
		})
	},
	"clusters": func(cc *clustercache.ClusterCache, handler func(string)) (events.Subscription, error) {
		return cc.SubscribeClusters(func(e events.Cluster) { handler(marked(string(e.Type), e.Initial)) })
	},
}

func marked(text string, again bool) string {
	if again {
		return "(" + text + ")"
	}
	return text
}

// eventTexts records the events of a subscription.
type eventTexts struct {
	mu    sync.Mutex // protects texts
	texts []string
}

func (l *eventTexts) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, text)
}

// take returns the events since the last call.
func (l *eventTexts) take() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	texts := l.texts
	l.texts = nil

	return texts
}

// eachSubscription runs a test for both kinds of subscriptions.
func eachSubscription(t *testing.T, f func(t *testing.T, cc *clustercache.ClusterCache, api *fleettest.API,
	subscribe func(func(string)) events.Subscription)) {
	t.Helper()
	for name, of := range subscriptionKinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, _ := fleettest.OneCluster(t)
				fleettest.Synced(t, cc, api)
				f(t, cc, api, func(handler func(string)) events.Subscription {
					s, err := of(cc, handler)
					require.NoError(t, err)
					return s
				})
				require.Zero(t, fleettest.Subscriptions(t, cc), "one is left behind")
				require.Equal(t, 1, fleettest.Status(t, cc).Watches)
			})
		})
	}
}

func TestSubscriptionWithoutAHandlerOrAfterTheEndIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
		require.NoError(t, err)
		_, objects := cc.Subscribe(events.Selection{}, nil)
		_, clusters := cc.SubscribeClusters(nil)
		for _, err := range []error{objects, clusters} {
			var e *clustercache.OptionError
			require.ErrorAs(t, err, &e)
			require.Equal(t, "handler", e.Field)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, cc.Start(ctx))
		for _, of := range subscriptionKinds {
			_, err := of(cc, func(string) {})
			require.ErrorIs(t, err, clustercache.ErrClosed)
		}
	})
}

func TestSubscriptionDeliversFromStartUntilStopAndStartsOnce(t *testing.T) {
	eachSubscription(t, func(t *testing.T, cc *clustercache.ClusterCache, api *fleettest.API,
		subscribe func(func(string)) events.Subscription) {
		log := &eventTexts{}
		s := subscribe(log.add)
		s.TriggerAll()
		require.Empty(t, log.take(), "before Start")
		require.Zero(t, fleettest.Subscriptions(t, cc))
		s.Start()
		require.NotEmpty(t, log.take())
		s.Start()
		require.Empty(t, log.take(), "after another Start")
		require.Equal(t, 1, fleettest.Subscriptions(t, cc))
		s.Stop()
		s.Stop()
		s.Start()
		s.Continue()
		s.TriggerAll()
		api.Put("one", "2", nil)
		api.Die()
		time.Sleep(time.Minute)
		require.Empty(t, log.take(), "after Stop")
		require.NoError(t, s.Close(t.Context()))

		never := subscribe(log.add)
		require.NoError(t, never.Close(t.Context()))
		never.Start()
		require.Empty(t, log.take(), "Close came before Start")
	})
}

func TestSecondStartDoesNotPostponeTheResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		resyncs := 0
		selection := events.Selection{Kinds: fleettest.ConfigMaps, ResyncInterval: time.Hour}
		s, err := cc.Subscribe(selection, func(e events.Object) {
			if e.Resync {
				resyncs++
			}
		})
		require.NoError(t, err)
		for range 3 {
			s.Start()
			time.Sleep(30 * time.Minute)
		}
		synctest.Wait()
		require.Equal(t, 2, resyncs, "one of each object")
		require.NoError(t, s.Close(t.Context()))
	})
}

func TestPausedSubscriptionDeliversTheLastStateOnce(t *testing.T) {
	eachSubscription(t, func(t *testing.T, _ *clustercache.ClusterCache, api *fleettest.API,
		subscribe func(func(string)) events.Subscription) {
		log := &eventTexts{}
		s := subscribe(log.add)
		s.Pause()
		s.Start()
		require.Empty(t, log.take(), "paused before Start")
		s.Continue()
		require.NotEmpty(t, log.take())

		s.Pause()
		for _, value := range []string{"5", "6", "7"} {
			api.Put("one", value, nil)
			synctest.Wait()
		}
		api.Die()
		time.Sleep(time.Minute)
		require.Empty(t, log.take())
		s.Continue()
		require.Subset(t, []string{"Updated one", "Disconnected"}, log.take())
		require.NoError(t, s.Close(t.Context()))
	})
}

func TestTriggerDeliversTheStateOnceMore(t *testing.T) {
	eachSubscription(t, func(t *testing.T, _ *clustercache.ClusterCache, _ *fleettest.API,
		subscribe func(func(string)) events.Subscription) {
		log := &eventTexts{}
		s := subscribe(log.add)
		s.Start()
		log.take()
		one := client.ObjectKey{Namespace: "default", Name: "one"}
		s.Trigger(fleettest.Key("a"), fleettest.ConfigMap, one)
		got := log.take()
		require.Len(t, got, 1)
		require.Contains(t, []string{"(Updated one)", "(Connected)"}, got[0])
		s.Trigger(fleettest.Key("unknown"), fleettest.ConfigMap, one)
		require.Empty(t, log.take())
		s.TriggerAll()
		s.TriggerAll()
		require.NotEmpty(t, log.take())
		require.NoError(t, s.Close(t.Context()))
	})
}

// TestHazardTriggeredStateAmongChanges: a state that was delivered once more
// counted as a change, so that a Disconnected was lost between two Connected.
func TestHazardTriggeredStateAmongChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		log := &eventTexts{}
		s, err := cc.SubscribeClusters(func(e events.Cluster) {
			if e.Type == events.Connected || e.Type == events.Disconnected {
				log.add(marked(string(e.Type), e.Initial))
			}
		})
		require.NoError(t, err)
		s.Start()
		require.Equal(t, []string{"(Connected)"}, log.take())
		flip := []func(){api.Die, api.Live}
		for changes := range 6 {
			s.Pause()
			s.TriggerAll()
			for range changes {
				flip[0]()
				flip[0], flip[1] = flip[1], flip[0]
				time.Sleep(time.Minute)
			}
			s.TriggerAll() // the state is waiting already
			s.Continue()
			got := log.take()
			require.LessOrEqual(t, len(got), 2)
			real := 0
			for _, text := range got {
				if text[0] != '(' {
					real++
				}
			}
			require.Equal(t, changes%2, real%2, "%d changes: %v", changes, got)
			require.Equal(t, changes > 0, real > 0, "%d changes: %v", changes, got)
		}
		require.NoError(t, s.Close(t.Context()))
	})
}

func TestTriggerCompletesAStateOfWhichOnlyThePhaseIsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		log := &eventTexts{}
		s, err := cc.SubscribeClusters(func(e events.Cluster) { log.add(marked(string(e.Type), e.Initial)) })
		require.NoError(t, err)
		s.Start()
		require.Equal(t, []string{"(Connected)"}, log.take())
		s.Pause()
		api.Die()
		for began := time.Now(); fleettest.Status(t, cc).Phase != status.PhaseDegraded; {
			require.Less(t, time.Since(began), time.Minute)
			time.Sleep(50 * time.Millisecond) // a dead server is Degraded for less than a second
		}
		s.TriggerAll()
		s.Continue()
		require.Equal(t, []string{"(Connected)", "PhaseChanged"}, log.take())
		require.NoError(t, s.Close(t.Context()))
	})
}

func TestCloseWaitsForTheHandlerButNotForItsOwnCall(t *testing.T) {
	eachSubscription(t, func(t *testing.T, _ *clustercache.ClusterCache, api *fleettest.API,
		subscribe func(func(string)) events.Subscription) {
		block := make(chan struct{})
		calls := atomic.Int32{}
		s := subscribe(func(string) { calls.Add(1); <-block })
		s.Start()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Close(ctx), context.DeadlineExceeded)
		closed := make(chan error)
		for range 2 {
			go func() { closed <- s.Close(t.Context()) }()
		}
		synctest.Wait()
		require.Empty(t, closed)
		close(block)
		require.NoError(t, <-closed)
		require.NoError(t, <-closed)
		synctest.Wait()
		require.EqualValues(t, 1, calls.Load())

		var own events.Subscription
		within := make(chan error, 10)
		own = subscribe(func(string) {
			own.Pause()
			own.Continue()
			own.TriggerAll()
			own.Start()
			within <- own.Close(context.Background())
			own.Stop()
		})
		own.Start()
		synctest.Wait()
		require.NoError(t, <-within)
		require.Empty(t, within, "nothing is delivered after Close")
		api.Die()
		time.Sleep(time.Minute)
		require.Empty(t, within)
	})
}

func TestPanicOrGoexitOfAHandlerLosesOneEventAndIsCounted(t *testing.T) {
	eachSubscription(t, func(t *testing.T, _ *clustercache.ClusterCache, api *fleettest.API,
		subscribe func(func(string)) events.Subscription) {
		log := &eventTexts{}
		fail := func() { panic("no") }
		s := subscribe(func(text string) {
			defer log.add(text)
			if fail != nil {
				fail()
			}
		})
		s.Start()
		lost := len(log.take())
		require.EqualValues(t, lost, s.Failures())
		fail = runtime.Goexit
		s.TriggerAll()
		require.Len(t, log.take(), lost)
		require.EqualValues(t, 2*lost, s.Failures())
		fail = nil
		s.TriggerAll()
		require.Len(t, log.take(), lost)
		require.NoError(t, s.Close(t.Context()))
		require.EqualValues(t, 2*lost, s.Failures(), "after Close")
		api.Put("one", "9", nil)
		require.Empty(t, log.take())
	})
}

func TestClusterCacheThatEndsFirstEndsSubscriptions(t *testing.T) {
	for name, of := range subscriptionKinds {
		for _, paused := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				api := fleettest.NewAPI(t, "uid-a")
				api.Put("one", "1", nil)
				d := fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), api.Config())
				cc, err := clustercache.New(fleettest.Silent(d))
				require.NoError(t, err)
				log := &eventTexts{}
				s, err := of(cc, log.add)
				require.NoError(t, err)
				late, err := of(cc, log.add)
				require.NoError(t, err)
				s.Start()
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- cc.Start(ctx) }()
				time.Sleep(time.Second)
				require.NotEmpty(t, log.take(), name)
				if paused {
					s.Pause()
					s.TriggerAll()
				}
				cancel()
				require.NoError(t, <-ended, name)
				late.Start()
				s.Continue()
				s.TriggerAll()
				require.Empty(t, log.take(), name)
				require.NoError(t, s.Close(t.Context()))
				require.NoError(t, late.Close(t.Context()))
			})
		}
	}
}

// TestStartAndCloseAtOnceLeaveNothing: in any order, nothing is delivered after
// Close, and no watch, goroutine or registration is left.
func TestStartAndCloseAtOnceLeaveNothing(t *testing.T) {
	eachSubscription(t, func(t *testing.T, _ *clustercache.ClusterCache, _ *fleettest.API,
		subscribe func(func(string)) events.Subscription) {
		for range 500 {
			var closed, late atomic.Bool
			s := subscribe(func(string) {
				if closed.Load() {
					late.Store(true)
				}
			})
			var racers sync.WaitGroup
			for _, f := range []func(){s.Start, s.Start, s.Pause, s.Continue, s.TriggerAll, s.Stop} {
				racers.Go(f)
			}
			racers.Go(func() {
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				closed.Store(true)
			})
			racers.Wait()
			synctest.Wait()
			require.False(t, late.Load())
		}
	})
}

func TestObjectEventIsDecodedOnceForEachRepresentation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		var judged client.Object
		var got []events.Object
		s, err := cc.Subscribe(events.Selection{
			Kinds: fleettest.ConfigMaps,
			Predicates: []predicate.Predicate{predicate.NewPredicateFuncs(func(o client.Object) bool {
				judged = o
				return true
			})},
		}, func(e events.Object) { got = append(got, e) })
		require.NoError(t, err)
		s.Start()
		synctest.Wait()
		e := got[len(got)-1]
		given, err := e.As(events.AsGiven, e.New)
		require.NoError(t, err)
		require.IsType(t, &corev1.ConfigMap{}, given)
		require.Same(t, judged, given, "predicates and the handler share it")
		configMap := corev1.SchemeGroupVersion.WithKind("ConfigMap")
		for _, r := range []events.Representation{
			events.Typed, events.Unstructured, events.Metadata, events.Packed,
		} {
			first, err := e.As(r, e.New)
			require.NoError(t, err)
			second, err := e.As(r, e.New)
			require.NoError(t, err)
			require.Same(t, first, second)
			require.Equal(t, configMap, first.GetObjectKind().GroupVersionKind())
			none, err := e.As(r, e.Old)
			require.NoError(t, err)
			require.Equal(t, client.Object(nil), none, "a typed nil pointer would be taken for an object")
		}
		_, err = e.As(events.Metadata+1, e.New)
		require.ErrorIs(t, err, clustercache.ErrUnsupported)
		_, err = events.Object{Event: e.Event}.As(events.Typed, e.New)
		require.ErrorIs(t, err, clustercache.ErrUnsupported)
		require.NoError(t, s.Close(t.Context()))
	})
}
