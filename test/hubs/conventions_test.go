// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package hubs_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/clustername"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// conventionCase holds the objects of a hub, and the expected results of a
// resolver.
type conventionCase struct {
	objects []client.Object
	make    func(client.WithWatch) (*resolver.HubResolver, error)
	// clusters maps all known clusters to their host and token, or to an
	// error's text after the name of the cluster.
	clusters map[resolver.Cluster]string
	// absent are clusters that must be an ErrNoAccess.
	absent []resolver.Cluster
	// selections are the server-side selections of watches.
	selections []string
}

// run checks the case with single reads, and again with a watch.
func (c conventionCase) run(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := resolvertest.NewHub(c.objects...)
		r, err := c.make(hub)
		require.NoError(t, err)
		c.check(t, r)
		hub.Selections()
		news := resolvertest.Notify(t, r)
		reported := news.Take()
		for cluster := range c.clusters {
			require.Contains(t, reported, cluster)
		}
		for _, want := range c.selections {
			require.Contains(t, hub.Selections(), "watch "+want)
		}
		before := hub.Requests.Load()
		c.check(t, r)
		require.Equal(t, before, hub.Requests.Load(), "answers come from the watch")
	})
}

func (c conventionCase) check(t *testing.T, r *resolver.HubResolver) {
	listed, err := r.Clusters(t.Context())
	require.NoError(t, err)
	var want []resolver.Cluster
	for cluster, text := range c.clusters {
		want = append(want, cluster)
		access, err := r.Resolve(t.Context(), cluster)
		if err != nil {
			require.Equal(t, "cluster "+clustername.Of(cluster)+": "+text, err.Error())
			described, ok := errors.AsType[*resolver.AccessError](err)
			require.True(t, ok)
			require.Equal(t, cluster, described.Cluster)
			resolvertest.RequireNoCanary(t, err.Error())
			continue
		}
		require.Equal(t, text, access.Config().Host+" "+access.Config().BearerToken, "%v", cluster)
		require.NotEmpty(t, access.Refs())
	}
	require.ElementsMatch(t, want, listed)
	for _, cluster := range c.absent {
		_, err := r.Resolve(t.Context(), cluster)
		require.ErrorIs(t, err, resolver.ErrNoAccess, "%v", cluster)
	}
}

func TestConventions(t *testing.T) {
	for name, test := range conventionCases() {
		t.Run(name, test.run)
	}
}

func conventionCases() map[string]conventionCase {
	out := map[string]conventionCase{
		"Cluster API":          clusterAPICase(),
		"multicluster-runtime": multiclusterRuntimeCase(),
		"Istio":                istioCase(),
		"Argo CD":              argoCDCase(),
		"OCM":                  ocmCase(),
		"Karmada":              karmadaCase(),
		"Flux":                 fluxCase(),
		"Referenced":           referencedCase(),
	}
	maps.Copy(out, genericCases())
	return out
}

func clusterAPICase() conventionCase {
	label := func(cluster string) map[string]string {
		return map[string]string{"cluster.x-k8s.io/cluster-name": cluster}
	}
	value := resolvertest.TokenData("value", "t")
	objects := []client.Object{
		resolvertest.ClusterAPISecret("fleet", "a", "a"),
		resolvertest.ClusterAPISecret("fleet", "a-kubeconfig", "b"), // a name that has the suffix of the Secret
		resolvertest.ClusterAPISecret("other", "a", "c"),
		resolvertest.Secret("fleet", "a-user-kubeconfig", label("a"), value), // for users of a managed provider
		resolvertest.Secret("fleet", "unlabelled-kubeconfig", nil, value),
		resolvertest.Secret("fleet", "-kubeconfig", label(""), value),
		resolvertest.Secret("fleet", "nokey-kubeconfig", label("nokey"),
			map[string]string{"kubeconfig": resolvertest.CanaryToken}),
		resolvertest.Secret("fleet", "bad-kubeconfig", label("bad"),
			map[string]string{"value": resolvertest.CanaryToken}),
		resolvertest.Secret("fleet", "rancher-kubeconfig", label("rancher"), map[string]string{
			"token": resolvertest.CanaryToken,
			"value": string(resolvertest.Kubeconfig("server: 'https://rancher.example/k8s/clusters/c-m-1'",
				"token: r")),
		}),
	}
	for _, suffix := range []string{"ca", "etcd", "sa", "proxy", "apiserver-etcd-client"} {
		objects = append(objects, resolvertest.WithType(resolvertest.Secret("fleet", "a-"+suffix, label("a"), value),
			"cluster.x-k8s.io/secret"))
	}
	return conventionCase{
		objects: objects,
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.ClusterAPI(hub, resolver.HubOptions{})
		},
		clusters: map[resolver.Cluster]string{
			resolvertest.In("fleet", "a"):            "https://c.example a",
			resolvertest.In("fleet", "a-kubeconfig"): "https://c.example b",
			resolvertest.In("other", "a"):            "https://c.example c",
			resolvertest.In("fleet", "rancher"):      "https://rancher.example/k8s/clusters/c-m-1 r",
			resolvertest.In("fleet", "nokey"):        "Secret fleet/nokey-kubeconfig: key is missing: value",
			resolvertest.In("fleet", "bad"): "Secret fleet/bad-kubeconfig: invalid kubeconfig: " +
				"is not a kubeconfig",
		},
		absent: []resolver.Cluster{{}, resolvertest.In("fleet", "a-user"), resolvertest.In("fleet", "unlabelled"),
			resolvertest.In("fleet", ""), resolvertest.Named("a")},
		selections: []string{"ns= labels=cluster.x-k8s.io/cluster-name fields="},
	}
}

