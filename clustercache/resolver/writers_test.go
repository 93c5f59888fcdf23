// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/resolvertest"
)

// capiSecret returns a Secret in the form in which Cluster API and its
// providers write kubeconfigs: the label is the name that the Secret's own is
// made of.
func capiSecret(cluster string, kubeconfig []byte, owner *metav1.OwnerReference) *corev1.Secret {
	out := resolvertest.WithType(resolvertest.Secret("fleet", cluster+"-kubeconfig",
		map[string]string{"cluster.x-k8s.io/cluster-name": cluster}, map[string]string{"value": string(kubeconfig)}),
		"cluster.x-k8s.io/secret")
	if owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return out
}

// controlledBy returns a reference to a control plane.
func controlledBy(kind, name string) *metav1.OwnerReference {
	yes := true
	return &metav1.OwnerReference{APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: kind, Name: name,
		UID: types.UID("uid-of-" + name), Controller: &yes}
}

// ownedBy returns a reference to an owner that does not control.
func ownedBy(apiVersion, kind, name string) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("uid-of-" + name)}
}

func at(server, user string) []byte {
	return resolvertest.Kubeconfig("server: 'https://"+server+"'", user)
}

const (
	eksPlugin = "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, " +
		"args: [eks, get-token, --cluster-name, fleet_a]}"
	gkePlugin = "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: gke-gcloud-auth-plugin, " +
		"provideClusterInfo: true}"
)

// writer is what a program writes into a hub, and which clusters that
// describes.
type writer struct {
	objects  []client.Object
	resolver func(client.WithWatch) (*resolver.HubResolver, error)
	// clusters maps each cluster to its host and token.
	clusters map[resolver.Cluster]string
}

func clusterAPI(hub client.WithWatch) (*resolver.HubResolver, error) {
	return resolver.ClusterAPI(hub, resolver.HubOptions{Allow: resolver.Allow{
		Exec: []string{"aws", "gke-gcloud-auth-plugin"},
	}})
}

func fleet(names ...string) map[resolver.Cluster]string {
	out := map[resolver.Cluster]string{}
	for _, name := range names {
		out[resolvertest.In("fleet", name)] = "https://" + name + ".example t"
	}
	return out
}

