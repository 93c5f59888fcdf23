// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// TestHazardNamesFromSecretsAreText guards against names with arbitrary bytes,
// which the author of a Secret chooses.
func TestHazardNamesFromSecretsAreText(t *testing.T) {
	argo := func(object, name string) *corev1.Secret {
		return resolvertest.Secret("argocd", object, map[string]string{"argocd.argoproj.io/secret-type": "cluster"},
			map[string]string{"name": name, "server": "https://c.example", "config": `{"bearerToken":"t"}`})
	}
	for name, reason := range map[string]string{
		"east\xff":                 "is not valid UTF-8",
		"east\nlevel=error":        "has control characters",
		"east\x00":                 "has control characters",
		"\u0085":                   "has control characters",
		strings.Repeat("x", 1<<20): "has more than 1024 bytes",
	} {
		synctest.Test(t, func(t *testing.T) {
			hub := resolvertest.NewHub(argo("bad", name), argo("good", "good"))
			r, err := resolver.ArgoCD(hub, resolver.ArgoCDOptions{ID: resolver.ArgoCDName})
			require.NoError(t, err)
			check := func() {
				clusters, err := r.Clusters(t.Context())
				require.NoError(t, err)
				require.Equal(t, []resolver.Cluster{resolvertest.Named("good"),
					resolvertest.In("argocd", "bad")}, clusters)
				require.Equal(t, "t", resolvertest.Token(t, r, resolvertest.Named("good")))
				_, err = r.Resolve(t.Context(), resolvertest.In("argocd", "bad"))
				require.EqualError(t, err, "cluster argocd/bad: Secret argocd/bad: invalid kubeconfig: name "+reason)
				_, ok := errors.AsType[*resolver.KubeconfigError](err)
				require.True(t, ok)
				_, err = r.Resolve(t.Context(), resolvertest.Named(name))
				require.ErrorIs(t, err, resolver.ErrClusterNotFound)
			}
			check()
			require.NotEmpty(t, resolvertest.Notify(t, r).Take())
			check()
		})
	}
}

// TestHazardNoSecretIsTheHub checks that an ID that finds no name does not make
// a remote cluster, or the clusters of many Secrets, pass for the hub.
func TestHazardNoSecretIsTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := resolvertest.Secret("fleet", "b", nil, resolvertest.TokenData("kubeconfig", "bad"))
		claimed := resolvertest.Secret("fleet", "other", map[string]string{"id": "b"},
			resolvertest.TokenData("kubeconfig", "claimed"))
		claimed.CreationTimestamp.Time = resolvertest.NotAfter // younger
		hub := resolvertest.NewHub(bad, claimed)
		r, err := resolver.Secrets(hub, resolver.SecretOptions{
			HubOptions: resolver.HubOptions{Namespace: "fleet"},
			ID: func(s *corev1.Secret) (resolver.Cluster, bool) {
				if s.Labels["id"] == "" {
					return resolver.Cluster{}, true
				}
				return resolvertest.In("fleet", s.Labels["id"]), true
			},
		})
		require.NoError(t, err)
		check := func() {
			_, err := r.Resolve(t.Context(), resolver.Cluster{})
			require.ErrorIs(t, err, resolver.ErrClusterNotFound)
			require.Equal(t, "claimed", resolvertest.Token(t, r, resolvertest.In("fleet", "b")),
				"who has the name by right wins")
		}
		check()
		resolvertest.Notify(t, r).Take()
		check()
		require.NoError(t, hub.Delete(t.Context(), claimed))
		_, err = resolver.Secrets(hub, resolver.SecretOptions{})
		require.Error(t, err)
	})
}
