// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// conventionCase holds the objects of a hub, and the expected results of a
// resolver.
type conventionCase struct {
	objects []client.Object
	make    func(client.WithWatch) (*resolver.HubResolver, error)
	// clusters maps all known clusters to their token, or to an error text.
	clusters map[resolver.Cluster]string
	// absent are clusters that must be an ErrNoAccess.
	absent []resolver.Cluster
	// selections are the server-side selections of watches.
	selections []string
}

func withType(s *corev1.Secret, kind corev1.SecretType) *corev1.Secret {
	s.Type = kind
	return s
}

func at(s *corev1.Secret, second int64) *corev1.Secret {
	s.CreationTimestamp = metav1.Unix(second, 0)
	return s
}

func named(name string) resolver.Cluster { return resolver.Cluster{Name: name} }

func in(namespace, name string) resolver.Cluster {
	return resolver.Cluster{Namespace: namespace, Name: name}
}

// run checks the case with single reads, and again with a watch.
func (c conventionCase) run(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newFakeHub(c.objects...)
		r, err := c.make(hub)
		require.NoError(t, err)
		c.check(t, r)
		hub.selections()
		news := notify(t, r)
		reported := news.take()
		for cluster := range c.clusters {
			require.Contains(t, reported, cluster)
		}
		for _, want := range c.selections {
			require.Contains(t, hub.selections(), "watch "+want)
		}
		before := hub.requests.Load()
		c.check(t, r)
		require.Equal(t, before, hub.requests.Load(), "answers come from the watch")
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
			require.Equal(t, text, err.Error())
			described, ok := errors.AsType[*resolver.AccessError](err)
			require.True(t, ok)
			require.Equal(t, cluster, described.Cluster)
			requireNoCanary(t, err.Error())
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
	}
	maps.Copy(out, genericCases())
	return out
}

func clusterAPICase() conventionCase {
	label := func(cluster string) map[string]string {
		return map[string]string{"cluster.x-k8s.io/cluster-name": cluster}
	}
	value := map[string]string{"value": string(tokenConfig("t"))}
	objects := []client.Object{
		capiSecret("fleet", "a", "a"),
		capiSecret("fleet", "a-kubeconfig", "b"), // a name that has the suffix of the Secret
		capiSecret("other", "a", "c"),
		secret("fleet", "a-user-kubeconfig", label("a"), value), // for users of a managed provider
		secret("fleet", "unlabelled-kubeconfig", nil, value),
		secret("fleet", "-kubeconfig", label(""), value),
		secret("fleet", "nokey-kubeconfig", label("nokey"), map[string]string{"kubeconfig": canaryToken}),
		secret("fleet", "bad-kubeconfig", label("bad"), map[string]string{"value": canaryToken}),
		secret("fleet", "rancher-kubeconfig", label("rancher"), map[string]string{
			"token": canaryToken,
			"value": string(kubeconfig("server: 'https://rancher.example/k8s/clusters/c-m-1'", "token: r")),
		}),
	}
	for _, suffix := range []string{"ca", "etcd", "sa", "proxy", "apiserver-etcd-client"} {
		objects = append(objects, withType(secret("fleet", "a-"+suffix, label("a"), value), "cluster.x-k8s.io/secret"))
	}
	return conventionCase{
		objects: objects,
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.ClusterAPI(hub, resolver.HubOptions{})
		},
		clusters: map[resolver.Cluster]string{
			in("fleet", "a"):            "https://c.example a",
			in("fleet", "a-kubeconfig"): "https://c.example b",
			in("other", "a"):            "https://c.example c",
			in("fleet", "rancher"):      "https://rancher.example/k8s/clusters/c-m-1 r",
			in("fleet", "nokey"):        "cluster fleet/nokey: Secret fleet/nokey-kubeconfig: key is missing: value",
			in("fleet", "bad"):          "cluster fleet/bad: Secret fleet/bad-kubeconfig: invalid kubeconfig: is not a kubeconfig",
		},
		absent:     []resolver.Cluster{{}, in("fleet", "a-user"), in("fleet", "unlabelled"), in("fleet", ""), named("a")},
		selections: []string{"ns= labels=cluster.x-k8s.io/cluster-name fields="},
	}
}