func clusterAPIWriters() map[string]writer {
	eks, gke := controlledBy("AWSManagedControlPlane", "a-plane"), controlledBy("GCPManagedControlPlane", "a-plane")
	other := controlledBy("AWSManagedControlPlane", "a-user-plane")
	out := map[string]writer{
		"kubeadm": {objects: []client.Object{
			capiSecret("a", at("a.example", "token: t"), controlledBy("KubeadmControlPlane", "a-plane")),
			capiSecret("a-user", at("a-user.example", "token: t"), controlledBy("KubeadmControlPlane", "a-user-plane")),
		}, clusters: fleet("a", "a-user")},
		"no control plane object": {objects: []client.Object{
			capiSecret("a", at("a.example", "token: t"), ownedBy("cluster.x-k8s.io/v1beta2", "Cluster", "a")),
			capiSecret("a-user", at("a-user.example", "token: t"),
				ownedBy("cluster.x-k8s.io/v1beta2", "Cluster", "a-user")),
		}, clusters: fleet("a", "a-user")},
		"EKS": {objects: []client.Object{
			capiSecret("a", at("a.example", "token: t"), eks),
			capiSecret("a-user", at("a.example", eksPlugin), eks),
		}, clusters: fleet("a")},
		"EKS, whose address changed": {objects: []client.Object{
			capiSecret("a", at("a.example", "token: t"), eks),
			capiSecret("a-user", at("old.example", eksPlugin), eks),
		}, clusters: fleet("a")},
		"EKS, two clusters with such names": {objects: []client.Object{
			capiSecret("a", at("a.example", "token: t"), eks),
			capiSecret("a-user", at("a-user.example", "token: t"), other),
			capiSecret("a-user-user", at("a-user.example", eksPlugin), other),
		}, clusters: fleet("a", "a-user")},
		"EKS, only a cluster with such a name": {objects: []client.Object{
			capiSecret("a-user", at("a-user.example", "token: t"), other),
			capiSecret("a-user-user", at("a-user.example", eksPlugin), other),
		}, clusters: fleet("a-user")},
		"EKS, the first Secret is missing": {objects: []client.Object{
			capiSecret("a-user", at("a.example", eksPlugin), eks),
		}, clusters: fleet()},
		"GKE": {objects: []client.Object{
			capiSecret("a", at("a.example", "token: t"), gke),
			capiSecret("a-user", at("a.example", gkePlugin), gke),
		}, clusters: fleet("a")},
		"a provider whose users get a token": {objects: []client.Object{
			capiSecret("a", at("a.example", "token: t"), controlledBy("OtherControlPlane", "a-plane")),
			capiSecret("a-user", at("a.example", "token: u"), controlledBy("OtherControlPlane", "a-plane")),
		}, clusters: fleet("a")},
		"restored from a backup without owners": {objects: []client.Object{
			capiSecret("a", at("a.example", "token: t"), nil),
			capiSecret("a-user", at("a.example/", "token: u"), nil),
		}, clusters: fleet("a")},
	}
	users := capiSecret("a", at("a.example", "exec: {command: kubelogin}"), nil)
	users.Name = "a-kubeconfig-user"
	aso := resolvertest.Secret("fleet", "a-aso-kubeconfig", nil,
		map[string]string{"value": string(at("a.example", "token: aso"))})
	usersASO := aso.DeepCopy()
	usersASO.Name = "a-user-aso-kubeconfig"
	out["AKS"] = writer{objects: []client.Object{
		capiSecret("a", at("a.example", "token: t"), controlledBy("AzureManagedControlPlane", "a-plane")),
		users, aso, usersASO,
	}, clusters: fleet("a")}

	bootstrap := resolvertest.Secret("fleet", "a-bootstrap-kubeconfig", nil,
		map[string]string{"value": string(at("a.example", "token: bootstrap"))})
	out["ROSA"] = writer{objects: []client.Object{
		capiSecret("a", at("a.example", "token: t"), controlledBy("ROSAControlPlane", "a-plane")), bootstrap,
	}, clusters: fleet("a")}

	rancher := capiSecret("a", at("a.example", "token: t"), ownedBy("provisioning.cattle.io/v1", "Cluster", "a"))
	rancher.Type, rancher.Data["token"] = "", []byte("t")
	autoscaler := capiSecret("a", at("rancher.example", "token: other"), nil)
	autoscaler.Name = "fleet-a-autoscaler-kubeconfig"
	out["Rancher"] = writer{objects: []client.Object{rancher, autoscaler}, clusters: fleet("a")}

	for name, w := range out {
		w.resolver = clusterAPI
		out[name] = w
	}

	return out
}

