// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/memnet"
)

const kubeSystem = "get /api/v1/namespaces/kube-system"

// origins returns the clusters whose objects a list has.
func origins(t *testing.T, cc *clustercache.ClusterCache) []string {
	t.Helper()
	var list corev1.ConfigMapList
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &list))
	var in []string
	for _, item := range list.Items {
		in = append(in, item.Data["in"])
	}
	slices.Sort(in)
	return slices.Compact(in)
}

func write(t *testing.T, cc *clustercache.ClusterCache) error {
	t.Helper()
	c, err := cc.Cluster(fleettest.Key("a")).Client()
	require.NoError(t, err)
	return c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}})
}

// TestHazardProxyKeepsConnectionsAcrossClusters: a minute after a proxy has
// switched to another cluster, no read has objects of both clusters or of the
// former one, the epoch returned with a read is that of its objects, and no
// write meant for one cluster reaches the other. Only the identity shows the
// change: the versions are the same, and no connection breaks.
func TestHazardProxyKeepsConnectionsAcrossClusters(t *testing.T) {
	for name, tc := range map[string]struct{ secure, watched, resumes bool }{
		"http1, a watch that stays":  {watched: true},
		"http1, a watch that is cut": {watched: true, resumes: true},
		"http2, a watch that stays":  {secure: true, watched: true},
		"http2, a watch that is cut": {secure: true, watched: true, resumes: true},
		"http1, nothing watched":     {},
		"http2, nothing watched":     {secure: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := fleettest.TwoClusters(t)
				proxy, d := fleettest.NewFront(t, tc.secure, a), fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), proxy.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
				if tc.watched {
					require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
				}
				require.Equal(t, []string{"uid-a"}, origins(t, cc))
				require.NoError(t, write(t, cc))
				time.Sleep(8*time.Minute + 17*time.Second)

				proxy.Move(b)
				if tc.resumes {
					proxy.Cut()
				}
				b.Put("seven", "1", nil)
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
				before := proxy.Wrote("uid-b")
				require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
				require.Equal(t, []string{"uid-b"}, origins(t, cc))
				var from clustercache.Origin
				var four corev1.ConfigMap
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(),
					client.ObjectKey{Namespace: "default", Name: "four"}, &four,
					&from))
				require.Contains(t, from.Epoch, four.Data["in"])
				require.Zero(t, before)
				require.Equal(t, 1, proxy.Wrote("uid-a"))
				require.Equal(t, 1, fleettest.Status(t, cc).HistoryResets)
			})
		})
	}
}

// TestHazardProxySwitchesRightAfterAProof: a recent proof does not admit a
// watch that has ended since, with the versions of one cluster in another.
func TestHazardProxySwitchesRightAfterAProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fleettest.TwoClusters(t)
		proxy, d := fleettest.NewFront(t, true, a), fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), proxy.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		proxy.Move(b)
		proxy.Cut()
		b.Put("seven", "1", nil)
		for range 20 {
			time.Sleep(time.Second)
			require.Len(t, origins(t, cc), 1)
		}
		require.Equal(t, []string{"uid-b"}, origins(t, cc))
	})
}

// TestHazardWriteReachesAnotherCluster: a write relies on a proof. If the proof
// is too old, for example after the process did not run for a while, it is
// renewed before anything is sent.
func TestHazardWriteReachesAnotherCluster(t *testing.T) {
	for _, secure := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := fleettest.TwoClusters(t)
			proxy, d := fleettest.NewFront(t, secure, a), fleettest.NewDirectory()
			d.Set(fleettest.Key("a"), proxy.Config())
			cc := fleettest.Start(t, fleettest.Silent(d))
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
			require.NoError(t, cc.Cluster(fleettest.Key("a")).WaitConnected(t.Context()))
			epoch := fleettest.Status(t, cc).Epoch
			for range 20 {
				time.Sleep(30 * time.Second)
				require.NoError(t, write(t, cc))
			}
			// kube-system hangs, so that the proof cannot be renewed and no new
			// epoch begins.
			proxy.Move(b)
			b.FailWith(-1, "/kube-system")
			time.Sleep(time.Minute)
			sent := proxy.Wrote("uid-b")
			for range 20 {
				time.Sleep(10 * time.Second)
				require.ErrorContains(t, write(t, cc), "")
				require.Error(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{}))
			}
			require.Equal(t, sent, proxy.Wrote("uid-b"))
			require.Equal(t, epoch, fleettest.Status(t, cc).Epoch)
			b.Heal()
			time.Sleep(time.Minute)
			require.Contains(t, fleettest.Status(t, cc).Epoch, "uid-b")
			require.NoError(t, write(t, cc))
		})
	}
}

