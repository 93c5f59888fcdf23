// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"context"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) {
	if part := os.Getenv(envPart); part != "" {
		play(part)
	}
	testenv.Main(m, testenv.VerifyNoLeaks())
}

// clientFor returns a client whose connections are closed when the test ends.
func clientFor(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(httpClient.CloseIdleConnections)
	c, err := client.NewWithWatch(config, client.Options{HTTPClient: httpClient})
	require.NoError(t, err)
	return c
}

// fromKubeconfig returns a client made from nothing but the kubeconfig's bytes.
func fromKubeconfig(t *testing.T, kubeconfig []byte) client.WithWatch {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	require.False(t, config.Insecure)
	require.Empty(t, config.CAFile+config.CertFile+config.KeyFile+config.BearerTokenFile)
	return clientFor(t, config)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func create(t *testing.T, c *testenv.Cluster, obj client.Object) {
	t.Helper()
	require.NoError(t, c.Client().Create(t.Context(), obj))
}

// get reads the ConfigMap with that name.
func get(ctx context.Context, c client.Client, name string) (*corev1.ConfigMap, error) {
	found := &corev1.ConfigMap{}
	return found, c.Get(ctx, client.ObjectKeyFromObject(configMap(name)), found)
}

func systemUID(t *testing.T, c *testenv.Cluster) string {
	t.Helper()
	ns := &corev1.Namespace{}
	require.NoError(t, c.Client().Get(t.Context(), client.ObjectKey{Name: "kube-system"}, ns))
	return string(ns.UID)
}

func readConfigMaps() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""},
		Resources: []string{"configmaps"}}
}

// soon returns a context for an operation that must fail, or must not take
// long.
func soon(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// statusOf returns the HTTP status of a GET.
func statusOf(t *testing.T, config *rest.Config, path string) int {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer httpClient.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
	require.NoError(t, err)
	resp, err := httpClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// drain receives until the channel is closed.
func drain[T any](ch <-chan T) {
	for open := true; open; {
		_, open = <-ch
	}
}
