// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func TestNamedSecretsAreWatchedForAsLongAsTheyAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		config := func(text string) map[string]string {
			return resolvertest.TokenData("value", text)
		}
		hub := resolvertest.NewHub(resolvertest.Secret("team", "one", nil, config("one")),
			resolvertest.Secret("team", "two", nil, config("two")),
			resolvertest.FluxObject("a", resolvertest.SecretRef("one", "")),
			resolvertest.FluxObject("b", resolvertest.SecretRef("one", "")))
		r, err := resolver.Flux(hub, resolver.FluxOptions{Kind: resolvertest.Kustomization})
		require.NoError(t, err)
		news := resolvertest.Notify(t, r)
		news.Take()
		require.Equal(t, 2, hub.Open(), "one for the objects, one for the Secret that both name")

		require.NoError(t, hub.Update(ctx, resolvertest.Secret("team", "one", nil, config("new"))))
		require.Len(t, news.Take(), 2)
		require.Equal(t, "new", resolvertest.Token(t, r, resolvertest.In("team", "b")))

		moved := resolvertest.FluxObject("b", resolvertest.SecretRef("two", ""))
		moved.SetResourceVersion("999")
		require.NoError(t, hub.Update(ctx, moved))
		require.Contains(t, news.Take(), resolvertest.In("team", "b"))
		require.Equal(t, "two", resolvertest.Token(t, r, resolvertest.In("team", "b")))
		require.Equal(t, 3, hub.Open())
		require.NoError(t, hub.Delete(ctx, resolvertest.FluxObject("b", nil)))
		time.Sleep(11 * time.Second)
		require.Equal(t, []resolver.Cluster{resolvertest.In("team", "b")}, news.Take())
		require.Equal(t, 2, hub.Open())

		require.NoError(t, hub.Delete(ctx, resolvertest.Secret("team", "one", nil, nil)))
		require.Empty(t, news.Take())
		time.Sleep(11 * time.Second)
		require.Equal(t, []resolver.Cluster{resolvertest.In("team", "a")}, news.Take())
		_, err = r.Resolve(ctx, resolvertest.In("team", "a"))
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.NoError(t, hub.Create(ctx, resolvertest.Secret("team", "one", nil, config("back"))))
		require.Equal(t, []resolver.Cluster{resolvertest.In("team", "a")}, news.Take())
		require.Equal(t, "back", resolvertest.Token(t, r, resolvertest.In("team", "a")))
	})
}

func TestSecretsThatAreNotHeardOfYetAreReadAndNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(resolvertest.Secret("team", "one", nil, resolvertest.TokenData("value", "one")),
			resolvertest.FluxObject("a", resolvertest.SecretRef("one", "")))
		r, err := resolver.Flux(hub, resolver.FluxOptions{Kind: resolvertest.Kustomization})
		require.NoError(t, err)
		release := hub.Hold()
		news := resolvertest.Notify(t, r)
		require.Equal(t, []resolver.Cluster{resolvertest.In("team", "a")}, news.Take())
		require.Equal(t, "one", resolvertest.Token(t, r, resolvertest.In("team", "a")))
		release()
		require.Equal(t, []resolver.Cluster{resolvertest.In("team", "a")}, news.Take())
		before := hub.Requests.Load()
		require.Equal(t, "one", resolvertest.Token(t, r, resolvertest.In("team", "a")))
		require.Equal(t, before, hub.Requests.Load())
	})
}

func TestNotifyDoesNotLoseItsCopyToAnOlderOneThatEndsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(resolvertest.WithType(resolvertest.Secret("x", "a", nil,
			resolvertest.TokenData("kubeconfig", "one")), "mine"))
		r, err := resolver.Secrets(hub, resolver.SecretOptions{Type: "mine"})
		require.NoError(t, err)
		release := hub.Hold()
		_, stop := resolvertest.NotifyUntil(t, r)
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { defer close(stopped); stop() }()
		synctest.Wait()
		hub.Mu.Lock()
		hub.Held = nil
		hub.Mu.Unlock()
		news := resolvertest.Notify(t, r)
		require.Equal(t, []resolver.Cluster{resolvertest.In("x", "a")}, news.Take())
		release()
		<-stopped
		before := hub.Requests.Load()
		require.Equal(t, "one", resolvertest.Token(t, r, resolvertest.In("x", "a")))
		require.Equal(t, before, hub.Requests.Load(), "the answer comes from the newer watch")
	})
}

func TestIstioKeysComeAndGoWithinOneSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		label := map[string]string{"istio/multiCluster": "true"}
		one := resolvertest.CreatedAt(resolvertest.Secret("istio-system", "one", label,
			map[string]string{"a": string(resolvertest.TokenConfig("a")),
				"b": string(resolvertest.TokenConfig("b"))}), 1)
		two := resolvertest.CreatedAt(resolvertest.Secret("istio-system", "two", label,
			resolvertest.TokenData("b", "second")), 2)
		hub := resolvertest.NewHub(one, two)
		r, err := resolver.Istio(hub, resolver.HubOptions{})
		require.NoError(t, err)
		news := resolvertest.Notify(t, r)
		require.Equal(t, []resolver.Cluster{resolvertest.Named("a"), resolvertest.Named("b")}, news.Take())
		update := one.DeepCopy()
		update.Data = map[string][]byte{"c": resolvertest.TokenConfig("c")}
		require.NoError(t, hub.Update(t.Context(), update))
		require.Equal(t, []resolver.Cluster{resolvertest.Named("a"), resolvertest.Named("b"),
			resolvertest.Named("c")}, news.Take())
		require.Equal(t, "second", resolvertest.Token(t, r, resolvertest.Named("b")),
			"the next claimant holds the cluster")
		_, err = r.Resolve(t.Context(), resolvertest.Named("a"))
		require.ErrorIs(t, err, resolver.ErrClusterNotFound)
	})
}

func TestArgoCDPluginsRunOnlyWhenListed(t *testing.T) {
	hub := resolvertest.NewHub(
		resolvertest.ArgoSecret("aws", map[string]string{"server": "https://c.example",
			"config": `{"awsAuthConfig":{"clusterName":"x","roleARN":"r"},"execProviderConfig":{"command":"sh"}}`}),
		resolvertest.ArgoSecret("exec", map[string]string{"server": "https://c.example",
			"config": `{"execProviderConfig":{"command":"helper","args":["a"],"env":{"B":"2","A":"1"},` +
				`"apiVersion":"client.authentication.k8s.io/v1"}}`}),
	)
	r, err := resolver.ArgoCD(hub, resolver.ArgoCDOptions{HubOptions: resolver.HubOptions{
		Allow: resolver.Allow{Exec: []string{"argocd-k8s-auth", "helper"}, ExecEnv: []string{"A", "B"}}}})
	require.NoError(t, err)
	access, err := r.Resolve(t.Context(), resolvertest.Named("aws"))
	require.NoError(t, err)
	require.Equal(t, []string{"aws", "--cluster-name", "x", "--role-arn", "r"}, access.Config().ExecProvider.Args)
	access, err = r.Resolve(t.Context(), resolvertest.Named("exec"))
	require.NoError(t, err)
	plugin := access.Config().ExecProvider
	require.Equal(t, "helper", plugin.Command)
	require.Equal(t, "A", plugin.Env[0].Name)
}