func otherWriters() map[string]writer {
	istio := func(name, key string) client.Object {
		out := resolvertest.Secret("istio-system", name, map[string]string{"istio/multiCluster": "true"},
			map[string]string{key: string(at("a.example", "token: t"))})
		out.Annotations = map[string]string{"networking.istio.io/cluster": "a"}
		return out
	}
	argo := resolvertest.ArgoSecret("cluster-a.example-2587463", map[string]string{
		"name": "a", "server": "https://a.example", "config": `{"bearerToken":"t"}`, "shard": "1", "project": "p"})
	argo.Annotations = map[string]string{"managed-by": "argocd.argoproj.io"}
	repository := resolvertest.Secret("argocd", "repo-1", map[string]string{
		"argocd.argoproj.io/secret-type": "repository"}, nil)

	token := map[string]string{"token": "t", "ca.crt": string(resolvertest.Identities()[0].Cert)}
	account := resolvertest.Secret("a", "reader", map[string]string{
		"authentication.open-cluster-management.io/is-managed-serviceaccount": "true"}, token)
	account.OwnerReferences = []metav1.OwnerReference{
		*ownedBy("authentication.open-cluster-management.io/v1beta1", "ManagedServiceAccount", "reader")}
	synced := resolvertest.Secret("profiles", "a-reader", map[string]string{
		"authentication.open-cluster-management.io/synced-from": "a-reader"}, token)
	managed := resolvertest.UnstructuredObject("cluster.open-cluster-management.io/v1", "ManagedCluster", "", "a",
		map[string]any{"spec": map[string]any{"managedClusterClientConfigs": []any{
			map[string]any{"url": "https://a.example"}}}})

	system := map[string]string{"karmada.io/system": "true"}
	member := resolvertest.UnstructuredObject("cluster.karmada.io/v1alpha1", "Cluster", "", "a",
		map[string]any{"spec": map[string]any{"syncMode": "Push", "apiEndpoint": "https://a.example",
			"secretRef":             map[string]any{"namespace": "karmada-cluster", "name": "a"},
			"impersonatorSecretRef": map[string]any{"namespace": "karmada-cluster", "name": "a-impersonator"}}})

	vcluster := func(namespace, name, key string) client.Object {
		return resolvertest.Secret(namespace, name, map[string]string{"app": "vcluster", "vcluster-name": "a"},
			map[string]string{key: string(at("a.example", "token: t"))})
	}
	values := resolvertest.Secret("fleet", "vc-config-a", map[string]string{"app": "vcluster", "release": "a"},
		map[string]string{"config.yaml": "{}"})

	link := func(namespace string, labels map[string]string) client.Object {
		out := resolvertest.Secret(namespace, "cluster-credentials-a", labels,
			map[string]string{"kubeconfig": string(at("a.example", "token: t"))})
		return resolvertest.WithType(out, "mirror.linkerd.io/remote-kubeconfig")
	}

	named := map[resolver.Cluster]string{resolvertest.Named("a"): "https://a.example t"}
	return map[string]writer{
		"Istio": {
			objects: []client.Object{istio("istio-remote-secret-a", "a"), istio("istio-kubeconfig", "config")},
			resolver: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Istio(hub, resolver.HubOptions{})
			},
			clusters: named,
		},
		"Argo CD": {
			objects: []client.Object{argo, repository},
			resolver: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.ArgoCD(hub, resolver.ArgoCDOptions{ID: resolver.ArgoCDName})
			},
			clusters: named,
		},
		"Open Cluster Management": {
			objects: []client.Object{account, synced, managed},
			resolver: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.OCM(hub, resolver.OCMOptions{ServiceAccount: "reader"})
			},
			clusters: named,
		},
		"Karmada": {
			objects: []client.Object{
				resolvertest.Secret("karmada-cluster", "a", system, map[string]string{
					"token": "t", "caBundle": string(resolvertest.Identities()[0].Cert)}),
				resolvertest.Secret("karmada-cluster", "a-impersonator", system, map[string]string{"token": "other"}),
				member,
			},
			resolver: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Karmada(hub, resolver.HubOptions{})
			},
			clusters: named,
		},
		"Flux, beside Cluster API": {
			objects: []client.Object{
				capiSecret("a", at("a.example", "token: t"), controlledBy("KubeadmControlPlane", "a-plane")),
				resolvertest.UnstructuredObject("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "fleet", "apps",
					map[string]any{"spec": map[string]any{"kubeConfig": resolvertest.SecretRef("a-kubeconfig", "")}}),
				resolvertest.UnstructuredObject("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "fleet", "own",
					map[string]any{"spec": map[string]any{}}),
			},
			resolver: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Flux(hub, resolver.FluxOptions{Kind: resolvertest.Kustomization})
			},
			clusters: map[resolver.Cluster]string{resolvertest.In("fleet", "apps"): "https://a.example t"},
		},
		"vcluster": {
			objects: []client.Object{
				vcluster("fleet", "vc-a", "config"), vcluster("fleet", "for-the-pipeline", "config"),
				vcluster("other", "vc-a-copy", "config"), values,
			},
			resolver: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Secrets(hub, resolver.SecretOptions{
					HubOptions: resolver.HubOptions{Selector: labels.SelectorFromSet(labels.Set{"app": "vcluster"})},
					ID:         resolver.VClusterName,
				})
			},
			clusters: fleet("a"),
		},
		"Linkerd": {
			objects: []client.Object{
				link("linkerd-multicluster", nil),
				link("linkerd", map[string]string{"multicluster.linkerd.io/cluster-name": "a"}),
			},
			resolver: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Secrets(hub, resolver.SecretOptions{
					Type: "mirror.linkerd.io/remote-kubeconfig",
					ID: func(s *corev1.Secret) (resolver.Cluster, bool) {
						name, ok := s.Labels["multicluster.linkerd.io/cluster-name"]
						return resolver.Cluster{Name: name}, ok
					},
				})
			},
			clusters: named,
		},
		"Gardener, whose Secrets are no access": {
			objects: []client.Object{
				resolvertest.Secret("garden-p", "a.ssh-keypair", nil, map[string]string{"id_rsa": "x"}),
				resolvertest.Secret("garden-p", "a.monitoring", nil, map[string]string{"password": "x"}),
				resolvertest.Secret("shoot--p--a", "generic-token-kubeconfig-af3bcb16", nil, map[string]string{
					"kubeconfig": string(at("kube-apiserver", "tokenFile: /var/run/token"))}),
			},
			resolver: func(hub client.WithWatch) (*resolver.HubResolver, error) {
				return resolver.Secrets(hub, resolver.SecretOptions{
					HubOptions: resolver.HubOptions{Namespace: "garden-p"}, NameSuffix: ".kubeconfig",
				})
			},
			clusters: fleet(),
		},
	}
}