// TestHazardNewConnectionsReachAnotherCluster: the address leads to another
// cluster from now on, but connections that were made before stay with the old
// one, including the one that identity queries use. A watch that continues over
// a new connection must not append the new cluster's events to the old one's
// history, and no read of one cluster is returned as the other's.
func TestHazardNewConnectionsReachAnotherCluster(t *testing.T) {
	for _, secure := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := fleettest.TwoClusters(t)
			old, other, d := fleettest.NewFront(t, secure, a), fleettest.NewFront(t, secure, b),
				fleettest.NewDirectory()
			var to sync.Map
			to.Store("net", old.Net)
			config := old.Config()
			config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				l, _ := to.Load("net")
				return l.(*memnet.Listener).Dial(ctx, network, address)
			}
			d.Set(fleettest.Key("a"), config)
			cc := fleettest.Start(t, fleettest.Silent(d))
			w := fleettest.Watch(t, cc)
			require.NoError(t, w.WaitForSync(t.Context()))
			require.NoError(t, write(t, cc))
			time.Sleep(10 * time.Second)

			to.Store("net", other.Net)
			b.Put("seven", "1", nil)
			// Many live reads at a time, so that HTTP/1.1 needs new connections
			// while an old one is idle.
			var reads sync.WaitGroup
			for range 20 {
				reads.Go(func() {
					var from clustercache.Origin
					var got corev1.ConfigMapList
					err := cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &got, &from,
						client.InNamespace("default"))
					for _, item := range got.Items {
						if err == nil {
							require.Contains(t, from.Epoch, item.Data["in"])
						}
					}
				})
				reads.Go(func() {
					live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
					require.NoError(t, err)
					var four corev1.ConfigMap
					epoch := fleettest.Status(t, cc).Epoch
					err = live.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "four"}, &four)
					if err == nil && epoch == fleettest.Status(t, cc).Epoch {
						require.Contains(t, epoch, "uid-b")
					}
				})
			}
			reads.Wait()
			old.Cut() // the watch continues over whatever connection exists
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			in := origins(t, cc)
			require.Len(t, in, 1, "of two clusters: %v", in)
			require.Contains(t, fleettest.Status(t, cc).Epoch, in[0])
		})
	}
}

// TestProofCostsOneQuestionAMinute: whatever runs, an idle cluster gets one
// identity query a minute, and one for each connection that was made meanwhile;
// informers that recover share one query.
func TestProofCostsOneQuestionAMinute(t *testing.T) {
	for _, secure := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := fleettest.NewAPI(t, "uid-a")
			proxy, d := fleettest.NewFront(t, secure, a), fleettest.NewDirectory()
			d.Set(fleettest.Key("a"), proxy.Config())
			o := fleettest.Silent(d)
			o.Informers.StallTimeout = 24 * time.Hour // the server sends no bookmarks
			cc := fleettest.Start(t, o)
			for _, obj := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{},
				&corev1.Endpoints{}, &corev1.ServiceAccount{}} { //nolint:staticcheck // as good as any
				w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), obj)
				require.NoError(t, err)
				require.NoError(t, w.WaitForSync(t.Context()))
			}
			asked := func() (questions, connections int) { return a.Count(kubeSystem), proxy.Net.Dials() }
			questions, connections := asked()
			t.Logf("secure %v: %d questions and %d connections until 5 informers were synced", secure, questions,
				connections)
			if secure {
				connections++ // the one that is shared is queried again when it has answered a watch
			}
			require.LessOrEqual(t, questions, connections)
			time.Sleep(2 * time.Minute)

			restQuestions, restConnections := asked()
			for range 60 {
				time.Sleep(30 * time.Second)
				require.NoError(t, write(t, cc))
				origins(t, cc)
			}
			questions, connections = asked()
			t.Logf("secure %v: %d and %d at rest", secure, questions-restQuestions, connections-restConnections)
			require.LessOrEqual(t, questions-restQuestions, 31+connections-restConnections)
			require.GreaterOrEqual(t, questions-restQuestions, 29)

			// Proofs are renewed at full minutes. A proof that is renewed at
			// the moment when the watches end may be older than that, and be
			// followed by another one.
			time.Sleep(7 * time.Second)
			healQuestions, healConnections := asked()
			proxy.Cut()
			time.Sleep(20 * time.Second)
			require.Equal(t, 5, a.Watching("/api/v1/configmaps")+a.Watching("/api/v1/secrets")+
				a.Watching("/api/v1/services")+
				a.Watching("/api/v1/endpoints")+a.Watching("/api/v1/serviceaccounts"))
			questions, connections = asked()
			t.Logf("secure %v: %d and %d while 5 informers healed", secure, questions-healQuestions,
				connections-healConnections)
			require.LessOrEqual(t, questions-healQuestions, 1+connections-healConnections)
		})
	}
}