func multiclusterRuntimeCase() conventionCase {
	label := func(value string) map[string]string {
		return map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": value}
	}
	return conventionCase{
		objects: []client.Object{
			resolvertest.Secret("mcr", "a", label("true"),
				map[string]string{"kubeconfig": string(resolvertest.TokenConfig("a")), "value": "x"}),
			resolvertest.Secret("mcr", "b", label("false"), resolvertest.TokenData("kubeconfig", "b")),
			resolvertest.Secret("mcr", "nokey", label("true"), nil),
			resolvertest.Secret("other", "c", label("true"), resolvertest.TokenData("kubeconfig", "c")),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.MulticlusterRuntime(hub, resolver.HubOptions{Namespace: "mcr"})
		},
		clusters: map[resolver.Cluster]string{
			resolvertest.Named("a"):     "https://c.example a",
			resolvertest.Named("nokey"): "Secret mcr/nokey: key is missing: kubeconfig",
		},
		absent: []resolver.Cluster{{}, resolvertest.Named("b"), resolvertest.Named("c"),
			resolvertest.In("mcr", "a")},
		selections: []string{"ns=mcr labels=sigs.k8s.io/multicluster-runtime-kubeconfig=true fields="},
	}
}

func istioCase() conventionCase {
	label := map[string]string{"istio/multiCluster": "true"}
	return conventionCase{
		objects: []client.Object{
			resolvertest.CreatedAt(resolvertest.Secret("istio-system", "z", label,
				map[string]string{"a": string(resolvertest.TokenConfig("first")),
					"b": string(resolvertest.TokenConfig("b"))}), 1),
			resolvertest.CreatedAt(resolvertest.Secret("istio-system", "a", label,
				map[string]string{"a": string(resolvertest.TokenConfig("takeover")),
					"bad": resolvertest.CanaryToken}), 2),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.Istio(hub, resolver.HubOptions{})
		},
		clusters: map[resolver.Cluster]string{
			resolvertest.Named("a"):   "https://c.example first",
			resolvertest.Named("b"):   "https://c.example b",
			resolvertest.Named("bad"): "Secret istio-system/a: invalid kubeconfig: is not a kubeconfig",
		},
		absent:     []resolver.Cluster{{}, resolvertest.Named("z"), resolvertest.In("istio-system", "a")},
		selections: []string{"ns=istio-system labels=istio/multiCluster=true fields="},
	}
}

