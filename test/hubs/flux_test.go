// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

func configMap(name string, data map[string]string) client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Data: data}
}

func configMapRef(name string) map[string]any {
	return map[string]any{"configMapRef": map[string]any{"name": name}}
}

func fluxCase() conventionCase {
	config := func(text string) string { return string(resolvertest.TokenConfig(text)) }
	return conventionCase{
		objects: []client.Object{
			resolvertest.Secret("team", "both", nil,
				map[string]string{"value": config("value"), "value.yaml": config("yaml"), "k": config("k")}),
			resolvertest.Secret("team", "yaml", nil, map[string]string{"value.yaml": config("yaml")}),
			resolvertest.Secret("other", "foreign", nil, map[string]string{"value": config("x")}),
			resolvertest.FluxObject("default", resolvertest.SecretRef("both", "")),
			resolvertest.FluxObject("fallback", resolvertest.SecretRef("yaml", "")),
			resolvertest.FluxObject("explicit", resolvertest.SecretRef("both", "k")),
			resolvertest.FluxObject("nofallback", resolvertest.SecretRef("both", "missing")),
			resolvertest.FluxObject("nosecret", resolvertest.SecretRef("missing", "")),
			resolvertest.FluxObject("foreign", resolvertest.SecretRef("foreign", "")),
			resolvertest.FluxObject("hub", nil),
			resolvertest.FluxObject("neither", map[string]any{}),
			resolvertest.FluxObject("both", map[string]any{"secretRef": map[string]any{"name": "both"},
				"configMapRef": map[string]any{"name": "cm"}}),
			resolvertest.FluxObject("provider", configMapRef("cm")),
			resolvertest.FluxObject("noconfigmap", configMapRef("missing")),
			configMap("cm", map[string]string{"provider": "generic", "address": "https://c.example"}),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.Flux(hub, resolver.FluxOptions{Kind: resolvertest.Kustomization})
		},
		clusters: map[resolver.Cluster]string{
			resolvertest.In("team", "default"):    "https://c.example value",
			resolvertest.In("team", "fallback"):   "https://c.example yaml",
			resolvertest.In("team", "explicit"):   "https://c.example k",
			resolvertest.In("team", "nofallback"): "Secret team/both: key is missing: missing",
			resolvertest.In("team", "nosecret"):   "Secret team/missing: secret not found",
			resolvertest.In("team", "foreign"):    "Secret team/foreign: secret not found",
			resolvertest.In("team", "neither"): "Kustomization team/neither: invalid kubeconfig: " +
				"spec.kubeConfig needs exactly one of secretRef and configMapRef",
			resolvertest.In("team", "both"): "Kustomization team/both: invalid kubeconfig: " +
				"spec.kubeConfig needs exactly one of secretRef and configMapRef",
			resolvertest.In("team", "provider"): "ConfigMap team/cm: refused: provider needs credentials that " +
				"nothing here provides",
			resolvertest.In("team", "noconfigmap"): "ConfigMap team/missing: secret not found",
		},
		absent: []resolver.Cluster{{}, resolvertest.In("team", "hub"), resolvertest.In("team", "nosecret"),
			resolvertest.In("team", "foreign"), resolvertest.In("team", "noconfigmap")},
		selections: []string{"ns=team labels= fields=metadata.name=both"},
	}
}

func TestFluxProviderAddsCredentialsByRequestAndImpersonates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(
			configMap("cm", map[string]string{
				"provider":  "generic",
				"address":   "C.example",
				"audiences": "a\nb",
				"ca.crt":    string(resolvertest.Identities()[0].Cert),
			}),
			configMap("noaddress", map[string]string{"provider": "aws", "cluster": "arn:x"}),
			configMap("http", map[string]string{"provider": "generic", "address": "http://c.example"}),
			configMap("noprovider", map[string]string{"address": "c.example"}),
			resolvertest.FluxObject("a", configMapRef("cm")),
			resolvertest.FluxObject("noaddress", configMapRef("noaddress")),
			resolvertest.FluxObject("http", configMapRef("http")),
			resolvertest.FluxObject("noprovider", configMapRef("noprovider")),
		)
		var asked resolver.FluxProvider
		r, err := resolver.Flux(hub, resolver.FluxOptions{
			Kind:        resolvertest.Kustomization,
			Impersonate: true,
			Authenticate: func(_ resolver.Cluster, provider resolver.FluxProvider) (transport.WrapperFunc, error) {
				asked = provider
				return func(next http.RoundTripper) http.RoundTripper { return next }, nil
			},
		})
		require.NoError(t, err)
		access, err := r.Resolve(t.Context(), resolvertest.In("team", "a"))
		require.NoError(t, err)
		require.Equal(t, resolver.FluxProvider{Name: "generic", Address: "https://C.example",
			Audiences: []string{"a", "b"}}, asked)
		config := access.Config()
		require.NotNil(t, config.WrapTransport)
		require.Equal(t, "system:serviceaccount:team:deployer", config.Impersonate.UserName)
		require.Equal(t, resolvertest.Identities()[0].Cert, config.CAData)
		for name, want := range map[string]string{
			"noaddress": "ConfigMap team/noaddress: invalid kubeconfig: address is not set, " +
				"and only the provider itself knows it",
			"http":       "ConfigMap team/http: refused: address uses http; Allow.HTTP would permit it",
			"noprovider": "ConfigMap team/noprovider: key is missing: provider",
		} {
			_, err := r.Resolve(t.Context(), resolvertest.In("team", name))
			require.EqualError(t, err, "cluster team/"+name+": "+want)
		}

		news := resolvertest.Notify(t, r)
		news.Take()
		require.NoError(t, hub.Update(t.Context(), configMap("cm", map[string]string{
			"provider":  "generic",
			"address":   "c.example",
			"audiences": "other",
			"ca.crt":    string(resolvertest.Identities()[0].Cert),
		})))
		require.Equal(t, []resolver.Cluster{resolvertest.In("team", "a")}, news.Take(),
			"what makes the credentials is part of the revision")
		after, err := r.Resolve(t.Context(), resolvertest.In("team", "a"))
		require.NoError(t, err)
		require.Equal(t, resolver.ChangedOther, resolver.Diff(access, after))
	})
}
