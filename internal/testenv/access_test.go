// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestAccess uses one cluster for all subtests; none of them disturbs another.
func TestAccess(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1, testenv.WithNames("hub"), testenv.WithCRDs(testenv.SimpleCRD("example.com", "Gadget")))[0]
	for name, test := range map[string]func(*testing.T, *testenv.Cluster){
		"AKubeconfigHoldsAllItNeeds":                aKubeconfigHoldsAllItNeeds,
		"TheVersionIsStamped":                       theVersionIsStamped,
		"AnInstalledKindIsServed":                   anInstalledKindIsServed,
		"AUserMayDoWhatItsRulesSayUntilDenied":      aUserMayDoWhatItsRulesSayUntilDenied,
		"ARevokedTokenIsRejectedAndANewOneAccepted": aRevokedTokenIsRejected,
		"RequestsAreCountedWhenTheAnswerHasCome":    requestsAreCounted,
		"AProxyIsVerifiedByTLSAsTheServerIs":        aProxyIsVerified,
		"ASnapshotDisconnectsNobody":                aSnapshotDisconnectsNobody,
		"ConfigsAreCopies":                          configsAreCopies,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

func aKubeconfigHoldsAllItNeeds(t *testing.T, c *testenv.Cluster) {
	require.Equal(t, "hub", c.Name())
	var namespaces corev1.NamespaceList
	require.NoError(t, fromKubeconfig(t, c.Kubeconfig()).List(t.Context(), &namespaces))
	require.NotEmpty(t, namespaces.Items)
}

func configsAreCopies(t *testing.T, c *testenv.Cluster) {
	config := c.Config()
	require.Less(t, config.QPS, float32(0))
	config.Host, config.CAData[0] = "https://elsewhere", 'x'
	require.Equal(t, http.StatusOK, statusOf(t, c.Config(), "/version"))
}

func theVersionIsStamped(t *testing.T, c *testenv.Cluster) {
	d, err := discovery.NewDiscoveryClientForConfig(c.Config())
	require.NoError(t, err)
	version, err := d.ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "1", version.Major)
	require.True(t, strings.HasPrefix(version.GitVersion, "v1."+version.Minor+"."), version.GitVersion)
}

func anInstalledKindIsServed(t *testing.T, c *testenv.Cluster) {
	widget := testenv.SimpleCRD("example.com", "Widget", apiextensionsv1.ClusterScoped)
	require.NoError(t, c.InstallCRDs(t.Context(), widget))
	for kind, namespace := range map[string]string{"Widget": "", "Gadget": "default"} {
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"any": "thing"}}}
		obj.SetAPIVersion("example.com/v1")
		obj.SetKind(kind)
		obj.SetNamespace(namespace)
		obj.SetName("one")
		create(t, c, obj)
		kept, _, err := unstructured.NestedString(obj.Object, "spec", "any")
		require.NoError(t, err)
		require.Equal(t, "thing", kept)
	}
	require.NoError(t, c.InstallCRDs(t.Context(), widget), "again")
}

func aUserMayDoWhatItsRulesSayUntilDenied(t *testing.T, c *testenv.Cluster) {
	user, err := c.AddUser(t.Context(), "jane", readConfigMaps())
	require.NoError(t, err)
	as := fromKubeconfig(t, user.Kubeconfig())
	require.NoError(t, as.List(t.Context(), &corev1.ConfigMapList{}))
	require.True(t, apierrors.IsForbidden(as.List(t.Context(), &corev1.SecretList{})))
	require.NoError(t, user.Deny(t.Context()))
	require.True(t, apierrors.IsForbidden(as.List(t.Context(), &corev1.ConfigMapList{})))
	require.NoError(t, user.Deny(t.Context()), "again")
	require.NoError(t, user.Grant(t.Context(), readConfigMaps()))
	require.NoError(t, as.List(t.Context(), &corev1.ConfigMapList{}))
}

