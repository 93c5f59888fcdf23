// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/inventory"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var east = resolvertest.In("fleet", "east")

func provider(name, command string) inventory.Provider {
	return inventory.Provider{
		Name: name,
		Exec: clientcmdv1.ExecConfig{
			APIVersion:         "client.authentication.k8s.io/v1",
			Command:            command,
			Args:               []string{"token"},
			Env:                []clientcmdv1.ExecEnvVar{{Name: "REGION", Value: "home"}},
			InteractiveMode:    clientcmdv1.NeverExecInteractiveMode,
			ProvideClusterInfo: true,
		},
	}
}

// entry returns an access provider of a status.
func entry(name string, cluster map[string]any) map[string]any {
	return map[string]any{"name": name, "cluster": cluster}
}

func server(host string) map[string]any { return map[string]any{"server": "https://" + host} }

// profile returns a ClusterProfile, with its providers in a field of the status.
func profile(field string, providers ...any) *unstructured.Unstructured {
	status := map[string]any{}
	if field != "" {
		status[field] = providers
	}
	out := resolvertest.UnstructuredObject("multicluster.x-k8s.io/v1alpha1", "ClusterProfile", "fleet", "east",
		map[string]any{"status": status})
	out.SetLabels(map[string]string{"env": "prod"})
	return out
}

func newProfiles(t *testing.T, object *unstructured.Unstructured, o inventory.ProfileOptions) *resolver.HubResolver {
	t.Helper()
	if o.Providers == nil {
		o.Providers = []inventory.Provider{provider("preferred", "good"), provider("other", "other")}
	}
	r, err := inventory.Profiles(resolvertest.NewHub(object), o)
	require.NoError(t, err)
	return r
}

// TestProviderOfTheOperatorIsChosen: the operator's order counts, and the newer
// field of the status.
func TestProviderOfTheOperatorIsChosen(t *testing.T) {
	both := profile("accessProviders", entry("unknown", server("u")), entry("other", server("o")),
		entry("preferred", server("p")))
	require.NoError(t, unstructured.SetNestedSlice(both.Object,
		[]any{entry("preferred", server("old"))}, "status", "credentialProviders"))
	for host, object := range map[string]*unstructured.Unstructured{
		"p":   both,
		"o":   profile("accessProviders", entry("other", server("o"))),
		"old": profile("credentialProviders", entry("preferred", server("old"))),
	} {
		access, err := newProfiles(t, object, inventory.ProfileOptions{}).Resolve(t.Context(), east)
		require.NoError(t, err, host)
		config := access.Config()
		require.Equal(t, "https://"+host, config.Host)
		require.Equal(t, map[string]string{"p": "good", "o": "other", "old": "good"}[host], config.ExecProvider.Command)
		require.Equal(t, []string{"token"}, config.ExecProvider.Args)
		require.Equal(t, map[string]string{"env": "prod"}, access.Labels())
		require.False(t, access.Trusted(), "the object chooses the address")
	}
}

// TestHazardProfileChoosesWhatRuns: nothing that an object says becomes a
// command, an argument or a variable, and what a kubeconfig in a Secret may not
// use it may not use either.
func TestHazardProfileChoosesWhatRuns(t *testing.T) {
	evil := server("e")
	evil["exec"] = map[string]any{"command": resolvertest.CanaryToken}
	evil["user"] = map[string]any{"exec": map[string]any{"command": resolvertest.CanaryToken}}
	evil["extensions"] = []any{
		map[string]any{
			"name":      "clusterprofiles.multicluster.x-k8s.io/exec/additional-args",
			"extension": []any{resolvertest.CanaryToken},
		},
		map[string]any{
			"name":      "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
			"extension": map[string]any{"LD_PRELOAD": resolvertest.CanaryToken},
		},
		map[string]any{"name": "client.authentication.k8s.io/exec", "extension": map[string]any{"clusterName": "x"}},
	}
	object := profile("accessProviders", map[string]any{
		"name":       "preferred",
		"cluster":    evil,
		"execConfig": map[string]any{"command": resolvertest.CanaryToken},
	})
	access, err := newProfiles(t, object, inventory.ProfileOptions{}).Resolve(t.Context(), east)
	require.NoError(t, err)
	plugin := access.Config().ExecProvider
	require.Equal(t, "good", plugin.Command)
	require.Equal(t, []string{"token"}, plugin.Args)
	require.Len(t, plugin.Env, 1)
	require.Equal(t, "home", plugin.Env[0].Value)
	info, err := json.Marshal(plugin.Config)
	require.NoError(t, err)
	require.JSONEq(t, `{"clusterName":"x"}`, string(info), "data, which the plugin gets if it asks for it")

	for name, change := range map[string]func(map[string]any){
		"insecure-skip-tls-verify": func(c map[string]any) { c["insecure-skip-tls-verify"] = true },
		"proxy-url":                func(c map[string]any) { c["proxy-url"] = "http://p.example" },
		"server":                   func(c map[string]any) { c["server"] = "http://plain.example" },
		"certificate-authority":    func(c map[string]any) { c["certificate-authority"] = "/etc/passwd" },
	} {
		cluster := server("e")
		change(cluster)
		object := profile("accessProviders", entry("preferred", cluster))
		options := inventory.ProfileOptions{}
		options.Allow.Files, options.Allow.Exec = "/", []string{"rm"}
		_, err := newProfiles(t, object, options).Resolve(t.Context(), east)
		_, refused := errors.AsType[*resolver.RefusedError](err)
		require.True(t, refused || name == "server", "%s: %v", name, err) // which is no URL that a cluster has
		require.NotErrorIs(t, err, resolver.ErrNoAccess)
		require.ErrorContains(t, err, name)
	}
}

