// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

func TestNamedSecretsAreWatchedForAsLongAsTheyAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		config := func(text string) map[string]string { return map[string]string{"value": string(tokenConfig(text))} }
		hub := newFakeHub(secret("team", "one", nil, config("one")), secret("team", "two", nil, config("two")),
			fluxObject("a", secretRef("one", "")), fluxObject("b", secretRef("one", "")))
		r, err := resolver.Flux(hub, resolver.FluxOptions{Kind: kustomization})
		require.NoError(t, err)
		news := notify(t, r)
		news.take()
		require.Equal(t, 2, hub.open(), "one for the objects, one for the Secret that both name")

		require.NoError(t, hub.Update(ctx, secret("team", "one", nil, config("new"))))
		require.Len(t, news.take(), 2)
		require.Equal(t, "new", token(t, r, in("team", "b")))

		moved := fluxObject("b", secretRef("two", ""))
		moved.SetResourceVersion("999")
		require.NoError(t, hub.Update(ctx, moved))
		require.Contains(t, news.take(), in("team", "b"))
		require.Equal(t, "two", token(t, r, in("team", "b")))
		require.Equal(t, 3, hub.open())
		require.NoError(t, hub.Delete(ctx, fluxObject("b", nil)))
		time.Sleep(11 * time.Second)
		require.Equal(t, []resolver.Cluster{in("team", "b")}, news.take())
		require.Equal(t, 2, hub.open())

		require.NoError(t, hub.Delete(ctx, secret("team", "one", nil, nil)))
		require.Empty(t, news.take())
		time.Sleep(11 * time.Second)
		require.Equal(t, []resolver.Cluster{in("team", "a")}, news.take())
		_, err = r.Resolve(ctx, in("team", "a"))
		require.ErrorIs(t, err, resolver.ErrSecretNotFound)
		require.NoError(t, hub.Create(ctx, secret("team", "one", nil, config("back"))))
		require.Equal(t, []resolver.Cluster{in("team", "a")}, news.take())
		require.Equal(t, "back", token(t, r, in("team", "a")))
	})
}

func TestSecretsThatAreNotHeardOfYetAreReadAndNotMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub(secret("team", "one", nil, map[string]string{"value": string(tokenConfig("one"))}),
			fluxObject("a", secretRef("one", "")))
		r, err := resolver.Flux(hub, resolver.FluxOptions{Kind: kustomization})
		require.NoError(t, err)
		release := hub.hold()
		news := notify(t, r)
		require.Equal(t, []resolver.Cluster{in("team", "a")}, news.take())
		require.Equal(t, "one", token(t, r, in("team", "a")))
		release()
		require.Equal(t, []resolver.Cluster{in("team", "a")}, news.take())
		before := hub.requests.Load()
		require.Equal(t, "one", token(t, r, in("team", "a")))
		require.Equal(t, before, hub.requests.Load())
	})
}

func TestNotifyDoesNotLoseItsCopyToAnOlderOneThatEndsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub(withType(secret("x", "a", nil, map[string]string{"kubeconfig": string(tokenConfig("one"))}), "mine"))
		r, err := resolver.Secrets(hub, resolver.SecretOptions{Type: "mine"})
		require.NoError(t, err)
		release := hub.hold()
		_, stop := notifyUntil(t, r)
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { defer close(stopped); stop() }()
		synctest.Wait()
		hub.mu.Lock()
		hub.held = nil
		hub.mu.Unlock()
		news := notify(t, r)
		require.Equal(t, []resolver.Cluster{in("x", "a")}, news.take())
		release()
		<-stopped
		before := hub.requests.Load()
		require.Equal(t, "one", token(t, r, in("x", "a")))
		require.Equal(t, before, hub.requests.Load(), "the answer comes from the newer watch")
	})
}

func TestIstioKeysComeAndGoWithinOneSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		label := map[string]string{"istio/multiCluster": "true"}
		one := at(secret("istio-system", "one", label, map[string]string{"a": string(tokenConfig("a")), "b": string(tokenConfig("b"))}), 1)
		two := at(secret("istio-system", "two", label, map[string]string{"b": string(tokenConfig("second"))}), 2)
		hub := newFakeHub(one, two)
		r, err := resolver.Istio(hub, resolver.HubOptions{})
		require.NoError(t, err)
		news := notify(t, r)
		require.Equal(t, []resolver.Cluster{named("a"), named("b")}, news.take())
		update := one.DeepCopy()
		update.Data = map[string][]byte{"c": tokenConfig("c")}
		require.NoError(t, hub.Update(t.Context(), update))
		require.Equal(t, []resolver.Cluster{named("a"), named("b"), named("c")}, news.take())
		require.Equal(t, "second", token(t, r, named("b")), "the next claimant holds the cluster")
		_, err = r.Resolve(t.Context(), named("a"))
		require.ErrorIs(t, err, resolver.ErrClusterNotFound)
	})
}

func TestArgoCDNamesOwnClusterOnlyWhenAllowed(t *testing.T) {
	dir := serviceAccountDir(t)
	resolver.SetPodDir(t, dir)
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	hub := newFakeHub(argoSecret("in-cluster", map[string]string{"name": "here", "server": "https://kubernetes.default.svc/", "config": `{"bearerToken":"` + canaryToken + `"}`}))
	r, err := resolver.ArgoCD(hub, resolver.ArgoCDOptions{
		HubOptions: resolver.HubOptions{Allow: resolver.Allow{InCluster: true}},
		ID:         resolver.ArgoCDName,
	})
	require.NoError(t, err)
	access, err := r.Resolve(t.Context(), named("here"))
	require.NoError(t, err)
	require.Equal(t, "https://10.0.0.1:443", access.Config().Host)
	require.Empty(t, access.Config().BearerToken)
	require.Equal(t, dir+"/token", access.Config().BearerTokenFile)
	require.True(t, access.Trusted())
}

func TestArgoCDPluginsRunOnlyWhenListed(t *testing.T) {
	hub := newFakeHub(
		argoSecret("aws", map[string]string{"server": "https://c.example", "config": `{"awsAuthConfig":{"clusterName":"x","roleARN":"r"},"execProviderConfig":{"command":"sh"}}`}),
		argoSecret("exec", map[string]string{"server": "https://c.example", "config": `{"execProviderConfig":{"command":"helper","args":["a"],"env":{"B":"2","A":"1"},"apiVersion":"client.authentication.k8s.io/v1"}}`}),
	)
	r, err := resolver.ArgoCD(hub, resolver.ArgoCDOptions{HubOptions: resolver.HubOptions{
		Allow: resolver.Allow{Exec: []string{"argocd-k8s-auth", "helper"}, ExecEnv: []string{"A", "B"}}}})
	require.NoError(t, err)
	access, err := r.Resolve(t.Context(), named("aws"))
	require.NoError(t, err)
	require.Equal(t, []string{"aws", "--cluster-name", "x", "--role-arn", "r"}, access.Config().ExecProvider.Args)
	access, err = r.Resolve(t.Context(), named("exec"))
	require.NoError(t, err)
	plugin := access.Config().ExecProvider
	require.Equal(t, "helper", plugin.Command)
	require.Equal(t, "A", plugin.Env[0].Name)
}
