// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var prod = labels.SelectorFromSet(labels.Set{"env": "prod"})

// labelled is a fleet of clusters whose labels a test sets.
type labelled struct {
	*settable.Resolver

	t *testing.T
}

func (l labelled) set(name string, api *fleettest.API, env string) {
	l.t.Helper()
	access, err := resolver.NewAccess(api.Config())
	require.NoError(l.t, err)
	l.Set(fleettest.Key(name), access.WithLabels(map[string]string{"env": env}), nil)
}

func newLabelled(t *testing.T) (labelled, *clustercache.ClusterCache) {
	t.Helper()
	l := labelled{Resolver: settable.New(), t: t}
	l.Synced()
	o := fleettest.Silent(l)
	o.Discover = true
	return l, fleettest.Start(t, o)
}

// TestHazardLabelsChangeWithoutTheAccess: a change of the labels alone costs no
// connection, no list and no request, and subscribers are notified once.
func TestHazardLabelsChangeWithoutTheAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		api := fleettest.NewAPI(t, "uid-a")
		received := fleettest.Follow(t, cc)
		_, known := cc.Cluster(fleettest.Key("a")).Labels()
		require.False(t, known)
		l.set("a", api, "dev")
		first := received.Wait(fleettest.Key("a"), events.Relabeled, events.Connected)
		require.Equal(t, events.Connected, first.Type, "labels that become known are no change")
		fleettest.Watch(t, cc)
		synctest.Wait()
		require.Equal(t, map[string]string{"env": "dev"}, fleettest.Status(t, cc).Labels)
		require.Empty(t, received.Events)

		requests, dials := api.Total(), api.Dialled()
		l.set("a", api, "prod")
		synctest.Wait()
		require.Len(t, received.Events, 1)
		e := <-received.Events
		require.Equal(t, events.Relabeled, e.Type)
		require.Equal(t, status.PhaseReady, e.Phase)
		have, known := cc.Cluster(fleettest.Key("a")).Labels()
		require.True(t, known)
		require.Equal(t, map[string]string{"env": "prod"}, have)
		require.Equal(t, requests, api.Total())
		require.Equal(t, dials, api.Dialled())
		status := fleettest.Status(t, cc)
		require.Equal(t, 1, status.Connects)
		require.Equal(t, have, status.Labels)

		have["env"] = "changed by a caller"
		require.Equal(t, map[string]string{"env": "prod"}, fleettest.Status(t, cc).Labels)
		l.Set(fleettest.Key("a"), resolver.Access{}, errors.New("quota is used up"))
		time.Sleep(time.Minute)
		require.Equal(t, map[string]string{"env": "prod"}, fleettest.Status(t, cc).Labels, "the last that were given")
		l.Delete(fleettest.Key("a"))
		time.Sleep(time.Minute)
		_, known = cc.Cluster(fleettest.Key("a")).Labels()
		require.False(t, known)
	})
}

// TestChangesOfLabelsAreMergedWithNothingElse: a subscriber that is slow gets
// one event of all changes of the labels, and no other event is lost to it. One
// that comes later gets none.
func TestChangesOfLabelsAreMergedWithNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		api := fleettest.NewAPI(t, "uid-a")
		subscribe := func(to *[]events.ClusterType) events.Subscription {
			s, err := cc.SubscribeClusters(func(e events.Cluster) { *to = append(*to, e.Type) })
			require.NoError(t, err)
			s.Start()
			synctest.Wait()
			return s
		}
		l.set("a", api, "dev")
		synctest.Wait()
		var slow, later []events.ClusterType
		s := subscribe(&slow)
		s.Pause()
		slow = nil
		l.set("a", api, "prod")
		api.FailWith(http.StatusInternalServerError, "readyz")
		time.Sleep(11 * time.Second) // a probe
		require.Equal(t, status.PhaseDegraded, fleettest.Status(t, cc).Phase)
		api.Heal()
		l.set("a", api, "dev")
		synctest.Wait()
		l.set("a", api, "prod")
		synctest.Wait()
		s.Continue()
		synctest.Wait()
		require.Equal(t, []events.ClusterType{events.PhaseChanged, events.Relabeled}, slow)

		s.Pause()
		slow = nil
		l.set("a", api, "dev")
		for range 3 {
			api.Die()
			time.Sleep(2 * time.Minute)
			api.Live()
			time.Sleep(2 * time.Minute)
		}
		s.Continue()
		synctest.Wait()
		require.Contains(t, slow, events.Relabeled, "many connects do not supersede it")

		subscribe(&later)
		require.Contains(t, later, events.Connected)
		require.NotContains(t, later, events.Relabeled)
	})
}