// TestProfileThatNamesNoUsableProviderSaysSo: a profile that is not filled in yet
// is no failure; one for others is.
func TestProfileThatNamesNoUsableProviderSaysSo(t *testing.T) {
	for want, object := range map[string]*unstructured.Unstructured{
		"cluster is not ready: status.accessProviders is empty": profile(""),
		"refused: status.accessProviders names no provider that the operator is configured for": profile(
			"accessProviders", entry("x", server("x")), "text"),
		"invalid kubeconfig: status.accessProviders has a provider without a cluster": profile(
			"accessProviders", map[string]any{"name": "other"}),
	} {
		r := newProfiles(t, object, inventory.ProfileOptions{})
		_, err := r.Resolve(t.Context(), east)
		require.EqualError(t, err, "cluster fleet/east: ClusterProfile fleet/east: "+want)
		known, err := r.Clusters(t.Context())
		require.NoError(t, err)
		require.Equal(t, []resolver.Cluster{east}, known)
	}
	broken := profile("")
	broken.Object["status"] = map[string]any{"accessProviders": "x"}
	_, err := newProfiles(t, broken, inventory.ProfileOptions{}).Resolve(t.Context(), east)
	require.ErrorContains(t, err, "status.accessProviders is no list")
}

// TestPluginOfTheOperatorRuns: a real program gets what the object says about the
// cluster, and its token is sent to the cluster.
func TestPluginOfTheOperatorRuns(t *testing.T) {
	var token string
	api := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token = r.Header.Get("Authorization")
	}))
	defer api.Close()
	script := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(script, []byte(`#!/bin/sh
name=$(echo "$KUBERNETES_EXEC_INFO" | sed 's/.*"clusterName":"\([a-z]*\)".*/\1/')
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
echo '"status":{"token":"'"$1-$REGION-$name"'"}}'
`), 0o700)) //nolint:gosec // it has to be executable
	cluster := map[string]any{
		"server": api.URL,
		"certificate-authority-data": resolvertest.Base64(pem.EncodeToMemory(&pem.Block{
			Type: "CERTIFICATE", Bytes: api.Certificate().Raw,
		})),
		"extensions": []any{map[string]any{
			"name":      "client.authentication.k8s.io/exec",
			"extension": map[string]any{"clusterName": "east"},
		}},
	}
	r := newProfiles(t, profile("accessProviders", entry("p", cluster)),
		inventory.ProfileOptions{Providers: []inventory.Provider{provider("p", script)}})
	access, err := r.Resolve(t.Context(), east)
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(access.Config())
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "Bearer token-home-east", token)
}

// TestProfilesAreFollowed: a changed endpoint, or other information for the
// plugin, is a change; a change of something else is none.
func TestProfilesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := profile("accessProviders", entry("preferred", server("one")))
		hub := resolvertest.NewHub(object)
		r, err := inventory.Profiles(hub, inventory.ProfileOptions{
			Providers: []inventory.Provider{provider("preferred", "good")},
		})
		require.NoError(t, err)
		reports := resolvertest.Notify(t, r)
		synctest.Wait()
		reports.Take()
		update := func(change func()) []resolver.Cluster {
			require.NoError(t, hub.Get(t.Context(), east, object))
			change()
			require.NoError(t, hub.Update(t.Context(), object))
			synctest.Wait()
			return reports.Take()
		}
		status := func(cluster map[string]any) func() {
			return func() {
				object.Object["status"].(map[string]any)["accessProviders"] = []any{entry("preferred", cluster)}
			}
		}
		require.Equal(t, []resolver.Cluster{east}, update(status(server("two"))))
		require.Empty(t, update(func() { object.SetAnnotations(map[string]string{"a": "b"}) }))
		informed := server("two")
		informed["extensions"] = []any{map[string]any{
			"name": "client.authentication.k8s.io/exec", "extension": map[string]any{"clusterName": "x"},
		}}
		require.Equal(t, []resolver.Cluster{east}, update(status(informed)))
		require.NoError(t, hub.Delete(t.Context(), object))
		time.Sleep(time.Minute)
		require.Equal(t, []resolver.Cluster{east}, reports.Take())
		_, err = r.Resolve(t.Context(), east)
		require.ErrorIs(t, err, resolver.ErrClusterNotFound)
	})
}

