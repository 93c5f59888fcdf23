// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// requireOnlyAllowed fails if a configuration contains anything that is not on
// the strict list.
func requireOnlyAllowed(t testing.TB, config *rest.Config) {
	t.Helper()
	proxy, err := config.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "c.example"}})
	require.NoError(t, err)
	require.Nil(t, proxy)
	require.Equal(t, []string{"h2", "http/1.1"}, config.NextProtos)
	endpoint, err := url.Parse(config.Host)
	require.NoError(t, err)
	require.Equal(t, "https", endpoint.Scheme)
	require.Nil(t, endpoint.User)
	require.Empty(t, endpoint.RawQuery+endpoint.Fragment+endpoint.RawPath+endpoint.Opaque)
	if addr, err := netip.ParseAddr(endpoint.Hostname()); err == nil {
		require.False(t, addr.Unmap().IsLinkLocalUnicast())
		require.False(t, addr.Unmap().IsUnspecified())
	}
	for _, c := range config.BearerToken {
		require.True(t, c > ' ' && c < 0x7f)
	}
	rest := *config
	rest.Host, rest.BearerToken, rest.DisableCompression, rest.Proxy = "", "", false, nil
	tls := rest.TLSClientConfig
	rest.ServerName, rest.CAData, rest.CertData, rest.KeyData, rest.NextProtos = "", nil, nil, nil, nil
	require.True(t, reflect.ValueOf(rest).IsZero(), "something else got in: %#v", rest)
	require.Equal(t, len(tls.CertData) > 0, len(tls.KeyData) > 0)
}

// requireQuiet fails if an error repeats any words of the input.
func requireQuiet(t testing.TB, err error) {
	t.Helper()
	invalid, isInvalid := errors.AsType[*resolver.KubeconfigError](err)
	refused, isRefused := errors.AsType[*resolver.RefusedError](err)
	require.True(t, isInvalid || isRefused || errors.Is(err, resolver.ErrKeyMissing), "%v", err)
	text := fmt.Sprintf("%v %+v %#v", err, invalid, refused)
	require.NotContains(t, text, "canary")
	resolvertest.RequireNoCanary(t, text)
}

func FuzzKubeconfig(f *testing.F) {
	paths, err := filepath.Glob("testdata/hostile/*.yaml")
	require.NoError(f, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data)
	}
	who := resolvertest.Identities()[0]
	f.Add(resolvertest.TokenConfig(resolvertest.CanaryToken))
	f.Add(resolvertest.Kubeconfig("server: 'https://c.example:6443/k8s/c-1/', tls-server-name: "+
		"n, disable-compression: true, certificate-authority-data: "+
		resolvertest.Base64(who.Cert), "client-certificate-data: "+resolvertest.Base64(who.Cert)+", client-key-data: "+
		resolvertest.Base64(who.Key)))
	f.Fuzz(func(t *testing.T, data []byte) {
		access, err := resolver.Kubeconfig(data, resolver.KubeconfigOptions{MaxBytes: 64 << 10})
		if err != nil {
			require.True(t, access.IsZero())
			requireQuiet(t, err)
			return
		}
		config := access.Config()
		requireOnlyAllowed(t, config)
		require.False(t, access.Trusted())
		_, err = rest.TransportFor(config)
		require.NoError(t, err, "what is accepted can be used")
		if len(config.BearerToken) > 7 {
			require.NotContains(t, fmt.Sprintf("%v %+v %#v", access, access, access), config.BearerToken)
		}
		again, err := resolver.Kubeconfig(data, resolver.KubeconfigOptions{})
		require.NoError(t, err)
		require.Equal(t, access.Revision(), again.Revision())
	})
}

