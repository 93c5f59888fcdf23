// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func TestInClusterIsTheHubAndNothingElse(t *testing.T) {
	resolver.SetPodDir(t, resolvertest.ServiceAccountDir(t))
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	r := resolver.InCluster()
	access, err := r.Resolve(t.Context(), resolver.Cluster{})
	require.NoError(t, err)
	require.Equal(t, "https://[fd00::1]:443", access.Config().Host)
	require.True(t, access.Trusted())
	_, err = rest.HTTPClientFor(access.Config())
	require.NoError(t, err)
	clusters, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Equal(t, []resolver.Cluster{{}}, clusters)
	_, err = r.Resolve(t.Context(), resolvertest.Named("a"))
	require.ErrorIs(t, err, resolver.ErrClusterNotFound)
}

func TestInClusterOutsideOfAPodIsUnknown(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	r := resolver.InCluster()
	_, err := r.Resolve(t.Context(), resolver.Cluster{})
	require.EqualError(t, err, "cluster hub: cluster not found: not in a Pod")
	require.ErrorIs(t, err, resolver.ErrClusterNotFound)
	clusters, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Empty(t, clusters)

	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	resolver.SetPodDir(t, t.TempDir())
	_, err = resolver.InCluster().Resolve(t.Context(), resolver.Cluster{})
	require.ErrorIs(t, err, resolver.ErrNoAccess)
	require.NotErrorIs(t, err, resolver.ErrClusterNotFound)
}

func TestInClusterHasAnotherRevisionWithOtherCertificatesOnly(t *testing.T) {
	dir := resolvertest.ServiceAccountDir(t)
	resolver.SetPodDir(t, dir)
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	revision := func() string {
		access, err := resolver.InCluster().Resolve(t.Context(), resolver.Cluster{})
		require.NoError(t, err)
		require.True(t, access.Trusted())
		return access.Revision()
	}
	first := revision()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("another"), 0o600))
	require.Equal(t, first, revision(), "a token is read when it is needed")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), resolvertest.Identities()[1].Cert, 0o600))
	require.NotEqual(t, first, revision())
}

func TestArgoCDNamesOwnClusterOnlyWhenAllowed(t *testing.T) {
	dir := resolvertest.ServiceAccountDir(t)
	resolver.SetPodDir(t, dir)
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	hub := resolvertest.NewHub(resolvertest.ArgoSecret("in-cluster", map[string]string{
		"name":   "here",
		"server": "https://kubernetes.default.svc/",
		"config": `{"bearerToken":"` + resolvertest.CanaryToken + `"}`,
	}))
	r, err := resolver.ArgoCD(hub, resolver.ArgoCDOptions{
		HubOptions: resolver.HubOptions{Allow: resolver.Allow{InCluster: true}},
		ID:         resolver.ArgoCDName,
	})
	require.NoError(t, err)
	access, err := r.Resolve(t.Context(), resolvertest.Named("here"))
	require.NoError(t, err)
	require.Equal(t, "https://10.0.0.1:443", access.Config().Host)
	require.Empty(t, access.Config().BearerToken)
	require.Equal(t, dir+"/token", access.Config().BearerTokenFile)
	require.True(t, access.Trusted())
}