func argoCDCase() conventionCase {
	argo := func(name, server, config string) client.Object {
		return resolvertest.ArgoSecret(name, map[string]string{"name": "shown", "server": server, "config": config})
	}
	who := resolvertest.Identities()[0]
	const server = "https://c.example/"
	return conventionCase{
		objects: []client.Object{
			argo("a", server, `{"bearerToken":"a","tlsClientConfig":{"insecure":false,"caData":"`+
				resolvertest.Base64(who.Cert)+`"}}`),
			argo("cert", server, `{"tlsClientConfig":{"certData":"`+resolvertest.Base64(who.Cert)+`","keyData":"`+
				resolvertest.Base64(who.Key)+`"}}`),
			argo("anonymous", server, ""),
			argo("hub", "https://kubernetes.default.svc", `{"tlsClientConfig":{"insecure":false}}`),
			argo("exec", server, `{"execProviderConfig":{"command":"sh","args":["-c","x"],"env":{"A":"B"}}}`),
			argo("aws", server, `{"bearerToken":"x","awsAuthConfig":{"clusterName":"x"}}`),
			argo("basic", server, `{"username":"u","password":"`+resolvertest.CanaryPassword+`"}`),
			argo("insecure", server, `{"bearerToken":"`+resolvertest.CanaryToken+
				`","tlsClientConfig":{"insecure":true}}`),
			argo("proxy", server, `{"proxyUrl":"http://u:`+resolvertest.CanaryPassword+`@p.example"}`),
			argo("junk", server, `{"bearerToken":"`+resolvertest.CanaryToken+`"`),
			argo("two", server, `{} {"bearerToken":"`+resolvertest.CanaryToken+`"}`),
			argo("type", server, `{"bearerToken":{"`+resolvertest.CanaryToken+`":1}}`),
			argo("noserver", "", `{}`),
			resolvertest.Secret("argocd", "repository",
				map[string]string{"argocd.argoproj.io/secret-type": "repository"}, nil),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.ArgoCD(hub, resolver.ArgoCDOptions{})
		},
		clusters: map[resolver.Cluster]string{
			resolvertest.Named("a"):    "https://c.example a",
			resolvertest.Named("cert"): "https://c.example ",
			resolvertest.Named("anonymous"): "Secret argocd/anonymous: refused: config has no credentials, and " +
				"anonymous access is not allowed; Allow.Anonymous would permit it",
			resolvertest.Named("hub"): "Secret argocd/hub: refused: server is Argo CD's own cluster, which is " +
				"not allowed; Allow.InCluster would permit it",
			resolvertest.Named("exec"): "Secret argocd/exec: refused: config.execProviderConfig is not allowed; " +
				"Allow.Exec would permit it",
			resolvertest.Named("aws"): "Secret argocd/aws: refused: config.execProviderConfig is not allowed; " +
				"Allow.Exec would permit it",
			resolvertest.Named("basic"): "Secret argocd/basic: refused: config.username and password are not allowed",
			resolvertest.Named("insecure"): "Secret argocd/insecure: refused: " +
				"config.tlsClientConfig.insecure is not allowed; Allow.InsecureTLS would permit it",
			resolvertest.Named("proxy"): "Secret argocd/proxy: refused: config.proxyUrl is not allowed; " +
				"Allow.Proxy would permit it",
			resolvertest.Named("junk"): "Secret argocd/junk: invalid kubeconfig: " +
				"config is not the JSON of an Argo CD cluster",
			resolvertest.Named("two"): "Secret argocd/two: invalid kubeconfig: config is not the JSON of an " +
				"Argo CD cluster",
			resolvertest.Named("type"): "Secret argocd/type: invalid kubeconfig: " +
				"config is not the JSON of an Argo CD cluster",
			resolvertest.Named("noserver"): "Secret argocd/noserver: key is missing: server",
		},
		absent:     []resolver.Cluster{{}, resolvertest.Named("repository"), resolvertest.Named("shown")},
		selections: []string{"ns=argocd labels=argocd.argoproj.io/secret-type=cluster fields="},
	}
}

func ocmCase() conventionCase {
	label := map[string]string{"authentication.open-cluster-management.io/is-managed-serviceaccount": "true"}
	managed := func(name string, configs ...any) client.Object {
		return resolvertest.UnstructuredObject("cluster.open-cluster-management.io/v1", "ManagedCluster", "",
			name, map[string]any{
				"spec": map[string]any{"managedClusterClientConfigs": configs}})
	}
	data := map[string]string{"token": "t\n", "ca.crt": string(resolvertest.Identities()[0].Cert)}
	return conventionCase{
		objects: []client.Object{
			resolvertest.Secret("a", "reader", label, data),
			resolvertest.Secret("a", "admin", label, data),
			managed("a", map[string]any{"url": "https://a.example:6443",
				"caBundle": resolvertest.Base64(resolvertest.Identities()[1].Cert)}),
			resolvertest.Secret("nourl", "reader", label, data),
			managed("nourl"),
			resolvertest.Secret("unmanaged", "reader", label, data),
			resolvertest.Secret("notoken", "reader", label, nil),
			managed("notoken", map[string]any{"url": "https://b.example"}),
			resolvertest.Secret("badca", "reader", label, data),
			managed("badca", map[string]any{"url": "https://b.example", "caBundle": "!"}),
			managed("nosecret", map[string]any{"url": "https://b.example"}),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.OCM(hub, resolver.OCMOptions{ServiceAccount: "reader"})
		},
		clusters: map[resolver.Cluster]string{
			resolvertest.Named("a"):         "https://a.example:6443 t",
			resolvertest.Named("nourl"):     "ManagedCluster nourl: cluster is not ready",
			resolvertest.Named("unmanaged"): "ManagedCluster unmanaged: cluster not found",
			resolvertest.Named("notoken"):   "Secret notoken/reader: key is missing: token",
			resolvertest.Named("badca"): "ManagedCluster badca: invalid kubeconfig: " +
				"spec.managedClusterClientConfigs.caBundle is not base64",
		},
		absent: []resolver.Cluster{{}, resolvertest.Named("nosecret"), resolvertest.In("a", "reader"),
			resolvertest.Named("nourl"), resolvertest.Named("unmanaged")},
		selections: []string{
			"ns= labels=authentication.open-cluster-management.io/is-managed-serviceaccount=true " +
				"fields=metadata.name=reader",
		},
	}
}

