// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package owning_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func TestReplicaConnectsToWhatItOwnsOrStandsByFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		require.Empty(t, cc.Clusters())
		require.Len(t, s.Clusters(), 3, "the sharding knows of all")
		require.False(t, cc.Cluster(keyA).Owned())

		s.StandBy(keyA)
		s.Gain(keyB)
		connected(t, cc, keyA, keyB)
		require.Equal(t, []client.ObjectKey{keyA, keyB}, cc.Clusters())
		require.False(t, cc.Cluster(keyA).Owned())
		require.True(t, cc.Cluster(keyB).Owned())
		require.Zero(t, apis[2].Dialled())

		s.Lose(keyB)
		synctest.Wait()
		require.Len(t, cc.Clusters(), 2, "it stands by")
		s.Cool(keyA)
		s.Cool(keyB)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, cc.Clusters())
		for _, api := range apis {
			require.Zero(t, api.Connections())
		}
	})
}

// TestGainedWhileItIsGivenUp has the opposite changes follow at once, in all
// orders that the scheduler makes of them.
func TestGainedWhileItIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, _ := newFleet(t)
		feed, err := cc.Subscribe(events.Selection{
			Kinds: []client.Object{&corev1.ConfigMap{}},
			Watch: true,
			Owned: true,
		}, func(events.Object) {})
		require.NoError(t, err)
		feed.Start()
		for i := range 200 {
			s.Gain(keyA)
			if i%3 == 0 {
				connected(t, cc, keyA)
			}
			s.Lose(keyA)
			s.Cool(keyA)
			if i%5 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		s.Gain(keyA)
		time.Sleep(time.Second)
		connected(t, cc, keyA)
		require.NotEmpty(t, watchesOf(t, cc, keyA))
		s.Lose(keyA)
		s.Cool(keyA)
		time.Sleep(time.Minute)
		require.Empty(t, cc.Clusters())
	})
}

// TestSubscriptionThatStartsWhileItsClusterIsLostWatchesNothing has the loss
// come between the look at the ownership and the watch.
func TestSubscriptionThatStartsWhileItsClusterIsLostWatchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, _ := newFleet(t)
		require.NoError(t, cc.Cluster(keyA).Engage())
		s.StandBy(keyA)
		connected(t, cc, keyA)
		lost := false
		feed, err := cc.Subscribe(events.Selection{
			Kinds: []client.Object{&corev1.ConfigMap{}},
			Watch: true,
			Owned: true,
			Clusters: func(client.ObjectKey) bool {
				if !lost {
					lost = true
					s.Cool(keyA)
					time.Sleep(time.Second)
				}
				return true
			},
		}, func(events.Object) {})
		require.NoError(t, err)
		feed.Start()
		require.True(t, lost)
		require.Empty(t, watchesOf(t, cc, keyA))
	})
}

// TestGainedBeforeItsReleaseIsHandled has a function of the operator hold up
// the cluster's mailbox, in which the release waits.
func TestGainedBeforeItsReleaseIsHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		var slow atomic.Bool
		feed, err := cc.Subscribe(events.Selection{
			Kinds: []client.Object{&corev1.ConfigMap{}},
			Watch: true,
			Clusters: func(client.ObjectKey) bool {
				if slow.Load() {
					time.Sleep(10 * time.Second)
				}
				return false
			},
		}, func(events.Object) {})
		require.NoError(t, err)
		feed.Start()
		s.Gain(keyA)
		connected(t, cc, keyA)

		slow.Store(true)
		apis[0].Die()
		for phaseOf(t, cc, keyA) == status.PhaseReady {
			time.Sleep(time.Second)
		}
		s.Lose(keyA)
		s.Cool(keyA)
		time.Sleep(time.Second)
		s.Gain(keyA)
		time.Sleep(time.Second)
		slow.Store(false)
		apis[0].Live()
		time.Sleep(time.Minute)
		connected(t, cc, keyA)
	})
}

func phaseOf(t *testing.T, cc *clustercache.ClusterCache, key client.ObjectKey) status.Phase {
	t.Helper()
	s, err := cc.Cluster(key).Status()
	require.NoError(t, err)
	return s.Phase
}

// TestReplicaReportsFilledCaches to the owner, which waits for them before it
// hands over.
func TestReplicaReportsFilledCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		begin(t, cc)
		apis[0].FailWith(-1, "configmaps")
		apis[1].Die()
		apis[2].FailWith(http.StatusForbidden, "configmaps")
		a, b, c := s.StandBy(keyA), s.StandBy(keyB), s.StandBy(keyC)
		time.Sleep(10 * time.Second)
		<-b // not reachable
		<-c // not permitted
		select {
		case <-a:
			require.Fail(t, "the list was not answered")
		default:
		}
		apis[0].Heal()
		apis[0].Cut()
		<-a
		watches := watchesOf(t, cc, keyA)
		require.Len(t, watches, 1)
		require.True(t, watches[0].Informer.Synced)
	})
}