// TestSelectionByLabelsOfClusters: clusters enter and leave a selection, those
// that come later and those that cannot be reached included.
func TestSelectionByLabelsOfClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		a, b := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-b")
		a.Put("one", "1", nil)
		b.Put("two", "1", nil)
		objects := fleettest.FollowObjects(t, cc, events.Selection{
			Kinds:           fleettest.ConfigMaps,
			ClusterSelector: prod,
			Watch:           true,
		})
		l.set("a", a, "dev")
		b.Die()
		l.set("b", b, "prod")
		time.Sleep(time.Minute)
		require.Zero(t, a.Watching(fleettest.PathOf("ConfigMap")))
		watches, err := cc.Cluster(fleettest.Key("b")).WatchStatuses()
		require.NoError(t, err)
		require.Len(t, watches, 1, "a cluster that cannot be reached has labels, too")
		b.Live()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Added two"}, objects.Take())

		l.set("a", a, "prod")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Added one"}, objects.Take())
		require.Equal(t, 1, a.WatchingNow(fleettest.PathOf("ConfigMap")))

		l.set("a", a, "dev")
		time.Sleep(10 * time.Minute)
		require.Zero(t, a.WatchingNow(fleettest.PathOf("ConfigMap")), "released")
		require.Equal(t, 1, b.WatchingNow(fleettest.PathOf("ConfigMap")))
		a.Put("one", "2", nil)
		b.Put("two", "2", nil)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Updated two"}, objects.Take(), "its objects still exist, and are delivered no more")

		l.set("a", a, "prod")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Added one"}, objects.Take())

		l.Delete(fleettest.Key("a"))
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"Deleted one"}, objects.Take(), "a cluster that is gone is no cluster that leaves")
	})
}

// TestSelectionByLabelsOfWatchesOfOthers: without Watch, a cluster that leaves
// keeps its watch, whose events are delivered no more.
func TestSelectionByLabelsOfWatchesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		objects := fleettest.FollowObjects(t, cc, events.Selection{
			Kinds:           fleettest.ConfigMaps,
			ClusterSelector: prod,
		})
		l.set("a", api, "prod")
		fleettest.Watch(t, cc)
		time.Sleep(time.Second)
		require.Equal(t, []string{"Added one"}, objects.Take())
		l.set("a", api, "dev")
		synctest.Wait()
		api.Put("one", "2", nil)
		synctest.Wait()
		require.Empty(t, objects.Take())
		l.set("a", api, "prod")
		synctest.Wait()
		require.Equal(t, []string{"Added one"}, objects.Take())
		require.Equal(t, 1, api.WatchingNow(fleettest.PathOf("ConfigMap")))
	})
}

// TestHazardRelabeledWhileDisconnected: a cluster that cannot be reached leaves
// and enters by its labels alone, and its connection is tried no more often for
// it than its access changes.
func TestHazardRelabeledWhileDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		objects := fleettest.FollowObjects(t, cc, events.Selection{
			Kinds:           fleettest.ConfigMaps,
			ClusterSelector: prod,
			Watch:           true,
		})
		watches := func() int {
			all, err := cc.Cluster(fleettest.Key("a")).WatchStatuses()
			require.NoError(t, err)
			return len(all)
		}
		l.set("a", api, "prod")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Added one"}, objects.Take())
		api.Die()
		time.Sleep(5 * time.Minute)
		require.Equal(t, status.PhaseDisconnected, fleettest.Status(t, cc).Phase)

		l.set("a", api, "dev")
		synctest.Wait()
		require.Zero(t, watches(), "released while nothing answers")
		api.Live()
		time.Sleep(10 * time.Minute)
		require.Zero(t, api.WatchingNow(fleettest.PathOf("ConfigMap")))
		require.Empty(t, objects.Take())

		api.Die()
		time.Sleep(5 * time.Minute)
		l.set("a", api, "prod")
		synctest.Wait()
		require.Equal(t, 1, watches())
		api.Live()
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"Added one"}, objects.Take())
	})
}