func karmadaCase() conventionCase {
	member := func(name string, spec map[string]any) client.Object {
		return resolvertest.UnstructuredObject("cluster.karmada.io/v1alpha1", "Cluster", "", name,
			map[string]any{"spec": spec})
	}
	ref := func(name string) map[string]any {
		return map[string]any{"namespace": "karmada-cluster", "name": name}
	}
	data := map[string]string{"token": "t", "caBundle": string(resolvertest.Identities()[0].Cert)}
	const server = "https://m.example"
	return conventionCase{
		objects: []client.Object{
			resolvertest.Secret("karmada-cluster", "a", nil, data),
			resolvertest.Secret("karmada-cluster", "never-read", nil, data),
			member("a", map[string]any{"syncMode": "Push", "apiEndpoint": server, "secretRef": ref("a")}),
			member("pull", map[string]any{"syncMode": "Pull", "apiEndpoint": server, "secretRef": ref("a")}),
			member("nosecret", map[string]any{"apiEndpoint": server, "secretRef": ref("missing")}),
			member("noref", map[string]any{"apiEndpoint": server}),
			member("foreign", map[string]any{"apiEndpoint": server,
				"secretRef": map[string]any{"namespace": "kube-system", "name": "x"}}),
			member("insecure", map[string]any{"apiEndpoint": server, "secretRef": ref("a"),
				"insecureSkipTLSVerification": true}),
			member("proxy", map[string]any{"apiEndpoint": server, "secretRef": ref("a"),
				"proxyURL": "http://p.example"}),
			member("headers", map[string]any{"apiEndpoint": server, "secretRef": ref("a"),
				"proxyHeader": map[string]any{"a": "b"}}),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.Karmada(hub, resolver.HubOptions{Namespace: "karmada-cluster"})
		},
		clusters: map[resolver.Cluster]string{
			resolvertest.Named("a"):        "https://m.example t",
			resolvertest.Named("pull"):     "Cluster pull: no access yet: the cluster is in Pull mode",
			resolvertest.Named("nosecret"): "Secret karmada-cluster/missing: secret not found",
			resolvertest.Named("noref"):    "Cluster noref: invalid kubeconfig: spec.secretRef is not set",
			resolvertest.Named("foreign"): "Cluster foreign: refused: spec.secretRef.namespace is not the " +
				"permitted one",
			resolvertest.Named("insecure"): "Cluster insecure: refused: " +
				"spec.insecureSkipTLSVerification is not allowed; Allow.InsecureTLS would permit it",
			resolvertest.Named("proxy"): "Cluster proxy: refused: spec.proxyURL is not allowed; " +
				"Allow.Proxy would permit it",
			resolvertest.Named("headers"): "Cluster headers: refused: spec.proxyHeader is not supported",
		},
		absent: []resolver.Cluster{{}, resolvertest.Named("pull"), resolvertest.Named("nosecret"),
			resolvertest.Named("unknown")},
		selections: []string{"ns=karmada-cluster labels= fields=metadata.name=a"},
	}
}