// watchesOf returns what is watched in a cluster.
func watchesOf(t *testing.T, cc *clustercache.ClusterCache, key client.ObjectKey) []status.Watch {
	t.Helper()
	watches, err := cc.Cluster(key).WatchStatuses()
	require.NoError(t, err)
	return watches
}

// TestWatchesOfOwnersAreHeldByStandbysToo in a cluster that something else
// keeps known.
func TestWatchesOfOwnersAreHeldByStandbysToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, _ := newFleet(t)
		begin(t, cc)
		require.NoError(t, cc.Cluster(keyA).Engage())
		connected(t, cc, keyA)
		require.Empty(t, watchesOf(t, cc, keyA))
		for range 50 {
			s.StandBy(keyA)
			synctest.Wait()
			require.Len(t, watchesOf(t, cc, keyA), 1)
			s.Gain(keyA)
			s.Lose(keyA)
			synctest.Wait()
			require.Len(t, watchesOf(t, cc, keyA), 1)
			s.Cool(keyA)
			synctest.Wait()
			require.Empty(t, watchesOf(t, cc, keyA))
		}
	})
}

func TestClusterThatIsWatchedStaysKnownWhoeverOwnsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, s, apis := newFleet(t)
		w, err := cc.Cluster(keyC).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		require.False(t, cc.Cluster(keyC).Owned())
		require.NoError(t, cc.Cluster(keyC).Reader().Get(t.Context(),
			client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{}))

		s.Gain(keyC)
		synctest.Wait()
		s.Lose(keyC)
		s.Cool(keyC)
		time.Sleep(time.Minute)
		require.True(t, w.HasSynced())
		require.Equal(t, 1, apis[2].Count("stream "+fleettest.PathOf("ConfigMap")), "one list")

		w.Release()
		time.Sleep(time.Minute)
		require.Empty(t, cc.Clusters())
	})
}

// TestClustersThatAppearLaterAreShared: the sharding learns of them, whoever
// owns them.
func TestClustersThatAppearLaterAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := fleettest.NewDirectory(), clustercachetest.NewSharding()
		o := fleettest.Silent(d)
		o.Discover, o.Sharding = true, s
		cc := fleettest.Start(t, o)
		synctest.Wait()
		d.Set(keyA, fleettest.NewAPI(t, "uid-a").Config())
		time.Sleep(time.Second)
		require.Equal(t, []client.ObjectKey{keyA}, s.Clusters())
		require.Empty(t, cc.Clusters())

		s.Gain(keyA)
		connected(t, cc, keyA)
	})
}

func TestOwnershipIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, s := prometheus.NewPedanticRegistry(), clustercachetest.NewSharding()
		cc, _ := fleettest.NewFleet(t, 3, func(o *clustercache.Options) {
			o.Discover, o.Sharding, o.MetricsRegisterer = true, s, registry
		})
		synctest.Wait()
		s.Gain(keyA)
		s.StandBy(keyB)
		connected(t, cc, keyA, keyB)
		status, err := cc.Cluster(keyA).Status()
		require.NoError(t, err)
		require.True(t, status.Ownership.Owned)
		require.Equal(t, s.Slot(keyA), status.Ownership.Slot)
		require.NotZero(t, status.Ownership.Token)

		get := func(query string) string {
			w := httptest.NewRecorder()
			cc.DebugHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?"+query, nil))
			return w.Body.String()
		}
		require.Contains(t, get(""), fmt.Sprintf("<td>owned, slot %d</td>", s.Slot(keyA)))
		require.Contains(t, get(""), fmt.Sprintf("<td>standby, slot %d</td>", s.Slot(keyB)))
		require.Contains(t, get("cluster=fleet/a"), "token 1, for")
		require.Contains(t, get("format=json"), `"standsBy": true`)

		s.Lose(keyA)
		s.Gain(keyB)
		s.Drain(keyB, time.Minute)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP fleetcache_sharding_moves_total Slots that this replica has gained and lost, if replicas share the clusters.
# TYPE fleetcache_sharding_moves_total counter
fleetcache_sharding_moves_total{cache="default",change="gained"} 2
fleetcache_sharding_moves_total{cache="default",change="lost"} 1
`), "fleetcache_sharding_moves_total"))
		families, err := registry.Gather()
		require.NoError(t, err)
		states := map[string]float64{}
		for _, f := range families {
			if f.GetName() != "fleetcache_sharding_clusters" {
				continue
			}
			for _, m := range f.GetMetric() {
				states[m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
			}
		}
		require.Equal(t, map[string]float64{
			"owned":    0,
			"draining": 1,
			"standby":  1,
			"other":    1,
		}, states)
	})
}

func TestInvalidSharding(t *testing.T) {
	o := fleettest.Silent(fleettest.NewDirectory())
	o.Sharding = (*clustercachetest.Sharding)(nil)
	_, err := clustercache.New(o)
	var invalid *clustercache.OptionError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "Sharding", invalid.Field)
}