// TestHazardRelabeledDuringDelivery: a handler is busy with one object of a
// cluster while the cluster leaves. The others that wait are not delivered, and
// all are when it enters again, however briefly it was away.
func TestHazardRelabeledDuringDelivery(t *testing.T) {
	for _, watch := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, cc := newLabelled(t)
			api := fleettest.NewAPI(t, "uid-a")
			for _, name := range []string{"one", "two", "three"} {
				api.Put(name, "1", nil)
			}
			busy, proceed := make(chan struct{}), make(chan struct{})
			var once sync.Once
			delivered := map[string]int{}
			s, err := cc.Subscribe(events.Selection{
				Kinds:           fleettest.ConfigMaps,
				ClusterSelector: prod,
				Watch:           watch,
			}, func(e events.Object) {
				once.Do(func() {
					close(busy)
					<-proceed
				})
				delivered[string(e.Type)+" "+e.Object().GetName()]++
			})
			require.NoError(t, err)
			wait := func() {
				time.Sleep(10 * time.Minute)
				synctest.Wait()
			}
			s.Start()
			defer s.Stop()
			l.set("a", api, "prod")
			if !watch {
				fleettest.Watch(t, cc)
			}
			<-busy
			l.set("a", api, "dev")
			synctest.Wait()
			close(proceed)
			wait()
			require.Len(t, delivered, 1, "the one that was being delivered")

			clear(delivered)
			l.set("a", api, "prod")
			wait()
			require.Equal(t, map[string]int{"Added one": 1, "Added two": 1, "Added three": 1}, delivered)

			l.set("a", api, "dev")
			l.set("a", api, "prod")
			api.Put("one", "2", nil)
			wait()
			require.NotZero(t, delivered["Updated one"]+delivered["Added one"]-1, "the last state")
			require.Zero(t, delivered["Deleted one"])
			l.Delete(fleettest.Key("a"))
			wait()
			require.Equal(t, 1, delivered["Deleted one"])
		})
	}
}

// TestRandomLabelsMatchAModel: after any sequence of changes, made at once by
// several goroutines, exactly the clusters that match are watched.
func TestRandomLabelsMatchAModel(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test that can be repeated
			l, cc := newLabelled(t)
			s, err := cc.Subscribe(events.Selection{
				Kinds:           fleettest.ConfigMaps,
				ClusterSelector: prod,
				Watch:           true,
			}, func(events.Object) {})
			require.NoError(t, err)
			s.Start()

			apis := make([]*fleettest.API, 4)
			for i := range apis {
				apis[i] = fleettest.NewAPI(t, "uid-"+strconv.Itoa(i))
			}
			for range 15 {
				var changes sync.WaitGroup
				last := make([]string, len(apis))
				for i, api := range apis {
					envs := make([]string, 1+random.IntN(4))
					for j := range envs {
						envs[j] = []string{"dev", "prod", ""}[random.IntN(3)]
					}
					last[i] = envs[len(envs)-1]
					changes.Go(func() {
						for _, env := range envs {
							if env == "" {
								l.Delete(fleettest.Key(strconv.Itoa(i)))
								continue
							}
							l.set(strconv.Itoa(i), api, env)
						}
					})
				}
				changes.Wait()
				time.Sleep(time.Duration(random.IntN(100)) * time.Second)
				time.Sleep(3 * time.Minute)
				for i := range apis {
					watches := 0
					if all, err := cc.Cluster(fleettest.Key(strconv.Itoa(i))).WatchStatuses(); err == nil {
						watches = len(all)
					}
					require.Equal(t, last[i] == "prod", watches == 1, "cluster %d, %q, seed %d", i, last[i], seed)
				}
			}
			s.Stop()
		})
	}
}
