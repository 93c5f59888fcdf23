// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var karmadaClusterGVK = schema.GroupVersionKind{Group: "cluster.karmada.io", Version: "v1alpha1", Kind: "Cluster"}

var karmadaFields = &fieldNames{
	server:      "spec.apiEndpoint",
	serverName:  "spec.apiEndpoint",
	ca:          "caBundle",
	token:       "token",
	insecure:    "spec.insecureSkipTLSVerification",
	proxy:       "spec.proxyURL",
	credentials: "token",
}

// karmadaCluster holds the relevant fields of a Karmada Cluster.
type karmadaCluster struct {
	endpoint Endpoint
	secret   client.ObjectKey
	pull     bool
	headers  bool
}

// Karmada resolves the member clusters of a Karmada control plane, of which hub
// is a client: the cluster has the Cluster object's name, and no namespace. The
// Secret that the Cluster names has the keys "token" and "caBundle", and is
// watched individually; if [HubOptions.Namespace] is set, the Secret must be in
// that namespace. Members in Pull mode have no direct access, which is an
// [ErrNoAccess].
func Karmada(hub client.WithWatch, options HubOptions) (*HubResolver, error) {
	namespace := options.Namespace
	options.Namespace = ""
	return newHubResolver(hub, convention{
		primary: kind{gvk: karmadaClusterGVK, labels: options.Selector, project: projecting(nil, projectKarmada)},
		key:     keyByName(""),
		clusters: func(object client.Object) []Cluster {
			return []Cluster{{Name: object.GetName()}}
		},
		build: func(in input) (Access, error) { return buildKarmada(in, namespace, options) },
	}, options)
}

func projectKarmada(u *unstructured.Unstructured) any {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, path...)...)
		return value
	}
	insecure, _, _ := unstructured.NestedBool(u.Object, "spec", "insecureSkipTLSVerification")
	_, headers, _ := unstructured.NestedMap(u.Object, "spec", "proxyHeader")

	return karmadaCluster{
		endpoint: Endpoint{Server: text("apiEndpoint"), Proxy: text("proxyURL"), InsecureTLS: insecure},
		secret:   client.ObjectKey{Namespace: text("secretRef", "namespace"), Name: text("secretRef", "name")},
		pull:     text("syncMode") == "Pull",
		headers:  headers,
	}
}

func buildKarmada(in input, namespace string, options HubOptions) (Access, error) {
	member := in.primary.(karmadaCluster)
	ref := secretRef(member.secret)
	switch {
	case member.pull:
		return Access{}, fmt.Errorf("%w: the cluster is in Pull mode", ErrNoAccess)
	case member.headers:
		return Access{}, refused("spec.proxyHeader", "is not supported")
	case member.secret.Name == "":
		return Access{}, invalid("spec.secretRef", "is not set")
	case namespace != "" && member.secret.Namespace != namespace:
		return Access{}, refused("spec.secretRef.namespace", "is not the permitted one")
	}

	value, err := in.get(ref)
	if err != nil {
		return Access{}, fail(in.cluster, ref, err)
	}
	data := value.(*corev1.Secret).Data
	token, err := limitedValue(data, options.MaxBytes, "token")
	if err != nil {
		return Access{}, fail(in.cluster, ref, err)
	}
	endpoint := member.endpoint
	// Karmada writes the bundle even for members whose server it does not
	// verify.
	if !endpoint.InsecureTLS {
		endpoint.CA = data["caBundle"]
	}

	return endpoint.access(karmadaFields, string(token), options.Allow, []ObjectRef{in.ref, ref})
}
