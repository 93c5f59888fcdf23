// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/repeat"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// downWithin is the bound for a server that refuses connections.
const downWithin = 2 * time.Second

// TestHazardStoppedServerIsReportedLate: a server that refuses connections is
// Disconnected within two seconds of the first stream that broke, or the first
// request that was refused. Its status shows since when, how many attempts
// failed, and when the next one is due.
func TestHazardStoppedServerIsReportedLate(t *testing.T) {
	for name, notice := range map[string]func(t *testing.T, cc *clustercache.ClusterCache){
		"stream": func(*testing.T, *clustercache.ClusterCache) {},
		"read": func(t *testing.T, cc *clustercache.ClusterCache) {
			t.Helper()
			require.Error(t, fleettest.Get(t, cc, clustercache.LiveOnly))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, _ := fleettest.OneCluster(t)
				if name == "stream" {
					fleettest.Synced(t, cc, api)
				}
				require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
				time.Sleep(3 * time.Second)
				require.Zero(t, fleettest.Status(t, cc).LostSince)
				died := time.Now()
				api.Die()
				notice(t, cc)
				time.Sleep(downWithin)
				synctest.Wait()
				s := fleettest.Status(t, cc)
				require.Equal(t, status.PhaseDisconnected, s.Phase)
				require.Equal(t, "Unreachable", s.Reason)
				require.WithinRange(t, s.LostSince, died, died.Add(downWithin))
				require.GreaterOrEqual(t, s.Failures, 3)
				require.True(t, s.NextAttempt.After(time.Now()), "%s", s.NextAttempt)

				lost, failures := s.LostSince, s.Failures
				time.Sleep(5 * time.Minute)
				s = fleettest.Status(t, cc)
				require.Equal(t, lost, s.LostSince)
				require.Greater(t, s.Failures, failures)
				api.Live()
				require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
				s = fleettest.Status(t, cc)
				require.Zero(t, s.LostSince)
				require.Zero(t, s.Failures)
				require.Zero(t, s.NextAttempt)
			})
		})
	}
}

// TestFailuresCountAttemptsThatNeverReachedTheServer: a cluster without a
// Secret fails as one that cannot be reached does, and one that is not ready
// does not.
func TestFailuresCountAttemptsThatNeverReachedTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		cc := fleettest.Start(t, fleettest.Silent(d))
		d.Fail(fleettest.Key("a"), resolver.ErrNotReady)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		received := fleettest.Follow(t, cc)
		time.Sleep(time.Minute)
		s := fleettest.Status(t, cc)
		require.Zero(t, s.Failures)
		require.Zero(t, s.LastProbe)
		require.True(t, s.NextAttempt.After(time.Now()))
		told := len(received.Events)

		d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
		synctest.Wait()
		s = fleettest.Status(t, cc)
		require.Equal(t, 1, s.Failures)
		require.Zero(t, s.LastProbe)
		require.Zero(t, s.LastProbeSuccess)
		require.Zero(t, s.LostSince, "it was never connected")
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, fleettest.Status(t, cc).Failures, 6)
		require.Len(t, received.Events, told+1, "the first failure, in the same phase")
	})
}

// TestHazardStreamsThatEndCauseProbes: streams that end at their time cause no
// probe, however many clusters and streams there are. A burst of broken ones
// causes one in each cluster at most, and none where one of them is resumed
// within half a second, as one of many is.
func TestHazardStreamsThatEndCauseProbes(t *testing.T) {
	for _, size := range []struct{ clusters, watches int }{{repeat.Times(1000), 1}, {repeat.Times(20), 20}} {
		t.Run(fmt.Sprintf("%d clusters, %d watches each", size.clusters, size.watches), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { streamsEnd(t, size.clusters, size.watches) })
		})
	}
}

func streamsEnd(t *testing.T, clusters, watches int) {
	t.Helper()
	cc, apis := fleettest.NewFleet(t, clusters, func(o *clustercache.Options) {
		o.ProbeInterval = time.Hour
		o.Informers.WatchTimeout = time.Minute
	})
	for i := range clusters {
		for n := range watches {
			w, err := cc.Cluster(fleettest.Key(string(rune('a'+i)))).Watch(t.Context(), &corev1.ConfigMap{},
				client.MatchingLabels{"n": strconv.Itoa(n)})
			require.NoError(t, err)
			require.NoError(t, w.WaitForSync(t.Context()))
		}
	}
	count := func(what string) (least, most int) {
		least = math.MaxInt
		for _, api := range apis {
			least, most = min(least, api.Count(what)), max(most, api.Count(what))
		}
		return least, most
	}
	probed := func() int {
		_, most := count("get /readyz")
		return most
	}
	time.Sleep(130 * time.Second)
	resumed, _ := count("watch " + fleettest.PathOf("ConfigMap"))
	require.GreaterOrEqual(t, resumed, watches, "streams that reached their limit")
	require.Equal(t, 1, probed(), "to connect")

	for _, api := range apis {
		api.Fake.Cut(func(*fakeapi.Request) bool { return true })
	}
	time.Sleep(10 * time.Second)
	require.Equal(t, 1, probed(), "streams that end in order")

	for _, api := range apis {
		api.Cut()
	}
	time.Sleep(10 * time.Second)
	require.LessOrEqual(t, probed(), 2, "streams that broke")
	if watches > 1 {
		require.Equal(t, 1, probed(), "streams that broke, and were resumed")
	}
	for _, s := range cc.Statuses() {
		require.Equal(t, status.PhaseReady, s.Phase)
		require.Equal(t, watches, s.Synced)
	}
}

// TestRealStoppedServerIsDisconnected stops a server in order, and kills it: it
// refuses connections then. TestHazardStoppedServerIsReportedLate proves that it
// is disconnected within downWithin.
func TestRealStoppedServerIsDisconnected(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, 1)[0]
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), server.Config())
	cc := fleettest.Start(t, clustercache.Options{Resolver: d, ConnectConcurrency: 1})
	clusters := fleettest.Follow(t, cc)
	require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
	clusters.Wait(fleettest.Key("a"), events.Connected)
	for name, stop := range map[string]func() error{
		"stop": func() error { return server.StopAPIServer(t.Context()) },
		"kill": server.Kill,
	} {
		require.NoError(t, stop(), name)
		stopped := time.Now()
		e := clusters.Wait(fleettest.Key("a"), events.Disconnected)
		t.Logf("%s: disconnected after %s", name, time.Since(stopped).Round(time.Millisecond))
		require.Equal(t, "Unreachable", e.Reason, name)
		require.Equal(t, status.PhaseDisconnected, fleettest.Status(t, cc).Phase)

		require.NoError(t, server.StartAPIServer(t.Context()))
		clusters.Wait(fleettest.Key("a"), events.Connected)
	}
}