func multiclusterRuntimeCase() conventionCase {
	label := func(value string) map[string]string {
		return map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": value}
	}
	return conventionCase{
		objects: []client.Object{
			secret("mcr", "a", label("true"), map[string]string{"kubeconfig": string(tokenConfig("a")), "value": "x"}),
			secret("mcr", "b", label("false"), map[string]string{"kubeconfig": string(tokenConfig("b"))}),
			secret("mcr", "nokey", label("true"), nil),
			secret("other", "c", label("true"), map[string]string{"kubeconfig": string(tokenConfig("c"))}),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.MulticlusterRuntime(hub, resolver.HubOptions{Namespace: "mcr"})
		},
		clusters: map[resolver.Cluster]string{
			named("a"):     "https://c.example a",
			named("nokey"): "cluster nokey: Secret mcr/nokey: key is missing: kubeconfig",
		},
		absent:     []resolver.Cluster{{}, named("b"), named("c"), in("mcr", "a")},
		selections: []string{"ns=mcr labels=sigs.k8s.io/multicluster-runtime-kubeconfig=true fields="},
	}
}

func istioCase() conventionCase {
	label := map[string]string{"istio/multiCluster": "true"}
	return conventionCase{
		objects: []client.Object{
			at(secret("istio-system", "z", label, map[string]string{"a": string(tokenConfig("first")), "b": string(tokenConfig("b"))}), 1),
			at(secret("istio-system", "a", label, map[string]string{"a": string(tokenConfig("takeover")), "bad": canaryToken}), 2),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.Istio(hub, resolver.HubOptions{})
		},
		clusters: map[resolver.Cluster]string{
			named("a"):   "https://c.example first",
			named("b"):   "https://c.example b",
			named("bad"): "cluster bad: Secret istio-system/a: invalid kubeconfig: is not a kubeconfig",
		},
		absent:     []resolver.Cluster{{}, named("z"), in("istio-system", "a")},
		selections: []string{"ns=istio-system labels=istio/multiCluster=true fields="},
	}
}

func argoCDCase() conventionCase {
	argo := func(name, server, config string) client.Object {
		return argoSecret(name, map[string]string{"name": "shown", "server": server, "config": config})
	}
	who := identities()[0]
	const server = "https://c.example/"
	return conventionCase{
		objects: []client.Object{
			argo("a", server, `{"bearerToken":"a","tlsClientConfig":{"insecure":false,"caData":"`+b64(who.cert)+`"}}`),
			argo("cert", server, `{"tlsClientConfig":{"certData":"`+b64(who.cert)+`","keyData":"`+b64(who.key)+`"}}`),
			argo("anonymous", server, ""),
			argo("hub", "https://kubernetes.default.svc", `{"tlsClientConfig":{"insecure":false}}`),
			argo("exec", server, `{"execProviderConfig":{"command":"sh","args":["-c","x"],"env":{"A":"B"}}}`),
			argo("aws", server, `{"bearerToken":"x","awsAuthConfig":{"clusterName":"x"}}`),
			argo("basic", server, `{"username":"u","password":"`+canaryPassword+`"}`),
			argo("insecure", server, `{"bearerToken":"`+canaryToken+`","tlsClientConfig":{"insecure":true}}`),
			argo("proxy", server, `{"proxyUrl":"http://u:`+canaryPassword+`@p.example"}`),
			argo("junk", server, `{"bearerToken":"`+canaryToken+`"`),
			argo("two", server, `{} {"bearerToken":"`+canaryToken+`"}`),
			argo("type", server, `{"bearerToken":{"`+canaryToken+`":1}}`),
			argo("noserver", "", `{}`),
			secret("argocd", "repository", map[string]string{"argocd.argoproj.io/secret-type": "repository"}, nil),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.ArgoCD(hub, resolver.ArgoCDOptions{})
		},
		clusters: map[resolver.Cluster]string{
			named("a"):         "https://c.example a",
			named("cert"):      "https://c.example ",
			named("anonymous"): "cluster anonymous: Secret argocd/anonymous: refused: config has no credentials, and anonymous access is not allowed",
			named("hub"):       "cluster hub: Secret argocd/hub: refused: server is Argo CD's own cluster, which is not allowed",
			named("exec"):      "cluster exec: Secret argocd/exec: refused: config.execProviderConfig is not allowed",
			named("aws"):       "cluster aws: Secret argocd/aws: refused: config.execProviderConfig is not allowed",
			named("basic"):     "cluster basic: Secret argocd/basic: refused: config.username and password are not allowed",
			named("insecure"):  "cluster insecure: Secret argocd/insecure: refused: config.tlsClientConfig.insecure is not allowed",
			named("proxy"):     "cluster proxy: Secret argocd/proxy: refused: config.proxyUrl is not allowed",
			named("junk"):      "cluster junk: Secret argocd/junk: invalid kubeconfig: config is not the JSON of an Argo CD cluster",
			named("two"):       "cluster two: Secret argocd/two: invalid kubeconfig: config is not the JSON of an Argo CD cluster",
			named("type"):      "cluster type: Secret argocd/type: invalid kubeconfig: config is not the JSON of an Argo CD cluster",
			named("noserver"):  "cluster noserver: Secret argocd/noserver: key is missing: server",
		},
		absent:     []resolver.Cluster{{}, named("repository"), named("shown")},
		selections: []string{"ns=argocd labels=argocd.argoproj.io/secret-type=cluster fields="},
	}
}