func aRevokedTokenIsRejected(t *testing.T, c *testenv.Cluster) {
	account, err := c.AddServiceAccount(t.Context(), "fleet", "reader", readConfigMaps())
	require.NoError(t, err)
	old := account.Config()
	require.NoError(t, fromKubeconfig(t, account.Kubeconfig()).List(t.Context(), &corev1.ConfigMapList{}))
	require.NoError(t, account.Reissue(t.Context()))
	require.NotEqual(t, old.BearerToken, account.Token())
	for _, valid := range []*rest.Config{old, account.Config()} {
		require.Equal(t, http.StatusOK, statusOf(t, valid, "/version"))
	}

	require.NoError(t, account.Revoke(t.Context()))
	before, err := c.Requests(testenv.Rejected())
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, statusOf(t, account.Config(), "/version"))
	rejected, err := c.Requests(testenv.Rejected())
	require.NoError(t, err)
	require.Len(t, rejected, len(before)+1)
	require.Equal(t, "/version", rejected[len(before)].URI)

	require.NoError(t, account.Reissue(t.Context()))
	require.NoError(t, clientFor(t, account.Config()).List(t.Context(), &corev1.ConfigMapList{}))
}

func requestsAreCounted(t *testing.T, c *testenv.Cluster) {
	config := c.Config()
	config.UserAgent = "the-counted-one/1"
	as := clientFor(t, config)
	for range 3 {
		require.NoError(t, as.List(t.Context(), &corev1.PodList{}, client.InNamespace("default")))
	}
	watch, err := as.Watch(t.Context(), &corev1.PodList{})
	require.NoError(t, err)
	watch.Stop()

	mine := testenv.UserAgent("the-counted-one")
	lists, err := c.Requests(mine, testenv.Verb("list"), testenv.Resource("pods"))
	require.NoError(t, err)
	require.Len(t, lists, 3)
	require.Equal(t, "default", lists[0].Namespace)
	require.Equal(t, "v1", lists[0].Version)
	watches, err := c.Requests(mine, testenv.Verb("watch"), testenv.Resource("pods"), testenv.ByUser("admin"))
	require.NoError(t, err)
	require.Len(t, watches, 1)
	other, err := c.Requests(mine, testenv.Resource("pods.example.com"))
	require.NoError(t, err)
	require.Empty(t, other)
}

func aProxyIsVerified(t *testing.T, c *testenv.Cluster) {
	p := c.Proxy(t)
	through := fromKubeconfig(t, p.Kubeconfig())
	watch, err := through.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default"))
	require.NoError(t, err)
	defer watch.Stop()
	create(t, c, configMap("through-the-proxy"))
	event := <-watch.ResultChan()
	require.NotNil(t, event.Object)
	p.Refuse()
	drain(watch.ResultChan())
	require.Error(t, through.List(t.Context(), &corev1.ConfigMapList{}))
	require.NoError(t, p.Heal())
	require.NoError(t, through.List(t.Context(), &corev1.ConfigMapList{}))

	user, err := c.AddUser(t.Context(), "behind-the-proxy", readConfigMaps())
	require.NoError(t, err)
	require.NoError(t, clientFor(t, p.Redirect(user.Config())).List(t.Context(), &corev1.ConfigMapList{}))
}

func aSnapshotDisconnectsNobody(t *testing.T, c *testenv.Cluster) {
	as := clientFor(t, c.Config())
	var list corev1.ConfigMapList
	require.NoError(t, as.List(t.Context(), &list, client.InNamespace("default")))
	watch, err := as.Watch(t.Context(), &list, client.InNamespace("default"),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	require.NoError(t, err)
	defer watch.Stop()
	_, err = c.Snapshot(t.Context())
	require.NoError(t, err)
	create(t, c, configMap("after-the-snapshot"))
	event := <-watch.ResultChan()
	require.Equal(t, "after-the-snapshot", event.Object.(*corev1.ConfigMap).Name)
}
