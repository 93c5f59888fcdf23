// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

var kustomization = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}

func fluxObject(name string, kubeConfig map[string]any) client.Object {
	spec := map[string]any{"serviceAccountName": "deployer"}
	if kubeConfig != nil {
		spec["kubeConfig"] = kubeConfig
	}
	return unstructuredObject("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team", name, map[string]any{"spec": spec})
}

func secretRef(name, key string) map[string]any {
	ref := map[string]any{"name": name}
	if key != "" {
		ref["key"] = key
	}
	return map[string]any{"secretRef": ref}
}

func configMap(name string, data map[string]string) client.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Data: data}
}

func configMapRef(name string) map[string]any {
	return map[string]any{"configMapRef": map[string]any{"name": name}}
}

func fluxCase() conventionCase {
	config := func(text string) string { return string(tokenConfig(text)) }
	return conventionCase{
		objects: []client.Object{
			secret("team", "both", nil, map[string]string{"value": config("value"), "value.yaml": config("yaml"), "k": config("k")}),
			secret("team", "yaml", nil, map[string]string{"value.yaml": config("yaml")}),
			secret("other", "foreign", nil, map[string]string{"value": config("x")}),
			fluxObject("default", secretRef("both", "")),
			fluxObject("fallback", secretRef("yaml", "")),
			fluxObject("explicit", secretRef("both", "k")),
			fluxObject("nofallback", secretRef("both", "missing")),
			fluxObject("nosecret", secretRef("missing", "")),
			fluxObject("foreign", secretRef("foreign", "")),
			fluxObject("hub", nil),
			fluxObject("neither", map[string]any{}),
			fluxObject("both", map[string]any{"secretRef": map[string]any{"name": "both"}, "configMapRef": map[string]any{"name": "cm"}}),
			fluxObject("provider", configMapRef("cm")),
			fluxObject("noconfigmap", configMapRef("missing")),
			configMap("cm", map[string]string{"provider": "generic", "address": "https://c.example"}),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.Flux(hub, resolver.FluxOptions{Kind: kustomization})
		},
		clusters: map[resolver.Cluster]string{
			in("team", "default"):     "https://c.example value",
			in("team", "fallback"):    "https://c.example yaml",
			in("team", "explicit"):    "https://c.example k",
			in("team", "nofallback"):  "cluster team/nofallback: Secret team/both: key is missing: missing",
			in("team", "nosecret"):    "cluster team/nosecret: Secret team/missing: secret not found",
			in("team", "foreign"):     "cluster team/foreign: Secret team/foreign: secret not found",
			in("team", "neither"):     "cluster team/neither: Kustomization team/neither: invalid kubeconfig: spec.kubeConfig needs exactly one of secretRef and configMapRef",
			in("team", "both"):        "cluster team/both: Kustomization team/both: invalid kubeconfig: spec.kubeConfig needs exactly one of secretRef and configMapRef",
			in("team", "provider"):    "cluster team/provider: ConfigMap team/cm: refused: provider needs credentials that nothing here provides",
			in("team", "noconfigmap"): "cluster team/noconfigmap: ConfigMap team/missing: secret not found",
		},
		absent:     []resolver.Cluster{{}, in("team", "hub"), in("team", "nosecret"), in("team", "foreign"), in("team", "noconfigmap")},
		selections: []string{"ns=team labels= fields=metadata.name=both"},
	}
}

func TestFluxProviderAddsCredentialsByRequestAndImpersonates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub(
			configMap("cm", map[string]string{"provider": "generic", "address": "C.example", "audiences": "a\nb", "ca.crt": string(identities()[0].cert)}),
			configMap("noaddress", map[string]string{"provider": "aws", "cluster": "arn:x"}),
			configMap("http", map[string]string{"provider": "generic", "address": "http://c.example"}),
			configMap("noprovider", map[string]string{"address": "c.example"}),
			fluxObject("a", configMapRef("cm")), fluxObject("noaddress", configMapRef("noaddress")),
			fluxObject("http", configMapRef("http")), fluxObject("noprovider", configMapRef("noprovider")),
		)
		var asked resolver.FluxProvider
		r, err := resolver.Flux(hub, resolver.FluxOptions{
			Kind:        kustomization,
			Impersonate: true,
			Authenticate: func(_ resolver.Cluster, provider resolver.FluxProvider) (transport.WrapperFunc, error) {
				asked = provider
				return func(next http.RoundTripper) http.RoundTripper { return next }, nil
			},
		})
		require.NoError(t, err)
		access, err := r.Resolve(t.Context(), in("team", "a"))
		require.NoError(t, err)
		require.Equal(t, resolver.FluxProvider{Name: "generic", Address: "https://C.example", Audiences: []string{"a", "b"}}, asked)
		config := access.Config()
		require.NotNil(t, config.WrapTransport)
		require.Equal(t, "system:serviceaccount:team:deployer", config.Impersonate.UserName)
		require.Equal(t, identities()[0].cert, config.CAData)
		for name, want := range map[string]string{
			"noaddress":  "cluster team/noaddress: ConfigMap team/noaddress: invalid kubeconfig: address is not set, and only the provider itself knows it",
			"http":       "cluster team/http: ConfigMap team/http: refused: address uses http",
			"noprovider": "cluster team/noprovider: ConfigMap team/noprovider: key is missing: provider",
		} {
			_, err := r.Resolve(t.Context(), in("team", name))
			require.EqualError(t, err, want)
		}

		news := notify(t, r)
		news.take()
		require.NoError(t, hub.Update(t.Context(), configMap("cm", map[string]string{
			"provider": "generic", "address": "c.example", "audiences": "other", "ca.crt": string(identities()[0].cert)})))
		require.Equal(t, []resolver.Cluster{in("team", "a")}, news.take(), "what makes the credentials is part of the revision")
		after, err := r.Resolve(t.Context(), in("team", "a"))
		require.NoError(t, err)
		require.Equal(t, resolver.ChangedOther, resolver.Diff(access, after))
	})
}