func ocmCase() conventionCase {
	label := map[string]string{"authentication.open-cluster-management.io/is-managed-serviceaccount": "true"}
	managed := func(name string, configs ...any) client.Object {
		return unstructuredObject("cluster.open-cluster-management.io/v1", "ManagedCluster", "", name, map[string]any{
			"spec": map[string]any{"managedClusterClientConfigs": configs}})
	}
	data := map[string]string{"token": "t\n", "ca.crt": string(identities()[0].cert)}
	return conventionCase{
		objects: []client.Object{
			secret("a", "reader", label, data),
			secret("a", "admin", label, data),
			managed("a", map[string]any{"url": "https://a.example:6443", "caBundle": b64(identities()[1].cert)}),
			secret("nourl", "reader", label, data),
			managed("nourl"),
			secret("unmanaged", "reader", label, data),
			secret("notoken", "reader", label, nil),
			managed("notoken", map[string]any{"url": "https://b.example"}),
			secret("badca", "reader", label, data),
			managed("badca", map[string]any{"url": "https://b.example", "caBundle": "!"}),
			managed("nosecret", map[string]any{"url": "https://b.example"}),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.OCM(hub, resolver.OCMOptions{ServiceAccount: "reader"})
		},
		clusters: map[resolver.Cluster]string{
			named("a"):         "https://a.example:6443 t",
			named("nourl"):     "cluster nourl: ManagedCluster nourl: cluster is not ready",
			named("unmanaged"): "cluster unmanaged: ManagedCluster unmanaged: cluster not found",
			named("notoken"):   "cluster notoken: Secret notoken/reader: key is missing: token",
			named("badca"):     "cluster badca: ManagedCluster badca: invalid kubeconfig: spec.managedClusterClientConfigs.caBundle is not base64",
		},
		absent: []resolver.Cluster{{}, named("nosecret"), in("a", "reader"), named("nourl"), named("unmanaged")},
		selections: []string{
			"ns= labels=authentication.open-cluster-management.io/is-managed-serviceaccount=true fields=metadata.name=reader",
		},
	}
}

func karmadaCase() conventionCase {
	member := func(name string, spec map[string]any) client.Object {
		return unstructuredObject("cluster.karmada.io/v1alpha1", "Cluster", "", name, map[string]any{"spec": spec})
	}
	ref := func(name string) map[string]any {
		return map[string]any{"namespace": "karmada-cluster", "name": name}
	}
	data := map[string]string{"token": "t", "caBundle": string(identities()[0].cert)}
	const server = "https://m.example"
	return conventionCase{
		objects: []client.Object{
			secret("karmada-cluster", "a", nil, data),
			secret("karmada-cluster", "never-read", nil, data),
			member("a", map[string]any{"syncMode": "Push", "apiEndpoint": server, "secretRef": ref("a")}),
			member("pull", map[string]any{"syncMode": "Pull", "apiEndpoint": server, "secretRef": ref("a")}),
			member("nosecret", map[string]any{"apiEndpoint": server, "secretRef": ref("missing")}),
			member("noref", map[string]any{"apiEndpoint": server}),
			member("foreign", map[string]any{"apiEndpoint": server, "secretRef": map[string]any{"namespace": "kube-system", "name": "x"}}),
			member("insecure", map[string]any{"apiEndpoint": server, "secretRef": ref("a"), "insecureSkipTLSVerification": true}),
			member("proxy", map[string]any{"apiEndpoint": server, "secretRef": ref("a"), "proxyURL": "http://p.example"}),
			member("headers", map[string]any{"apiEndpoint": server, "secretRef": ref("a"), "proxyHeader": map[string]any{"a": "b"}}),
		},
		make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
			return resolver.Karmada(hub, resolver.HubOptions{Namespace: "karmada-cluster"})
		},
		clusters: map[resolver.Cluster]string{
			named("a"):        "https://m.example t",
			named("pull"):     "cluster pull: Cluster pull: no access yet: the cluster is in Pull mode",
			named("nosecret"): "cluster nosecret: Secret karmada-cluster/missing: secret not found",
			named("noref"):    "cluster noref: Cluster noref: invalid kubeconfig: spec.secretRef is not set",
			named("foreign"):  "cluster foreign: Cluster foreign: refused: spec.secretRef.namespace is not the permitted one",
			named("insecure"): "cluster insecure: Cluster insecure: refused: spec.insecureSkipTLSVerification is not allowed",
			named("proxy"):    "cluster proxy: Cluster proxy: refused: spec.proxyURL is not allowed",
			named("headers"):  "cluster headers: Cluster headers: refused: spec.proxyHeader is not supported",
		},
		absent:     []resolver.Cluster{{}, named("pull"), named("nosecret"), named("unknown")},
		selections: []string{"ns=karmada-cluster labels= fields=metadata.name=a"},
	}
}

