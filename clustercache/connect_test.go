// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

func status(t *testing.T, cc *clustercache.ClusterCache) clustercache.Status {
	t.Helper()
	s, err := cc.Status(key("a"))
	require.NoError(t, err)
	return s
}

func TestEachFailureHasItsPhaseAndReasonAndHealsByItself(t *testing.T) {
	for name, tc := range map[string]struct {
		breakIt func(api *fakeAPI, d *directory)
		phase   clustercache.Phase
		reason  string
	}{
		"no Secret":  {func(_ *fakeAPI, d *directory) { d.fail(key("a"), resolver.ErrSecretNotFound) }, clustercache.PhasePending, "NoAccess"},
		"no cluster": {func(_ *fakeAPI, d *directory) { d.fail(key("a"), resolver.ErrClusterNotFound) }, clustercache.PhaseGone, "ClusterNotFound"},
		"refused field": {func(_ *fakeAPI, d *directory) {
			d.fail(key("a"), &resolver.RefusedError{Field: "user.exec", Reason: "is refused"})
		}, clustercache.PhaseRefused, "Refused"},
		"bad kubeconfig": {func(_ *fakeAPI, d *directory) { d.fail(key("a"), &resolver.KubeconfigError{Reason: "is no YAML"}) }, clustercache.PhaseDisconnected, "BadAccess"},
		"hub trouble":    {func(_ *fakeAPI, d *directory) { d.fail(key("a"), errors.New("hub")) }, clustercache.PhaseDisconnected, "Unknown"},
		"401":            {func(api *fakeAPI, _ *directory) { api.failWith(http.StatusUnauthorized, "/") }, clustercache.PhaseDisconnected, "Unauthorized"},
		"503":            {func(api *fakeAPI, _ *directory) { api.failWith(http.StatusServiceUnavailable, "/") }, clustercache.PhaseDisconnected, "Server"},
		"429":            {func(api *fakeAPI, _ *directory) { api.failWith(http.StatusTooManyRequests, "/") }, clustercache.PhaseDisconnected, "Throttled"},
		"redirect":       {func(api *fakeAPI, _ *directory) { api.failWith(http.StatusTemporaryRedirect, "/") }, clustercache.PhaseRefused, "Refused"},
		"hangs":          {func(api *fakeAPI, _ *directory) { api.failWith(-1, "/") }, clustercache.PhaseDisconnected, "Timeout"},
		"nobody listens": {func(api *fakeAPI, _ *directory) { api.die() }, clustercache.PhaseDisconnected, "Unreachable"},
		"no kube-system": {func(api *fakeAPI, _ *directory) { api.failWith(http.StatusInternalServerError, "kube-system") }, clustercache.PhaseDisconnected, "Server"},
		"resolver hangs": {func(_ *fakeAPI, d *directory) {
			d.answer(key("a"), func() (clustercache.Access, error) {
				time.Sleep(5 * time.Second)
				return clustercache.Access{}, errors.New("slow")
			})
		}, clustercache.PhaseDisconnected, "Unknown"},
		"empty resolving": {func(_ *fakeAPI, d *directory) {
			d.answer(key("a"), func() (clustercache.Access, error) { return clustercache.Access{}, nil })
		}, clustercache.PhaseDisconnected, "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFakeAPI(t, "uid-a")
				d := newDirectory()
				d.set(key("a"), api.config())
				tc.breakIt(api, d)
				cc := start(t, silent(d))
				w := watch(t, cc)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				s := status(t, cc)
				require.Equal(t, tc.phase, s.Phase)
				require.Equal(t, tc.reason, s.Reason)
				require.Error(t, s.LastError)
				err := get(t, cc)
				if tc.phase == clustercache.PhaseGone {
					require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
				} else {
					require.ErrorIs(t, err, clustercache.ErrNotConnected)
				}
				if tc.phase == clustercache.PhasePending {
					require.ErrorIs(t, err, clustercache.ErrNoAccess)
					require.Zero(t, api.dialled())
				}

				api.heal()
				api.live()
				d.setQuietly(key("a"), api.config())
				time.Sleep(31 * time.Second) // no change is reported by the resolver
				synctest.Wait()
				require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
				require.NoError(t, status(t, cc).LastError)
				require.NoError(t, w.WaitForSync(t.Context()))
			})
		})
	}
}

func TestNothingIsSentWhileThereIsNoAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		d := newDirectory()
		cc := start(t, silent(d))
		w := watch(t, cc)
		time.Sleep(time.Hour)
		require.Zero(t, api.dialled())
		require.Equal(t, clustercache.PhasePending, status(t, cc).Phase)
		d.set(key("a"), api.config()) // a reported change takes effect at once
		synctest.Wait()
		require.True(t, w.HasSynced())
	})
}

func TestLeastPrivilegedCredentialsConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		api.respond(func(r *http.Request) int {
			switch r.URL.Path {
			case "/readyz", "/version", "/api/v1/namespaces/kube-system":
				return http.StatusForbidden
			}
			return 0
		})
		d := newDirectory()
		d.set(key("a"), api.config())
		cc := start(t, silent(d))
		require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
		require.Contains(t, status(t, cc).UID, "presumed-")
		time.Sleep(10 * time.Minute)
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		require.Equal(t, 1, status(t, cc).Connects)
	})
}

func TestUnchangedAccessIsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		before := api.total()
		for range 100 {
			d.set(key("a"), api.config())
		}
		synctest.Wait()
		require.Equal(t, before, api.total())
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
	})
}

func TestNewAccessThatDoesNotWorkLeavesTheOldInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		synced(t, cc, api)
		dead := newFakeAPI(t, "uid-a")
		dead.die()
		bad := dead.config()
		bad.Host = "http://dead.test"
		d.set(key("a"), bad)
		time.Sleep(time.Minute)
		s := status(t, cc)
		require.Equal(t, clustercache.PhaseReady, s.Phase)
		require.Error(t, s.LastError)
		require.NoError(t, get(t, cc, clustercache.CacheOnly))
	})
}

func TestRevokedTokenAsksTheResolverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		synced(t, cc, api)
		time.Sleep(time.Second) // so that reads with MaxStaleness go to the server
		require.NoError(t, get(t, cc, clustercache.MaxStaleness(1)))
		d.set(key("a"), api.config()) // triggers an identity query on the new connection: from here on, only the 401 raises doubt
		synctest.Wait()
		asked := d.timesAsked(key("a"))
		api.failWith(http.StatusUnauthorized, "/")
		at := time.Now()
		require.Error(t, get(t, cc, clustercache.MaxStaleness(1)))
		synctest.Wait()
		require.Equal(t, asked+1, d.timesAsked(key("a")))
		require.Equal(t, clustercache.PhaseDisconnected, status(t, cc).Phase)
		require.Equal(t, "Unauthorized", status(t, cc).Reason)
		require.Zero(t, time.Since(at), "one rejected request is enough")

		renewed := api.config()
		renewed.BearerToken = "u"
		api.heal()
		d.set(key("a"), renewed)
		synctest.Wait()
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		require.Equal(t, 1, api.count("stream /api/v1/configmaps"), "a rotated token costs no list")
	})
}

func TestSecretDeletedAndRecreatedWithinGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		clusters := follow(t, cc)
		clusters.wait(key("a"), clustercache.Connected)
		d.fail(key("a"), resolver.ErrSecretNotFound)
		time.Sleep(20 * time.Second)
		d.set(key("a"), api.config())
		time.Sleep(time.Minute)
		require.Equal(t, 1, status(t, cc).Connects)
		d.fail(key("a"), resolver.ErrSecretNotFound)
		time.Sleep(40 * time.Second)
		require.Equal(t, clustercache.PhasePending, status(t, cc).Phase)
		before := api.total()
		time.Sleep(time.Hour)
		require.Equal(t, before, api.total())
	})
}

func TestRemovedClusterIsDeliveredAsDeletesAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := oneCluster(t)
		w := watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		objects := followObjects(t, cc, clustercache.ObjectFeed{})
		objects.waitAll("one", "two")
		clusters := follow(t, cc)
		d.fail(key("a"), resolver.ErrClusterNotFound)
		time.Sleep(31 * time.Second)
		clusters.wait(key("a"), clustercache.Disconnected)
		clusters.wait(key("a"), clustercache.Removed)
		for range 2 {
			e, _ := objects.wait(func(e clustercache.ObjectEvent) bool { return e.Type == "Deleted" })
			require.Equal(t, key("a"), e.Cluster)
		}
		require.Empty(t, cc.Clusters())
		require.ErrorIs(t, get(t, cc), clustercache.ErrUnknownCluster)

		// Another cluster is created under the same name: the watch still
		// works.
		other := newFakeAPI(t, "uid-b")
		other.put("new", "1", nil)
		d.set(key("a"), other.config())
		objects.waitAll("new")
		require.True(t, w.HasSynced())
		require.Equal(t, 2, status(t, cc).Connects)
		require.Contains(t, status(t, cc).Epoch, "uid-b")

		w.Release()
		cc.Disengage(key("a"))
		synctest.Wait()
		_, err := cc.Status(key("a"))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		_ = api
	})
}