// TestWhatWritersWrite: what programs write beside the Secret of a cluster is
// no other cluster, and does not hide one.
func TestWhatWritersWrite(t *testing.T) {
	all := clusterAPIWriters()
	maps.Copy(all, otherWriters())
	for name, w := range all {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub := resolvertest.NewHub(w.objects...)
				r, err := w.resolver(hub)
				require.NoError(t, err)
				w.check(t, r) // by requests
				resolvertest.Notify(t, r)
				synctest.Wait()
				w.check(t, r) // from the watch
			})
		})
	}
}

func (w writer) check(t *testing.T, r *resolver.HubResolver) {
	t.Helper()
	listed, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, slices.Collect(maps.Keys(w.clusters)), listed)
	for cluster, want := range w.clusters {
		access, err := r.Resolve(t.Context(), cluster)
		require.NoError(t, err)
		require.Equal(t, want, access.Config().Host+" "+access.Config().BearerToken)
	}
	for _, name := range []string{"a-user", "a-user-user", "config"} {
		ghost := resolvertest.In("fleet", name)
		if _, real := w.clusters[ghost]; !real {
			_, err := r.Resolve(t.Context(), ghost)
			require.ErrorIs(t, err, resolver.ErrNoAccess)
		}
	}
}

// TestWhatKindWrites: contexts in a person's kubeconfig, beside those of others.
func TestWhatKindWrites(t *testing.T) {
	who := resolvertest.Identities()[0]
	path := filepath.Join(t.TempDir(), "config")
	write(t, path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: kind-a
contexts:
- {name: kind-a, context: {cluster: kind-a, user: kind-a}}
- {name: kind-a-user, context: {cluster: kind-a-user, user: kind-a-user}}
clusters:
- {name: kind-a, cluster: {server: 'https://127.0.0.1:40001', certificate-authority-data: %[1]s}}
- {name: kind-a-user, cluster: {server: 'https://127.0.0.1:40002', certificate-authority-data: %[1]s}}
users:
- {name: kind-a, user: {client-certificate-data: %[1]s, client-key-data: %[2]s}}
- {name: kind-a-user, user: {client-certificate-data: %[1]s, client-key-data: %[2]s}}
`, resolvertest.Base64(who.Cert), resolvertest.Base64(who.Key)))
	r := files(t, resolver.FileOptions{Own: true, ID: resolver.ByContext}, path)
	listed, err := r.Clusters(t.Context())
	require.NoError(t, err)
	require.Equal(t, []resolver.Cluster{resolvertest.Named("kind-a"), resolvertest.Named("kind-a-user")}, listed)
	for _, cluster := range listed {
		access, err := r.Resolve(t.Context(), cluster)
		require.NoError(t, err)
		require.NotEmpty(t, access.Config().CertData)
	}
}

// TestHazardSecretForUsersIsToldApartWhenTheFirstAppears: a Secret that was
// taken for one of a cluster a-user ceases to be one, and a renewed first Secret
// makes it none.
func TestHazardSecretForUsersIsToldApartWhenTheFirstAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := controlledBy("OtherControlPlane", "a-plane")
		first := capiSecret("a", at("a.example", "token: t"), plane)
		hub := resolvertest.NewHub(capiSecret("a-user", at("a.example", "token: u"), plane))
		r, err := clusterAPI(hub)
		require.NoError(t, err)
		reports := resolvertest.Notify(t, r)
		synctest.Wait()
		a, user := resolvertest.In("fleet", "a"), resolvertest.In("fleet", "a-user")
		known := func(want ...resolver.Cluster) {
			t.Helper()
			synctest.Wait()
			listed, err := r.Clusters(t.Context())
			require.NoError(t, err)
			require.ElementsMatch(t, want, listed)
		}
		known(user)
		reports.Take()

		require.NoError(t, hub.Create(t.Context(), first.DeepCopy()))
		known(a)
		require.ElementsMatch(t, []resolver.Cluster{a, user}, reports.Take())
		_, err = r.Resolve(t.Context(), user)
		require.ErrorIs(t, err, resolver.ErrNoAccess)

		require.NoError(t, hub.Delete(t.Context(), first.DeepCopy()))
		time.Sleep(time.Second)
		require.NoError(t, hub.Create(t.Context(), first.DeepCopy()))
		known(a)
		require.Empty(t, reports.Take())
	})
}