func genericCases() map[string]conventionCase {
	selector, err := labels.Parse("linkerd=yes")
	if err != nil {
		panic(err)
	}
	token := map[string]string{"token": "t", "ca.crt": string(identities()[0].cert)}
	return map[string]conventionCase{
		"Secrets by type, with an ID": {
			objects: []client.Object{
				withType(secret("x", "cluster-credentials-a", map[string]string{"multicluster.linkerd.io/cluster-name": "a"},
					map[string]string{"kubeconfig": string(tokenConfig("a"))}), "mirror.linkerd.io/remote-kubeconfig"),
				withType(secret("x", "b", nil, map[string]string{"kubeconfig": string(tokenConfig("b"))}), "mirror.linkerd.io/remote-kubeconfig"),
				withType(secret("x", "c", map[string]string{"multicluster.linkerd.io/cluster-name": "c"}, nil), "Opaque"),
			},
			make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Secrets(hub, resolver.SecretOptions{
					Type: "mirror.linkerd.io/remote-kubeconfig",
					ID: func(s *corev1.Secret) (resolver.Cluster, bool) {
						name, ok := s.Labels["multicluster.linkerd.io/cluster-name"]
						return named(name), ok
					},
				})
			},
			clusters:   map[resolver.Cluster]string{named("a"): "https://c.example a"},
			absent:     []resolver.Cluster{{}, named("b"), named("c"), in("x", "cluster-credentials-a")},
			selections: []string{"ns= labels= fields=type=mirror.linkerd.io/remote-kubeconfig"},
		},
		"Secrets by suffix, keys in order": {
			objects: []client.Object{
				secret("x", "a-sveltos-kubeconfig", nil, map[string]string{"kubeconfig": string(tokenConfig("old")), "re-kubeconfig": string(tokenConfig("new"))}),
				secret("x", "b-sveltos-kubeconfig", nil, map[string]string{"kubeconfig": string(tokenConfig("b"))}),
				secret("x", "c-sveltos-kubeconfig", nil, map[string]string{"value": canaryToken}),
				secret("x", "other", nil, map[string]string{"kubeconfig": string(tokenConfig("x"))}),
				secret("y", "a-sveltos-kubeconfig", nil, map[string]string{"kubeconfig": string(tokenConfig("x"))}),
			},
			make: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Secrets(hub, resolver.SecretOptions{
					HubOptions: resolver.HubOptions{Namespace: "x"},
					NameSuffix: "-sveltos-kubeconfig",
					Keys:       []string{"re-kubeconfig", "kubeconfig"},
				})
			},
			clusters: map[resolver.Cluster]string{
				in("x", "a"): "https://c.example new",
				in("x", "b"): "https://c.example b",
				in("x", "c"): "cluster x/c: Secret x/c-sveltos-kubeconfig: key is missing: re-kubeconfig, kubeconfig",
			},
			absent: []resolver.Cluster{{}, in("x", "other"), in("y", "a"), in("x", "a-sveltos-kubeconfig")},
		},
		"Service accounts": {
			objects: []client.Object{
				secret("x", "a", map[string]string{"linkerd": "yes"}, token),
				secret("x", "nowhere", map[string]string{"linkerd": "yes"}, token),
				secret("x", "metadata", map[string]string{"linkerd": "yes"}, token),
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
				in("x", "a"):        "https://a.example t",
				in("x", "nowhere"):  "cluster x/nowhere: Secret x/nowhere: nowhere: cluster is not ready",
				in("x", "metadata"): "cluster x/metadata: Secret x/metadata: refused: server names a link-local address",
			},
			selections: []string{"ns= labels=linkerd=yes fields="},
		},
	}
}