// TestCacheOfAnOldEpochIsNotRead: another cluster answers behind the same
// address, and its objects cannot be listed yet.
func TestCacheOfAnOldEpochIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		synced(t, cc, api)
		require.NoError(t, get(t, cc, clustercache.CacheOnly))
		api.failWith(http.StatusInternalServerError, "/v1/configmaps")
		api.become("uid-b")
		time.Sleep(5 * time.Second)
		require.Contains(t, status(t, cc).Epoch, "uid-b")
		require.ErrorIs(t, get(t, cc, clustercache.CacheOnly), clustercache.ErrNotSynced)
		origin := clustercache.Origin{}
		require.NoError(t, get(t, cc, &origin))
		require.False(t, origin.Cached)
		api.heal()
		time.Sleep(30 * time.Second)
		require.NoError(t, get(t, cc, clustercache.CacheOnly, &origin))
		require.Contains(t, origin.Epoch, "uid-b")
	})
}

// TestHazardAnotherClusterAnswersSlowlyThatItIsWell: the epoch changes at once,
// although the identity query, which each new connection triggers, is answered
// before the health query.
func TestHazardAnotherClusterAnswersSlowlyThatItIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		synced(t, cc, api)
		inner := api.server.Handler
		api.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				time.Sleep(100 * time.Millisecond)
			}
			inner.ServeHTTP(w, r)
		})
		events := follow(t, cc)
		api.become("uid-b")
		time.Sleep(2 * time.Second)
		require.Contains(t, status(t, cc).Epoch, "uid-b")
		synctest.Wait()
		for len(events.events) > 0 {
			e := <-events.events
			require.NotEqual(t, clustercache.PhaseChanged, e.Type, "%s", e.Phase)
		}
	})
}

// TestOneHungClusterHoldsBackNobody: a cluster that accepts connections and
// never answers does not delay the others.
func TestOneHungClusterHoldsBackNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory()
		hung := newFakeAPI(t, "uid-hung")
		hung.failWith(-1, "/")
		d.set(key("a"), hung.config())
		o := silent(d)
		o.ConnectConcurrency, o.ProbeConcurrency = 2, 2
		cc := start(t, o)
		require.NoError(t, cc.Engage(key("a")))
		begin := time.Now()
		for i := range 20 {
			name := fmt.Sprintf("c%d", i)
			api := newFakeAPI(t, name)
			api.put("one", "1", nil)
			d.set(key(name), api.config())
			w, err := cc.Watch(t.Context(), key(name), &corev1.ConfigMap{})
			require.NoError(t, err)
			require.NoError(t, w.WaitForSync(t.Context()))
		}
		require.Zero(t, time.Since(begin), "the others waited")
		cc.Disengage(key("a"))
		synctest.Wait()
		require.Zero(t, time.Since(begin), "removing it waited")
		_, err := cc.Status(key("a"))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
	})
}

func TestWritesOfADisconnectedClusterFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		c, err := cc.Client(key("a"))
		require.NoError(t, err)
		config, err := cc.RESTConfig(key("a"))
		require.NoError(t, err)
		require.Equal(t, "http://fake.test", config.Host)
		config.Host = "changed"
		again, err := cc.RESTConfig(key("a"))
		require.NoError(t, err)
		require.Equal(t, "http://fake.test", again.Host)
		disconnect(t, cc, api)
		begin := time.Now()
		err = c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: objectMeta("one")})
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		require.ErrorIs(t, c.Get(t.Context(), client.ObjectKey{Name: "x"}, &corev1.ConfigMap{}), clustercache.ErrNotConnected)
		require.Zero(t, time.Since(begin))
		_, err = cc.RESTConfig(key("a"))
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		_, err = cc.Client(key("b"))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
	})
}

// TestLostRightToAskWhoAnswersIsSurvived: the permission to read the cluster's
// UID has been revoked when a connection breaks. Without an answer the identity
// is presumed from the address, which starts another epoch, and informers
// continue.
func TestLostRightToAskWhoAnswersIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := oneCluster(t)
		synced(t, cc, api)
		objects := followObjects(t, cc, clustercache.ObjectFeed{})
		objects.waitAll("one", "two")
		api.failWith(http.StatusForbidden, "kube-system")
		api.cut()
		api.put("three", "3", nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NoError(t, get(t, cc, clustercache.CacheOnly))
		_, before := objects.wait(named(key("a"), "three"))
		require.Empty(t, before)
		require.Equal(t, 1, status(t, cc).HistoryResets)
		require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
	})
}

// TestNewsThatComesWhileAClusterIsForgottenIsNotLost: the cluster was removed,
// and the resolver has it again at that very moment.
func TestNewsThatComesWhileAClusterIsForgottenIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI(t, "uid-a")
		d := newDirectory()
		o := silent(d)
		o.Discover = true
		cc := start(t, o)
		d.set(key("a"), api.config())
		clusters := follow(t, cc)
		for range 300 {
			clusters.wait(key("a"), clustercache.Connected)
			d.fail(key("a"), resolver.ErrClusterNotFound)
			clusters.wait(key("a"), clustercache.Removed)
			d.set(key("a"), api.config())
			time.Sleep(time.Second)
			require.Equal(t, clustercache.PhaseReady, status(t, cc).Phase)
		}
	})
}