func FuzzArgoCD(f *testing.F) {
	f.Add("https://c.example", `{"bearerToken":"`+resolvertest.CanaryToken+`","tlsClientConfig":{"insecure":false}}`)
	f.Add("https://kubernetes.default.svc", `{}`)
	f.Add("https://c.example", `{"execProviderConfig":{"command":"sh"},"awsAuthConfig":{"clusterName":"x"}}`)
	f.Add("https://169.254.169.254", `{"username":"u","password":"`+resolvertest.CanaryPassword+`"}`)
	f.Fuzz(func(t *testing.T, server, config string) {
		hub := fake.NewClientBuilder().WithObjects(resolvertest.ArgoSecret("a",
			map[string]string{"server": server, "config": config})).Build()
		r, err := resolver.ArgoCD(hub, resolver.ArgoCDOptions{})
		require.NoError(t, err)
		access, err := r.Resolve(context.Background(), resolver.Cluster{Name: "a"})
		if err != nil {
			requireQuiet(t, err)
			return
		}
		requireOnlyAllowed(t, access.Config())
	})
}

// Whatever its spelling, an endpoint is either refused or dialed exactly as
// written.
func FuzzServer(f *testing.F) {
	for _, server := range []string{"https://c.example", "https://[::1]:6443/a/b", "https://10.0.0.1",
		"https://0x7f.1", "http://a@b"} {
		f.Add(server)
	}
	f.Fuzz(func(t *testing.T, server string) {
		access, err := resolver.FromToken(resolver.Endpoint{Server: server}, resolvertest.CanaryToken, resolver.Allow{})
		if err != nil {
			requireQuiet(t, err)
			return
		}
		config := access.Config()
		requireOnlyAllowed(t, config)
		require.True(t, strings.HasPrefix(strings.ToLower(strings.TrimRight(server, "/")),
			strings.ToLower(config.Host)) ||
			strings.HasPrefix(strings.ToLower(config.Host), strings.ToLower(strings.TrimRight(server, "/"))),
			"%q became %q", server, config.Host)
	})
}

// Whatever an object contains, it makes the resolver read a Secret of its own
// namespace, or none, and its content is not in an error.
func FuzzReferenced(f *testing.F) {
	f.Add("s", "", "k")
	f.Add("../other/secrets/s", "other", resolvertest.CanaryToken)
	f.Add("s,metadata.namespace=other", "Own", "a\nb")
	f.Fuzz(func(t *testing.T, name, namespace, key string) {
		object := resolvertest.UnstructuredObject("fleet.test/v1", "Member", "own", "a", map[string]any{
			"spec": map[string]any{"name": name, "namespace": namespace, "key": key},
		})
		var read []client.ObjectKey
		hub := interceptor.NewClient(fake.NewClientBuilder().WithObjects(object).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, of client.ObjectKey, into client.Object,
				opts ...client.GetOption) error {
				if secret, ok := into.(*corev1.Secret); ok {
					read = append(read, of)
					secret.Namespace, secret.Name = of.Namespace, of.Name
					secret.Data = map[string][]byte{"value": []byte(resolvertest.CanaryToken)}
					return nil
				}
				return c.Get(ctx, of, into, opts...)
			},
		})
		r, err := resolver.Referenced(hub, resolver.ReferenceOptions{
			Kind:            schema.GroupVersionKind{Group: "fleet.test", Version: "v1", Kind: "Member"},
			SecretName:      "spec.name",
			SecretNamespace: "spec.namespace",
			SecretKey:       "spec.key",
		})
		require.NoError(t, err)
		_, err = r.Resolve(context.Background(), resolver.Cluster{Namespace: "own", Name: "a"})
		require.Error(t, err)
		resolvertest.RequireNoCanary(t, strings.ReplaceAll(err.Error(), "key is missing: "+key, ""))
		require.LessOrEqual(t, len(read), 1)
		for _, secret := range read {
			require.Equal(t, client.ObjectKey{Namespace: "own", Name: name}, secret)
			require.Empty(t, validation.IsDNS1123Subdomain(name))
		}
	})
}
