// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package guide_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/guide"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

var settings = client.ObjectKey{Namespace: "web", Name: "settings"}

func configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: settings.Namespace,
		Name:      settings.Name,
		Labels:    map[string]string{"app": "web"},
	}}
}

// start returns a fleet of one cluster, east.
func start(t *testing.T, objects ...client.Object) (*clustercachetest.Fleet, *clustercachetest.Cluster) {
	t.Helper()
	fleet := clustercachetest.New(t, clustercachetest.Options{})
	east := fleet.Add("fleet/east", objects...)
	fleet.WaitSynced()

	return fleet, east
}

// TestEachFormOfController runs the controllers of the guide in one manager,
// whose own cluster is not asked for anything.
func TestEachFormOfController(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}}
	fleet, east := start(t, node, deployment, service)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		Scheme:         scheme.Scheme,
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: new(true)},
		MapperProvider: nil,
	})
	require.NoError(t, err)

	requests := make(chan string, 100)
	seen := func(form string) func(client.Client) reconcile.Reconciler {
		return func(client.Client) reconcile.Reconciler {
			return reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
				requests <- form + " " + r.String()
				return reconcile.Result{}, nil
			})
		}
	}
	require.NoError(t, guide.EveryCluster(mgr, fleet.ClusterCache(), seen("every")))
	require.NoError(t, guide.AlsoRemote(mgr, fleet.ClusterCache(), seen("also")(nil)))
	require.NoError(t, guide.OneCluster(mgr, fleet.ClusterCache(), east.Key(), seen("one")))

	stop := fleettest.Run(t, mgr)
	missing := map[string]bool{"every web/shop": true, "also fleet/east": true, "one web/shop": true}
	for len(missing) > 0 {
		select {
		case r := <-requests:
			delete(missing, r)
		case <-time.After(time.Minute):
			require.Empty(t, missing)
		}
	}
	stop()
}

func TestDeclaredKindIsWatchedUntilItsOwnerDropsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east := start(t, configMap())
		owner := clustercache.Owner{
			GVK:       corev1.SchemeGroupVersion.WithKind("Service"),
			ObjectKey: client.ObjectKey{Namespace: "web", Name: "placement"},
		}
		require.NoError(t, guide.Needs(t.Context(), fleet.ClusterCache(), guide.Placement{
			Owner:   owner,
			Cluster: east.Key(),
			Kind:    corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			Name:    settings,
		}))
		require.NoError(t, fleet.ClusterCache().WaitForSync(t.Context(), owner))
		require.Len(t, east.Requests(clustercachetest.Verb("watch"), clustercachetest.Resource("configmaps")), 1)

		fleet.ClusterCache().Drop(owner)
		time.Sleep(5 * time.Minute)
		require.Empty(t, fleet.ClusterCache().Usage().Uses)
	})
}

func TestHeldWatchAnswersReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east := start(t, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"},
			Status:     appsv1.DeploymentStatus{ReadyReplicas: 3},
		})
		ready, err := guide.Hold(t.Context(), fleet.ClusterCache(), east.Key())
		require.NoError(t, err)
		require.Equal(t, 3, ready)
	})
}

func TestReadOnDemandStartsAnInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east := start(t, configMap())
		for range 2 {
			err := guide.OnDemand(t.Context(), fleet.ClusterCache(), east.Key(), settings, &corev1.ConfigMap{})
			require.NoError(t, err)
			fleet.WaitSynced()
		}
		require.Len(t, east.Requests(clustercachetest.Verb("watch"), clustercachetest.Resource("configmaps")), 1)
	})
}

func TestFollowAndListenDeliverChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east := start(t, configMap())
		var followed, listened atomic.Int32
		s, err := guide.Follow(fleet.ClusterCache(), func(events.Object) { followed.Add(1) })
		require.NoError(t, err)
		defer s.Stop()
		watch, err := guide.Listen(t.Context(), fleet.ClusterCache(), east.Key(),
			informerpool.HandlerFunc(func(informerpool.Event) { listened.Add(1) }))
		require.NoError(t, err)
		defer watch.Release()

		require.NoError(t, east.Client().Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "token"}}))
		fleet.WaitSynced()
		synctest.Wait()
		require.EqualValues(t, 1, followed.Load())
		require.EqualValues(t, 1, listened.Load())
	})
}

func TestCachedReadOutlivesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east := start(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
		watch, err := fleet.ClusterCache().Cluster(east.Key()).Watch(t.Context(), &corev1.Node{})
		require.NoError(t, err)
		defer watch.Release()
		fleet.WaitSynced()
		east.Disconnect()
		east.WaitPhase(status.PhaseDisconnected)
		time.Sleep(10 * time.Minute)

		nodes, age, err := guide.EvenIfDown(t.Context(), fleet.ClusterCache(), east.Key())
		require.NoError(t, err)
		require.Equal(t, 1, nodes)
		require.GreaterOrEqual(t, age, 10*time.Minute)

		time.Sleep(time.Hour)
		_, _, err = guide.EvenIfDown(t.Context(), fleet.ClusterCache(), east.Key())
		require.ErrorIs(t, err, clustercache.ErrStale)
		require.Equal(t, "Stale", guide.Reachable(err))
	})
}

func TestReadyNodesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("KUBE_CACHE_MUTATION_DETECTOR", "true")
		node := func(name string, ready corev1.ConditionStatus) client.Object {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			}}
		}
		fleet, east := start(t, node("a", corev1.ConditionTrue), node("b", corev1.ConditionFalse))
		watch, err := fleet.ClusterCache().Cluster(east.Key()).Watch(t.Context(), &corev1.Node{})
		require.NoError(t, err)
		defer watch.Release()
		fleet.WaitSynced()
		for range 4 {
			ready, err := guide.Ready(t.Context(), fleet.ClusterCache(), east.Key())
			require.NoError(t, err)
			require.Equal(t, 1, ready)
		}
	})
}

// TestPodsAreSelectedByImage: whether the API server answers or the cache does.
func TestPodsAreSelectedByImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(name, image string) client.Object {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
			}
		}
		fleet, east := start(t, pod("a", "one"), pod("b", "two"))
		cc := fleet.ClusterCache()
		require.NoError(t, guide.IndexImages(cc))
		list := clustercachetest.Verb("list")
		for asked := range 2 {
			before := len(east.Requests(list))
			pods, err := guide.PodsOf(t.Context(), cc, east.Key(), "two")
			require.NoError(t, err)
			require.Len(t, pods.Items, 1)
			require.Equal(t, "b", pods.Items[0].Name)
			require.Len(t, east.Requests(list), before+1-asked)
			watch, err := cc.Cluster(east.Key()).Watch(t.Context(), &corev1.Pod{})
			require.NoError(t, err)
			defer watch.Release()
			require.NoError(t, watch.WaitForSync(t.Context()))
		}
	})
}

func TestPodsOfProductionClustersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := make([]client.Object, 3)
		for i := range pods {
			pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop",
				Name:      fmt.Sprintf("web-%d", i),
				Labels:    map[string]string{"app": "web"},
			}}
		}
		clusters := clustercachetest.New(t, clustercachetest.Options{})
		access := map[resolver.Cluster]resolver.Access{}
		for name, env := range map[string]string{"a": "prod", "b": "prod", "c": "test"} {
			c := clusters.Add(name, pods...)
			of, err := resolver.NewAccess(c.Config())
			require.NoError(t, err)
			access[c.Key()] = of.WithLabels(map[string]string{"env": env})
		}
		cc, err := clustercache.New(clustercache.Options{
			Name: "counting",
			Resolver: resolver.Func(func(_ context.Context, cluster resolver.Cluster) (resolver.Access, error) {
				return access[cluster], nil
			}),
		})
		require.NoError(t, err)
		stop := fleettest.Run(t, cc)
		for key := range access {
			require.NoError(t, cc.Cluster(key).Engage())
			require.NoError(t, cc.Cluster(key).WaitConnected(t.Context()))
		}

		counts, text := guide.CountPods(t.Context(), cc)
		require.Equal(t, map[string]int{"web": 6}, counts)
		require.Equal(t, "2 of 2 clusters", text)
		stop()
	})
}

func TestWriteIsReadWhereTheCacheIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east := start(t, configMap())
		watch, err := fleet.ClusterCache().Cluster(east.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		defer watch.Release()
		fleet.WaitSynced()
		fresh := east.Stale(&corev1.ConfigMap{})
		defer fresh()

		read, err := guide.Bump(t.Context(), fleet.ClusterCache(), east.Key(), settings)
		require.NoError(t, err)
		require.Equal(t, "yes", read.Data["bumped"])
	})
}

func TestReachableNamesTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east := start(t, configMap())
		get := func(key client.ObjectKey) error {
			return fleet.ClusterCache().Cluster(key).Reader().Get(t.Context(), settings, &corev1.ConfigMap{})
		}
		require.Equal(t, "Reachable", guide.Reachable(get(east.Key())))
		require.Equal(t, "NoSuchCluster", guide.Reachable(get(client.ObjectKey{Name: "west"})))
		heal := east.Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
		require.Equal(t, "get of ConfigMap failed", guide.Reachable(get(east.Key())))
		heal()
		east.Disconnect()
		east.WaitPhase(status.PhaseDisconnected)
		require.Equal(t, "NotConnected", guide.Reachable(get(east.Key())))
	})
}

func TestWithdrawLeavesWhatOthersWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east := start(t, configMap())
		cc := fleet.ClusterCache()
		require.NoError(t, guide.Apply(t.Context(), cc, east.Key(), settings, "mine"))
		written := &corev1.ConfigMap{}
		require.NoError(t, east.Client().Get(t.Context(), settings, written))
		require.Equal(t, "mine", written.Data["data"])

		require.NoError(t, guide.Withdraw(t.Context(), cc, east.Key(), settings))
		require.NoError(t, east.Client().Get(t.Context(), settings, written))
		require.Empty(t, written.Data)
		require.Equal(t, "web", written.Labels["app"])
	})
}

// reach requires that a ClusterCache with this resolver reads from a cluster.
func reach(t *testing.T, name string, r resolver.Resolver, cluster client.ObjectKey, policy resolver.DialPolicy) {
	t.Helper()
	cc, err := clustercache.New(clustercache.Options{Resolver: r, Name: name, DialPolicy: policy})
	require.NoError(t, err)
	defer fleettest.Run(t, cc)()
	require.NoError(t, cc.Cluster(cluster).Engage())
	connected, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	require.NoError(t, cc.Cluster(cluster).WaitConnected(connected))
	require.NoError(t, cc.Cluster(cluster).Reader().Get(t.Context(), settings, &corev1.ConfigMap{}))
}

// TestClusterIsReachedThroughATunnel: only the fleet's own dialer reaches it.
func TestClusterIsReachedThroughATunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("fleet/east", configMap())
		to := east.Config()
		server, err := url.Parse(to.Host)
		require.NoError(t, err)

		endpoint := resolver.Endpoint{Server: to.Host, CA: to.CAData}
		reach(t, "tunnel", guide.Tunnel(endpoint, to.BearerToken,
			func(ctx context.Context, _ resolver.Cluster) (net.Conn, error) {
				return fleet.Dial(ctx, "tcp", net.JoinHostPort(server.Hostname(), "443"))
			}), east.Key(), resolver.DialPolicy{})
	})
}

// TestTokensAreMintedWhereTheyAreSent: the operator's credential lives in no
// Secret.
func TestTokensAreMintedWhereTheyAreSent(t *testing.T) {
	clusters := testenv.Start(t, 1, testenv.WithNames("east"))
	east, key := clusters[0], client.ObjectKey{Namespace: "fleet", Name: "east"}
	account, err := east.AddServiceAccount(t.Context(), "web", "reader",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	require.NoError(t, err)
	require.NoError(t, east.Client().Create(t.Context(), configMap()))

	var minted atomic.Int32
	endpoints := map[resolver.Cluster]resolver.Endpoint{
		key: {Server: east.Config().Host, CA: east.Config().CAData},
	}
	reach(t, "cloud", guide.Cloud(endpoints, func(context.Context, resolver.Cluster) (string, error) {
		minted.Add(1)
		return account.Token(), nil
	}), key, resolver.DialPolicy{AllowLoopback: true})
	require.Positive(t, minted.Load())
}
