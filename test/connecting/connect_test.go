// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

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
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

func TestEachFailureHasItsPhaseAndReasonAndHealsByItself(t *testing.T) {
	for name, tc := range map[string]struct {
		breakIt func(api *fleettest.API, d *fleettest.Directory)
		phase   status.Phase
		reason  string
	}{
		"no Secret": {func(_ *fleettest.API, d *fleettest.Directory) {
			d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
		}, status.PhasePending, "NoAccess"},
		"no cluster": {func(_ *fleettest.API, d *fleettest.Directory) {
			d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
		}, status.PhaseGone, "ClusterNotFound"},
		"refused field": {func(_ *fleettest.API, d *fleettest.Directory) {
			d.Fail(fleettest.Key("a"), &resolver.RefusedError{Field: "user.exec", Reason: "is refused"})
		}, status.PhaseRefused, "Refused"},
		"bad kubeconfig": {func(_ *fleettest.API, d *fleettest.Directory) {
			d.Fail(fleettest.Key("a"), &resolver.KubeconfigError{Reason: "is no YAML"})
		}, status.PhaseDisconnected, "BadAccess"},
		"hub trouble": {
			func(_ *fleettest.API, d *fleettest.Directory) { d.Fail(fleettest.Key("a"), errors.New("hub")) },
			status.PhaseDisconnected, "Unknown"},
		"401": {
			func(api *fleettest.API, _ *fleettest.Directory) { api.FailWith(http.StatusUnauthorized, "/") },
			status.PhaseDisconnected, "Unauthorized"},
		"503": {
			func(api *fleettest.API, _ *fleettest.Directory) { api.FailWith(http.StatusServiceUnavailable, "/") },
			status.PhaseDisconnected, "Server"},
		"429": {
			func(api *fleettest.API, _ *fleettest.Directory) { api.FailWith(http.StatusTooManyRequests, "/") },
			status.PhaseDisconnected, "Throttled"},
		"redirect": {
			func(api *fleettest.API, _ *fleettest.Directory) { api.FailWith(http.StatusTemporaryRedirect, "/") },
			status.PhaseRefused, "Refused"},
		"hangs": {func(api *fleettest.API, _ *fleettest.Directory) { api.FailWith(-1, "/") },
			status.PhaseDisconnected, "Timeout"},
		"nobody listens": {func(api *fleettest.API, _ *fleettest.Directory) { api.Die() },
			status.PhaseDisconnected, "Unreachable"},
		"no kube-system": {func(api *fleettest.API, _ *fleettest.Directory) {
			api.FailWith(http.StatusInternalServerError, "kube-system")
		}, status.PhaseDisconnected, "Server"},
		"resolver hangs": {func(_ *fleettest.API, d *fleettest.Directory) {
			d.Answer(fleettest.Key("a"), func() (resolver.Access, error) {
				time.Sleep(5 * time.Second)
				return resolver.Access{}, errors.New("slow")
			})
		}, status.PhaseDisconnected, "Unknown"},
		"empty resolving": {func(_ *fleettest.API, d *fleettest.Directory) {
			d.Answer(fleettest.Key("a"), func() (resolver.Access, error) { return resolver.Access{}, nil })
		}, status.PhaseDisconnected, "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fleettest.NewAPI(t, "uid-a")
				d := fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), api.Config())
				tc.breakIt(api, d)
				cc := fleettest.Start(t, fleettest.Silent(d))
				w := fleettest.Watch(t, cc)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				s := fleettest.Status(t, cc)
				require.Equal(t, tc.phase, s.Phase)
				require.Equal(t, tc.reason, s.Reason)
				require.Error(t, s.LastError)
				err := fleettest.Get(t, cc)
				if tc.phase == status.PhaseGone {
					require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
				} else {
					require.ErrorIs(t, err, clustercache.ErrNotConnected)
				}
				if tc.phase == status.PhasePending {
					require.ErrorIs(t, err, resolver.ErrNoAccess)
					require.Zero(t, api.Dialled())
				}

				api.Heal()
				api.Live()
				d.SetQuietly(fleettest.Key("a"), api.Config())
				time.Sleep(31 * time.Second) // no change is reported by the resolver
				synctest.Wait()
				require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
				require.NoError(t, fleettest.Status(t, cc).LastError)
				require.NoError(t, w.WaitForSync(t.Context()))
			})
		})
	}
}

func TestNothingIsSentWhileThereIsNoAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		d := fleettest.NewDirectory()
		cc := fleettest.Start(t, fleettest.Silent(d))
		w := fleettest.Watch(t, cc)
		time.Sleep(time.Hour)
		require.Zero(t, api.Dialled())
		require.Equal(t, status.PhasePending, fleettest.Status(t, cc).Phase)
		d.Set(fleettest.Key("a"), api.Config()) // a reported change takes effect at once
		synctest.Wait()
		require.True(t, w.HasSynced())
	})
}

func TestLeastPrivilegedCredentialsConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Respond(func(r *http.Request) int {
			switch r.URL.Path {
			case "/readyz", "/version", "/api/v1/namespaces/kube-system":
				return http.StatusForbidden
			}
			return 0
		})
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		require.Contains(t, fleettest.Status(t, cc).UID, "presumed-")
		time.Sleep(10 * time.Minute)
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)
	})
}

func TestUnchangedAccessIsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		before := api.Total()
		for range 100 {
			d.Set(fleettest.Key("a"), api.Config())
		}
		synctest.Wait()
		require.Equal(t, before, api.Total())
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
	})
}

func TestNewAccessThatDoesNotWorkLeavesTheOldInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		dead := fleettest.NewAPI(t, "uid-a")
		dead.Die()
		bad := dead.Config()
		bad.Host = "http://dead.test"
		d.Set(fleettest.Key("a"), bad)
		time.Sleep(time.Minute)
		s := fleettest.Status(t, cc)
		require.Equal(t, status.PhaseReady, s.Phase)
		require.Error(t, s.LastError)
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
	})
}

func TestRevokedTokenAsksTheResolverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		time.Sleep(time.Second) // so that reads with MaxStaleness go to the server
		require.NoError(t, fleettest.Get(t, cc, clustercache.MaxStaleness(1)))
		// This triggers an identity query on the new connection: from here on,
		// only the 401 raises doubt.
		d.Set(fleettest.Key("a"), api.Config())
		synctest.Wait()
		asked := d.TimesAsked(fleettest.Key("a"))
		api.FailWith(http.StatusUnauthorized, "/")
		at := time.Now()
		require.Error(t, fleettest.Get(t, cc, clustercache.MaxStaleness(1)))
		synctest.Wait()
		require.Equal(t, asked+1, d.TimesAsked(fleettest.Key("a")))
		require.Equal(t, status.PhaseDisconnected, fleettest.Status(t, cc).Phase)
		require.Equal(t, "Unauthorized", fleettest.Status(t, cc).Reason)
		require.Zero(t, time.Since(at), "one rejected request is enough")

		renewed := api.Config()
		renewed.BearerToken = "u"
		api.Heal()
		d.Set(fleettest.Key("a"), renewed)
		synctest.Wait()
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		require.Equal(t, 1, api.Count("stream /api/v1/configmaps"), "a rotated token costs no list")
	})
}

func TestSecretDeletedAndRecreatedWithinGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		clusters := fleettest.Follow(t, cc)
		clusters.Wait(fleettest.Key("a"), events.Connected)
		d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
		time.Sleep(20 * time.Second)
		d.Set(fleettest.Key("a"), api.Config())
		time.Sleep(time.Minute)
		require.Equal(t, 1, fleettest.Status(t, cc).Connects)
		d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
		time.Sleep(40 * time.Second)
		require.Equal(t, status.PhasePending, fleettest.Status(t, cc).Phase)
		before := api.Total()
		time.Sleep(time.Hour)
		require.Equal(t, before, api.Total())
	})
}

func TestRemovedClusterIsDeliveredAsDeletesAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, d := fleettest.OneCluster(t)
		w := fleettest.Watch(t, cc)
		require.NoError(t, w.WaitForSync(t.Context()))
		objects := fleettest.FollowObjects(t, cc, events.Selection{})
		objects.WaitAll("one", "two")
		clusters := fleettest.Follow(t, cc)
		d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
		time.Sleep(31 * time.Second)
		clusters.Wait(fleettest.Key("a"), events.Disconnected)
		clusters.Wait(fleettest.Key("a"), events.Removed)
		for range 2 {
			e, _ := objects.Wait(func(e events.Object) bool { return e.Type == "Deleted" })
			require.Equal(t, fleettest.Key("a"), e.Cluster)
		}
		require.Empty(t, cc.Clusters())
		require.ErrorIs(t, fleettest.Get(t, cc), clustercache.ErrUnknownCluster)

		// Another cluster is created under the same name: the watch still
		// works.
		other := fleettest.NewAPI(t, "uid-b")
		other.Put("new", "1", nil)
		d.Set(fleettest.Key("a"), other.Config())
		objects.WaitAll("new")
		require.True(t, w.HasSynced())
		require.Equal(t, 2, fleettest.Status(t, cc).Connects)
		require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")

		w.Release()
		cc.Cluster(fleettest.Key("a")).Disengage()
		synctest.Wait()
		_, err := cc.Cluster(fleettest.Key("a")).Status()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		_ = api
	})
}

