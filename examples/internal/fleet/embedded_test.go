// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/examples/internal/story"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startInMemory(t *testing.T, names ...string) *Fleet {
	t.Helper()
	var out bytes.Buffer
	f, err := Local{Embedded: true}.Start(t.Context(), story.NewPrinter(&out), "Some clusters", names...)
	require.NoError(t, err)
	require.Contains(t, out.String(), "Some clusters, in the memory of this process")
	require.Contains(t, out.String(), "what they do not show: etcd")
	t.Cleanup(func() {
		require.NoError(t, f.Stop())
		require.Contains(t, out.String(), "the clusters are gone")
	})
	return f
}

// connect returns a client whose connections end with the test.
func connect(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(httpClient.CloseIdleConnections)
	c, err := client.NewWithWatch(config, client.Options{HTTPClient: httpClient})
	require.NoError(t, err)
	return c
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestAKilledClusterInMemoryRefusesAndComesBackWithItsData(t *testing.T) {
	f := startInMemory(t, "a", "b")
	a, over := f.Hub, connect(t, f.Hub.Config())
	first := configMap("first")
	require.NoError(t, over.Create(t.Context(), first))
	require.NoError(t, a.Client().Create(t.Context(), configMap("second")))
	open, err := over.Watch(t.Context(), &corev1.ConfigMapList{})
	require.NoError(t, err)

	require.NoError(t, a.Kill())
	for range open.ResultChan() { // ends, since the connection is reset
		continue
	}
	require.ErrorIs(t, over.List(t.Context(), &corev1.ConfigMapList{}), syscall.ECONNREFUSED)
	require.ErrorIs(t, a.Client().List(t.Context(), &corev1.ConfigMapList{}), syscall.ECONNREFUSED,
		"the administrator of a dead server gets no answer, either")
	require.NoError(t, f.Remotes[0].Client().List(t.Context(), &corev1.ConfigMapList{}), "the other one serves")

	require.NoError(t, a.StartAPIServer(t.Context()))
	require.NoError(t, a.Client().Get(t.Context(), client.ObjectKeyFromObject(first), configMap("")))
	resumed, err := over.Watch(t.Context(), &corev1.ConfigMapList{},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: first.ResourceVersion}})
	if err == nil {
		event := <-resumed.ResultChan()
		resumed.Stop()
		require.Equal(t, watch.Error, event.Type)
		err = apierrors.FromObject(event.Object)
	}
	require.True(t, apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "history survived the kill: %v", err)
}

func TestARoadThatIsCutForgetsNothing(t *testing.T) {
	f := startInMemory(t, "a")
	road, err := f.NewRoad(f.Hub)
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(road.Kubeconfig())
	require.NoError(t, err)
	over := connect(t, config)
	first := configMap("first")
	require.NoError(t, over.Create(t.Context(), first))

	road.Refuse()
	require.ErrorIs(t, over.List(t.Context(), &corev1.ConfigMapList{}), syscall.ECONNREFUSED)
	require.NoError(t, f.Hub.Client().Create(t.Context(), configMap("meanwhile")), "only the road is cut")
	require.NoError(t, road.Heal())

	resumed, err := over.Watch(t.Context(), &corev1.ConfigMapList{},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: first.ResourceVersion}})
	require.NoError(t, err)
	defer resumed.Stop()
	event := <-resumed.ResultChan()
	require.Equal(t, watch.Added, event.Type)
	require.Equal(t, "meanwhile", event.Object.(*corev1.ConfigMap).Name)
}

func TestUsersInMemoryMayDoWhatTheirRulesSay(t *testing.T) {
	a := startInMemory(t, "a").Hub
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	require.NoError(t, a.Client().Create(t.Context(), configMap("c")))
	user, err := a.AddUser(t.Context(), "reader",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{
			APIGroups:     []string{""},
			Resources:     []string{"namespaces"},
			ResourceNames: []string{"default"},
			Verbs:         []string{"get", "update"},
		})
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(user.Kubeconfig())
	require.NoError(t, err)
	over := connect(t, config)

	require.NoError(t, over.List(t.Context(), &corev1.ConfigMapList{}))
	require.NoError(t, over.Get(t.Context(), client.ObjectKey{Name: "default"}, namespace))
	for what, err := range map[string]error{
		"another verb":     over.Create(t.Context(), configMap("d")),
		"another resource": over.List(t.Context(), &corev1.SecretList{}),
		"another group":    over.List(t.Context(), &rbacv1.RoleList{}),
		"another name":     over.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{}),
		"no name":          over.List(t.Context(), &corev1.NamespaceList{}),
		"subresource":      over.Status().Update(t.Context(), namespace),
	} {
		require.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
	require.NoError(t, user.Grant(t.Context()))
	require.True(t, apierrors.IsForbidden(over.List(t.Context(), &corev1.ConfigMapList{})))

	config.BearerToken = "somebody"
	err = connect(t, config).List(t.Context(), &corev1.ConfigMapList{})
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)
}

func TestRequestsAndWatchesInMemoryAreCounted(t *testing.T) {
	a := startInMemory(t, "a").Hub
	require.NoError(t, a.InstallCRDs(t.Context(), testenv.SimpleCRD("example.com", "Widget")))
	config := a.Config()
	config.UserAgent = "me"
	over, begin := connect(t, config), time.Now()
	require.NoError(t, over.List(t.Context(), &corev1.SecretList{}, client.Limit(7)))

	found, err := a.Requests(testenv.Resource("secrets"), testenv.UserAgent("me"), testenv.Verb("list"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "/api/v1/secrets?limit=7", found[0].URI)
	require.Equal(t, administrator, found[0].User)
	require.WithinRange(t, found[0].Time, begin, time.Now())
	none, err := a.Requests(testenv.Resource("secrets"), testenv.Verb("watch"))
	require.NoError(t, err)
	require.Empty(t, none)

	open, err := over.Watch(t.Context(), &corev1.SecretList{})
	require.NoError(t, err)
	for resource, want := range map[string]int{"secrets": 1, "configmaps": 0} {
		got, err := a.OpenWatches(t.Context(), resource)
		require.NoError(t, err)
		require.Equal(t, want, got, resource)
	}
	open.Stop()
	require.Eventually(t, func() bool {
		got, err := a.OpenWatches(t.Context(), "secrets")
		return err == nil && got == 0
	}, story.Patience, story.Look)
}

func TestWatchesAreCountedByMetrics(t *testing.T) {
	n, err := countWatches(strings.NewReader(`# HELP apiserver_longrunning_requests
apiserver_longrunning_requests{group="",resource="secrets",scope="cluster",verb="WATCH",version="v1"} 3
apiserver_longrunning_requests{group="",resource="secrets",scope="namespace",verb="WATCH",version="v1"} 2
apiserver_longrunning_requests{group="",resource="secrets",scope="cluster",verb="LIST",version="v1"} 7
apiserver_longrunning_requests{group="",resource="configmaps",scope="cluster",verb="WATCH",version="v1"} 9
`), "secrets")
	require.NoError(t, err)
	require.Equal(t, 5, n)
}
