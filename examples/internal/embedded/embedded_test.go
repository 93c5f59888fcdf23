// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startFleet(t *testing.T, names ...string) *Fleet {
	t.Helper()
	f, err := Start(names...)
	require.NoError(t, err)
	t.Cleanup(f.Stop)
	return f
}

// connect returns a client over the network, whose connections end with the
// test.
func connect(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(httpClient.CloseIdleConnections)
	c, err := client.NewWithWatch(config, client.Options{HTTPClient: httpClient})
	require.NoError(t, err)
	return c
}

// requireRefused checks that a new connection is refused.
func requireRefused(t *testing.T, c *Cluster) {
	t.Helper()
	err := connect(t, c.Config()).List(t.Context(), &corev1.ConfigMapList{})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestAKilledClusterRefusesAndComesBackWithItsData(t *testing.T) {
	f := startFleet(t, "a", "b")
	a, b := f.Clusters[0], f.Clusters[1]
	overA, overB := connect(t, a.Config()), connect(t, b.Config())
	first := configMap("first")
	require.NoError(t, overA.Create(t.Context(), first))
	require.NoError(t, a.Client().Create(t.Context(), configMap("second")))
	open, err := overA.Watch(t.Context(), &corev1.ConfigMapList{})
	require.NoError(t, err)

	require.NoError(t, a.Kill())
	for range open.ResultChan() { // ends, since the connection is reset
		continue
	}
	requireRefused(t, a)
	require.NoError(t, overB.List(t.Context(), &corev1.ConfigMapList{}), "the other cluster is not affected")
	require.NoError(t, a.Client().Get(t.Context(), client.ObjectKeyFromObject(first), configMap("")))

	require.NoError(t, a.StartAPIServer(t.Context()))
	overA = connect(t, a.Config())
	require.NoError(t, overA.Get(t.Context(), client.ObjectKeyFromObject(first), configMap("")))
	resumed, err := overA.Watch(t.Context(), &corev1.ConfigMapList{},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: first.ResourceVersion}})
	if err == nil {
		event := <-resumed.ResultChan()
		resumed.Stop()
		require.Equal(t, watch.Error, event.Type)
		err = apierrors.FromObject(event.Object)
	}
	require.True(t, apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "history survived the kill: %v", err)
}

func TestACutForgetsNothing(t *testing.T) {
	f := startFleet(t, "a")
	a := f.Clusters[0]
	over := connect(t, a.Config())
	first := configMap("first")
	require.NoError(t, over.Create(t.Context(), first))

	a.Refuse()
	requireRefused(t, a)
	require.NoError(t, a.Client().Create(t.Context(), configMap("meanwhile")))
	require.NoError(t, a.Heal())

	resumed, err := connect(t, a.Config()).Watch(t.Context(), &corev1.ConfigMapList{},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: first.ResourceVersion}})
	require.NoError(t, err)
	defer resumed.Stop()
	event := <-resumed.ResultChan()
	require.Equal(t, watch.Added, event.Type)
	require.Equal(t, "meanwhile", event.Object.(*corev1.ConfigMap).Name)
}

func TestOnlyTheTokenIsAdmitted(t *testing.T) {
	a := startFleet(t, "a").Clusters[0]
	config := a.Config()
	config.BearerToken = "wrong"
	err := connect(t, config).List(t.Context(), &corev1.ConfigMapList{})
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)
}

func TestRequestsOfTheAdministratorAreNotCounted(t *testing.T) {
	a := startFleet(t, "a").Clusters[0]
	require.NoError(t, a.InstallCRDs(t.Context(), testenv.SimpleCRD("example.com", "Widget")))
	require.NoError(t, a.Client().List(t.Context(), &corev1.SecretList{}))
	config := a.Config()
	config.UserAgent = "me"
	require.NoError(t, connect(t, config).List(t.Context(), &corev1.SecretList{}, client.Limit(7)))

	found, err := a.Requests(testenv.Resource("secrets"), testenv.UserAgent("me"), testenv.Verb("list"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "/api/v1/secrets?limit=7", found[0].URI)
	none, err := a.Requests(testenv.Resource("secrets"), testenv.Verb("watch"))
	require.NoError(t, err)
	require.Empty(t, none)
	none, err = a.Requests(testenv.Verb("create"))
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestReachedClustersAreDialedInTheFleet(t *testing.T) {
	f := startFleet(t, "a")
	config, err := clientcmd.RESTConfigFromKubeConfig(f.Clusters[0].Kubeconfig())
	require.NoError(t, err)
	require.Nil(t, config.Dial)
	access, err := resolver.NewAccess(config)
	require.NoError(t, err)
	of := settable.New()
	of.Synced()
	key := resolver.Cluster{Name: "a"}
	of.Set(key, access.WithLabels(map[string]string{"in": "memory"}), nil)

	clusters, err := f.Reach(of)
	require.NoError(t, err)
	found, err := clusters.Resolve(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"in": "memory"}, found.Labels())
	require.NoError(t, connect(t, found.Config()).List(t.Context(), &corev1.ConfigMapList{}))
	_, err = clusters.Resolve(t.Context(), resolver.Cluster{Name: "b"})
	require.ErrorIs(t, err, resolver.ErrClusterNotFound)
	listed, err := clusters.(resolver.Lister).Clusters(t.Context())
	require.NoError(t, err)
	require.Equal(t, []resolver.Cluster{key}, listed)

	_, err = f.Dial(t.Context(), "tcp", "b"+domain+":443")
	require.ErrorContains(t, err, "no such host")
	_, err = f.Reach(resolver.Func(func(context.Context, resolver.Cluster) (resolver.Access, error) {
		return resolver.Access{}, errors.New("not called")
	}))
	require.ErrorContains(t, err, "lists no clusters")
}