func genericCases() map[string]conventionCase {
	selector, err := labels.Parse("linkerd=yes")
	if err != nil {
		panic(err)
	}
	token := map[string]string{"token": "t", "ca.crt": string(resolvertest.Identities()[0].Cert)}
	return map[string]conventionCase{
		"Secrets by type, with an ID": {
			objects: []client.Object{
				resolvertest.WithType(resolvertest.Secret("x", "cluster-credentials-a",
					map[string]string{"multicluster.linkerd.io/cluster-name": "a"},
					resolvertest.TokenData("kubeconfig", "a")), "mirror.linkerd.io/remote-kubeconfig"),
				resolvertest.WithType(resolvertest.Secret("x", "b", nil, resolvertest.TokenData("kubeconfig", "b")),
					"mirror.linkerd.io/remote-kubeconfig"),
				resolvertest.WithType(resolvertest.Secret("x", "c",
					map[string]string{"multicluster.linkerd.io/cluster-name": "c"}, nil), "Opaque"),
			},
			make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Secrets(hub, resolver.SecretOptions{
					Type: "mirror.linkerd.io/remote-kubeconfig",
					ID: func(s *corev1.Secret) (resolver.Cluster, bool) {
						name, ok := s.Labels["multicluster.linkerd.io/cluster-name"]
						return resolvertest.Named(name), ok
					},
				})
			},
			clusters: map[resolver.Cluster]string{resolvertest.Named("a"): "https://c.example a"},
			absent: []resolver.Cluster{{}, resolvertest.Named("b"), resolvertest.Named("c"),
				resolvertest.In("x", "cluster-credentials-a")},
			selections: []string{"ns= labels= fields=type=mirror.linkerd.io/remote-kubeconfig"},
		},
		"Secrets by suffix, keys in order": {
			objects: []client.Object{
				resolvertest.Secret("x", "a-sveltos-kubeconfig", nil,
					map[string]string{"kubeconfig": string(resolvertest.TokenConfig("old")),
						"re-kubeconfig": string(resolvertest.TokenConfig("new"))}),
				resolvertest.Secret("x", "b-sveltos-kubeconfig", nil, resolvertest.TokenData("kubeconfig", "b")),
				resolvertest.Secret("x", "c-sveltos-kubeconfig", nil,
					map[string]string{"value": resolvertest.CanaryToken}),
				resolvertest.Secret("x", "other", nil, resolvertest.TokenData("kubeconfig", "x")),
				resolvertest.Secret("y", "a-sveltos-kubeconfig", nil, resolvertest.TokenData("kubeconfig", "x")),
			},
			make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Secrets(hub, resolver.SecretOptions{
					HubOptions: resolver.HubOptions{Namespace: "x"},
					NameSuffix: "-sveltos-kubeconfig",
					Keys:       []string{"re-kubeconfig", "kubeconfig"},
				})
			},
			clusters: map[resolver.Cluster]string{
				resolvertest.In("x", "a"): "https://c.example new",
				resolvertest.In("x", "b"): "https://c.example b",
				resolvertest.In("x", "c"): "Secret x/c-sveltos-kubeconfig: key is missing: re-kubeconfig, kubeconfig",
			},
			absent: []resolver.Cluster{{}, resolvertest.In("x", "other"), resolvertest.In("y", "a"),
				resolvertest.In("x", "a-sveltos-kubeconfig")},
		},
		"Service accounts": {
			objects: []client.Object{
				resolvertest.Secret("x", "a", map[string]string{"linkerd": "yes"}, token),
				resolvertest.Secret("x", "nowhere", map[string]string{"linkerd": "yes"}, token),
				resolvertest.Secret("x", "metadata", map[string]string{"linkerd": "yes"}, token),
			},
			make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.ServiceAccounts(hub, resolver.ServiceAccountOptions{
					SecretOptions: resolver.SecretOptions{HubOptions: resolver.HubOptions{Selector: selector}},
					Endpoint: func(cluster resolver.Cluster, _ *corev1.Secret) (resolver.Endpoint, error) {
						switch cluster.Name {
						case "nowhere":
							return resolver.Endpoint{}, fmt.Errorf("nowhere: %w", resolver.ErrNotReady)
						case "metadata":
							return resolver.Endpoint{Server: "https://169.254.169.254"}, nil
						}
						return resolver.Endpoint{Server: "https://" + cluster.Name + ".example"}, nil
					},
				})
			},
			clusters: map[resolver.Cluster]string{
				resolvertest.In("x", "a"):        "https://a.example t",
				resolvertest.In("x", "nowhere"):  "Secret x/nowhere: nowhere: cluster is not ready",
				resolvertest.In("x", "metadata"): "Secret x/metadata: refused: server names a link-local address",
			},
			selections: []string{"ns= labels=linkerd=yes fields="},
		},
	}
}
