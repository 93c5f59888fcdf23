// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"encoding/base64"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OCMOptions describe the clusters of an Open Cluster Management hub.
type OCMOptions struct {
	HubOptions
	// ServiceAccount is the name of the ManagedServiceAccount, the same in
	// every cluster's namespace. Required.
	ServiceAccount string
	// Endpoint returns the endpoint of a cluster, for example behind
	// cluster-proxy. It must not do I/O. Default: the first of the
	// ManagedCluster's spec.managedClusterClientConfigs.
	Endpoint func(cluster Cluster) (Endpoint, error)
}

var managedClusterGVK = schema.GroupVersionKind{
	Group:   "cluster.open-cluster-management.io",
	Version: "v1",
	Kind:    "ManagedCluster",
}

// OCM resolves the clusters of an Open Cluster Management hub with the tokens
// of a ManagedServiceAccount: the cluster has the ManagedCluster's name, and no
// namespace. Its Secret is in the namespace of that name, with the keys "token"
// and "ca.crt".
func OCM(hub client.WithWatch, options OCMOptions) (*HubResolver, error) {
	if options.ServiceAccount == "" {
		return nil, errors.New("resolver: OCM needs a ServiceAccount")
	}
	described := convention{
		primary: kind{
			gvk:       secretGVK,
			namespace: options.Namespace,
			labels: withLabel(options.Selector,
				"authentication.open-cluster-management.io/is-managed-serviceaccount", "true"),
			fields: fields.OneTermEqualSelector("metadata.name", options.ServiceAccount),
			project: projecting(func(object client.Object) bool {
				return object.GetName() == options.ServiceAccount
			}, trimSecret),
		},
		key: func(cluster Cluster) client.ObjectKey {
			if cluster.Namespace != "" || cluster.Name == "" {
				return client.ObjectKey{}
			}
			return client.ObjectKey{Namespace: cluster.Name, Name: options.ServiceAccount}
		},
		clusters: func(object client.Object) []Cluster { return []Cluster{{Name: object.GetNamespace()}} },
		build:    options.build,
	}
	if options.Endpoint == nil {
		described.related = []kind{{gvk: managedClusterGVK, project: projecting(nil, projectManagedCluster)}}
	}

	return newHubResolver(hub, described, options.HubOptions)
}

var ocmFields = &fieldNames{
	server:      "spec.managedClusterClientConfigs.url",
	serverName:  "serverName",
	ca:          "spec.managedClusterClientConfigs.caBundle",
	token:       "token",
	insecure:    "insecureTLS",
	proxy:       "proxy",
	credentials: "token",
}

func (o OCMOptions) build(in input) (Access, error) {
	secret := in.primary.(*corev1.Secret)
	refs := []ObjectRef{in.ref}
	var endpoint Endpoint
	var labels map[string]string
	var err error
	if o.Endpoint != nil {
		endpoint, err = o.Endpoint(in.cluster)
	} else {
		ref := ObjectRef{Kind: managedClusterGVK.Kind, Name: in.cluster.Name}
		refs = append(refs, ref)
		endpoint, labels, err = endpointOf(in, ref)
	}

	if err != nil {
		return Access{}, err
	}
	if len(endpoint.CA) == 0 {
		endpoint.CA = secret.Data[corev1.ServiceAccountRootCAKey]
	}
	token, err := limitedValue(secret.Data, o.MaxBytes, corev1.ServiceAccountTokenKey)
	if err != nil {
		return Access{}, err
	}
	access, err := endpoint.access(ocmFields, string(token), o.Allow, refs)
	return access.WithLabels(labels), err
}

// managedCluster is what is kept of a ManagedCluster: an endpoint, or the
// reason why there is none.
type managedCluster struct {
	endpoint Endpoint
	err      error
	labels   map[string]string
}

// endpointOf reads the endpoint and the labels of a ManagedCluster.
func endpointOf(in input, ref ObjectRef) (Endpoint, map[string]string, error) {
	value, err := in.get(ref)
	if err != nil {
		return Endpoint{}, nil, fail(in.cluster, ref, err)
	}
	m, _ := value.(managedCluster)
	if m.err != nil {
		return Endpoint{}, nil, fail(in.cluster, ref, m.err)
	}
	return m.endpoint, m.labels, nil
}

// projectManagedCluster keeps what describes the cluster.
func projectManagedCluster(u *unstructured.Unstructured) any {
	out := managedCluster{labels: u.GetLabels()}
	configs, _, _ := unstructured.NestedSlice(u.Object, "spec", "managedClusterClientConfigs")
	if len(configs) == 0 {
		out.err = ErrNotReady
		return out
	}
	config, _ := configs[0].(map[string]any)
	server, _ := config["url"].(string)
	bundle, _ := config["caBundle"].(string)
	ca, err := base64.StdEncoding.DecodeString(bundle)
	if err != nil {
		out.err = invalid(ocmFields.ca, "is not base64")
		return out
	}
	out.endpoint = Endpoint{Server: server, CA: ca}

	return out
}
