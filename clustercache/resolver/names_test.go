// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// TestHazardNamesFromSecretsAreText guards against names with arbitrary bytes,
// which the author of a Secret chooses.
func TestHazardNamesFromSecretsAreText(t *testing.T) {
	argo := func(object, name string) *corev1.Secret {
		return secret("argocd", object, map[string]string{"argocd.argoproj.io/secret-type": "cluster"},
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
			hub := newFakeHub(argo("bad", name), argo("good", "good"))
			r, err := resolver.ArgoCD(hub, resolver.ArgoCDOptions{ID: resolver.ArgoCDName})
			require.NoError(t, err)
			check := func() {
				clusters, err := r.Clusters(t.Context())
				require.NoError(t, err)
				require.Equal(t, []resolver.Cluster{named("good"), in("argocd", "bad")}, clusters)
				require.Equal(t, "t", token(t, r, named("good")))
				_, err = r.Resolve(t.Context(), in("argocd", "bad"))
				require.EqualError(t, err, "cluster argocd/bad: Secret argocd/bad: invalid kubeconfig: name "+reason)
				_, ok := errors.AsType[*resolver.KubeconfigError](err)
				require.True(t, ok)
				_, err = r.Resolve(t.Context(), named(name))
				require.ErrorIs(t, err, resolver.ErrClusterNotFound)
			}
			check()
			require.NotEmpty(t, notify(t, r).take())
			check()
		})
	}
}

// TestHazardNoSecretIsTheHub checks that an ID that finds no name does not make
// a remote cluster, or the clusters of many Secrets, pass for the hub.
func TestHazardNoSecretIsTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := secret("fleet", "b", nil, map[string]string{"kubeconfig": string(tokenConfig("bad"))})
		claimed := secret("fleet", "other", map[string]string{"id": "b"}, map[string]string{"kubeconfig": string(tokenConfig("claimed"))})
		claimed.CreationTimestamp.Time = notAfter // younger
		hub := newFakeHub(bad, claimed)
		r, err := resolver.Secrets(hub, resolver.SecretOptions{
			HubOptions: resolver.HubOptions{Namespace: "fleet"},
			ID: func(s *corev1.Secret) (resolver.Cluster, bool) {
				if s.Labels["id"] == "" {
					return resolver.Cluster{}, true
				}
				return in("fleet", s.Labels["id"]), true
			},
		})
		require.NoError(t, err)
		check := func() {
			_, err := r.Resolve(t.Context(), resolver.Cluster{})
			require.ErrorIs(t, err, resolver.ErrClusterNotFound)
			require.Equal(t, "claimed", token(t, r, in("fleet", "b")), "who has the name by right wins")
		}
		check()
		notify(t, r).take()
		check()
		require.NoError(t, hub.Delete(t.Context(), claimed))
		_, err = resolver.Secrets(hub, resolver.SecretOptions{})
		require.Error(t, err)
	})
}