// TestCacheOfAnOldEpochIsNotRead: another cluster answers behind the same
// address, and its objects cannot be listed yet.
func TestCacheOfAnOldEpochIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
		api.FailWith(http.StatusInternalServerError, "/v1/configmaps")
		api.Become("uid-b")
		time.Sleep(5 * time.Second)
		require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
		require.ErrorIs(t, fleettest.Get(t, cc, clustercache.CacheOnly), clustercache.ErrNotSynced)
		origin := clustercache.Origin{}
		require.NoError(t, fleettest.Get(t, cc, &origin))
		require.False(t, origin.Cached)
		api.Heal()
		time.Sleep(30 * time.Second)
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly, &origin))
		require.Contains(t, origin.Epoch, "uid-b")
	})
}

// TestHazardAnotherClusterAnswersSlowlyThatItIsWell: the epoch changes at once,
// although the identity query, which each new connection triggers, is answered
// before the health query.
func TestHazardAnotherClusterAnswersSlowlyThatItIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		inner := api.Handler
		api.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				time.Sleep(100 * time.Millisecond)
			}
			inner.ServeHTTP(w, r)
		})
		received := fleettest.Follow(t, cc)
		api.Become("uid-b")
		time.Sleep(2 * time.Second)
		require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
		synctest.Wait()
		for len(received.Events) > 0 {
			e := <-received.Events
			require.NotEqual(t, events.PhaseChanged, e.Type, "%s", e.Phase)
		}
	})
}

// TestOneHungClusterHoldsBackNobody: a cluster that accepts connections and
// never answers does not delay the others.
func TestOneHungClusterHoldsBackNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		hung := fleettest.NewAPI(t, "uid-hung")
		hung.FailWith(-1, "/")
		d.Set(fleettest.Key("a"), hung.Config())
		o := fleettest.Silent(d)
		o.ConnectConcurrency, o.ProbeConcurrency = 2, 2
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		begin := time.Now()
		for i := range 20 {
			name := fmt.Sprintf("c%d", i)
			api := fleettest.NewAPI(t, name)
			api.Put("one", "1", nil)
			d.Set(fleettest.Key(name), api.Config())
			w, err := cc.Cluster(fleettest.Key(name)).Watch(t.Context(), &corev1.ConfigMap{})
			require.NoError(t, err)
			require.NoError(t, w.WaitForSync(t.Context()))
		}
		require.Zero(t, time.Since(begin), "the others waited")
		cc.Cluster(fleettest.Key("a")).Disengage()
		synctest.Wait()
		require.Zero(t, time.Since(begin), "removing it waited")
		_, err := cc.Cluster(fleettest.Key("a")).Status()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
	})
}

func TestWritesOfADisconnectedClusterFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		c, err := cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)
		config, err := cc.Cluster(fleettest.Key("a")).RESTConfig()
		require.NoError(t, err)
		require.Equal(t, "http://fake.test", config.Host)
		config.Host = "changed"
		again, err := cc.Cluster(fleettest.Key("a")).RESTConfig()
		require.NoError(t, err)
		require.Equal(t, "http://fake.test", again.Host)
		fleettest.Disconnect(t, cc, api)
		begin := time.Now()
		err = c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: fleettest.ObjectMeta("one")})
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		require.ErrorIs(t, c.Get(t.Context(), client.ObjectKey{Name: "x"}, &corev1.ConfigMap{}),
			clustercache.ErrNotConnected)
		require.Zero(t, time.Since(begin))
		_, err = cc.Cluster(fleettest.Key("a")).RESTConfig()
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		_, err = cc.Cluster(fleettest.Key("b")).Client()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
	})
}

// TestLostRightToAskWhoAnswersIsSurvived: the permission to read the cluster's
// UID has been revoked when a connection breaks. Without an answer the identity
// is presumed from the address, which starts another epoch, and informers
// continue.
func TestLostRightToAskWhoAnswersIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, api, _ := fleettest.OneCluster(t)
		fleettest.Synced(t, cc, api)
		objects := fleettest.FollowObjects(t, cc, events.Selection{})
		objects.WaitAll("one", "two")
		api.FailWith(http.StatusForbidden, "kube-system")
		api.Cut()
		api.Put("three", "3", nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NoError(t, fleettest.Get(t, cc, clustercache.CacheOnly))
		_, before := objects.Wait(fleettest.Named(fleettest.Key("a"), "three"))
		require.Empty(t, before)
		require.Equal(t, 1, fleettest.Status(t, cc).HistoryResets)
		require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
	})
}

// TestNewsThatComesWhileAClusterIsForgottenIsNotLost: the cluster was removed,
// and the resolver has it again at that very moment.
func TestNewsThatComesWhileAClusterIsForgottenIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		d := fleettest.NewDirectory()
		o := fleettest.Silent(d)
		o.Discover = true
		cc := fleettest.Start(t, o)
		d.Set(fleettest.Key("a"), api.Config())
		clusters := fleettest.Follow(t, cc)
		for range 300 {
			clusters.Wait(fleettest.Key("a"), events.Connected)
			d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
			clusters.Wait(fleettest.Key("a"), events.Removed)
			d.Set(fleettest.Key("a"), api.Config())
			time.Sleep(time.Second)
			require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
		}
	})
}