// TestSecretsOfAConsumer: only those of this consumer, and only with a profile.
func TestSecretsOfAConsumer(t *testing.T) {
	secret := func(consumer, of string) map[string]string {
		return map[string]string{"x-k8s.io/cluster-inventory-consumer": consumer, "x-k8s.io/cluster-profile": of}
	}
	hub := resolvertest.NewHub(profile(""),
		resolvertest.Secret("fleet", "any", secret("me", "east"), resolvertest.TokenData("Config", "mine")),
		resolvertest.Secret("fleet", "b", secret("another", "east"), resolvertest.TokenData("Config", "theirs")),
		resolvertest.Secret("fleet", "c", secret("me", "west"), resolvertest.TokenData("Config", "orphan")))
	r, err := inventory.Secrets(hub, inventory.SecretOptions{Consumer: "me"})
	require.NoError(t, err)
	access, err := r.Resolve(t.Context(), east)
	require.NoError(t, err)
	require.Equal(t, "mine", access.Config().BearerToken)
	require.Equal(t, "prod", access.Labels()["env"])
	_, err = r.Resolve(t.Context(), resolvertest.In("fleet", "west"))
	require.ErrorIs(t, err, resolver.ErrNoAccess, "its profile does not exist")

	_, err = inventory.Secrets(hub, inventory.SecretOptions{})
	require.Error(t, err)
	_, err = inventory.Secrets(hub, inventory.SecretOptions{Consumer: "no label!"})
	require.Error(t, err)
}

const providers = `{"providers": [{
	"name": "google",
	"profileSourcedCLIArgsPolicy": "Ignore",
	"execConfig": {
		"apiVersion": "client.authentication.k8s.io/v1",
		"command": "gke-gcloud-auth-plugin",
		"env": [{"name": "HOME", "value": "/tmp"}],
		"provideClusterInfo": true
	}
}]}`

func TestProvidersAreReadStrictly(t *testing.T) {
	got, err := inventory.ParseProviders([]byte(providers))
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "google", got[0].Name)
	require.Equal(t, "gke-gcloud-auth-plugin", got[0].Exec.Command)
	require.True(t, got[0].Exec.ProvideClusterInfo)

	for text, want := range map[string]string{
		``:                   "cannot be read",
		`{}`:                 "no provider is configured",
		`{"providers":[]}{}`: "followed by something else",
		`{"providers":[{"name":"a","execconfigs":{}}]}`:                        "unknown field",
		`{"providers":[{"execConfig":{"command":"c","apiVersion":"v"}}]}`:      "providers[0].name is empty",
		`{"providers":[{"name":"a","execConfig":{"apiVersion":"v"}}]}`:         "providers[0].execConfig.command",
		`{"providers":[{"name":"a","execConfig":{"command":"c"}}]}`:            "providers[0].execConfig.apiVersion",
		`{"providers":[{"name":"a","profileSourcedEnvVarsPolicy":"Replace"}]}`: "profileSourcedEnvVarsPolicy",
		`{"providers":[{"name":"a","profileSourcedCLIArgsPolicy":"Append"}]}`:  "profileSourcedCLIArgsPolicy",
		`{"providers":[{"name":"a","execConfig":{"command":"c","apiVersion":"v"}},` +
			`{"name":"a","execConfig":{"command":"c","apiVersion":"v"}}]}`: "providers[1].name is that of another",
	} {
		_, err := inventory.ParseProviders([]byte(text))
		require.ErrorContains(t, err, want, text)
		_, err = inventory.Profiles(resolvertest.NewHub(), inventory.ProfileOptions{})
		require.ErrorIs(t, err, inventory.ErrNoProviders)
	}
}

// FuzzProviders: whatever is accepted has all that is needed to run it.
func FuzzProviders(f *testing.F) {
	f.Add([]byte(providers))
	f.Add([]byte(`{"providers":[{"name":"a"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := inventory.ParseProviders(data)
		if err != nil {
			return
		}
		require.NotEmpty(t, got)
		for _, p := range got {
			require.NotEmpty(t, p.Name)
			require.NotEmpty(t, p.Exec.Command)
			require.NotEmpty(t, p.Exec.APIVersion)
		}
	})
}
