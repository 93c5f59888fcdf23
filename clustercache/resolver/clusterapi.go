// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	clusterAPILabel  = "cluster.x-k8s.io/cluster-name"
	clusterAPISuffix = "-kubeconfig"
	clusterAPIKey    = "value"
	// clusterAPIUser is what some providers add to a cluster's name for the
	// Secret of its users.
	clusterAPIUser = "-user"
)

// ClusterAPI resolves clusters as Cluster API and Rancher's provisioning
// describe them: the cluster namespace/name by the Secret name-kubeconfig of
// the same namespace, with a kubeconfig under the key "value".
//
// The Secret needs the label cluster.x-k8s.io/cluster-name with the cluster's
// name, which selects on the hub. The Secret's type does not matter, and Secrets
// with the same label but other content are not kept. [HubOptions.ReadyObject]
// with [ClusterAPIReady] withholds clusters whose control plane does not exist
// yet. [ClusterAPIClusters] goes by the Cluster objects instead.
//
// The providers of EKS and GKE write two Secrets for cluster "a": for
// controllers, and for people, with a credential plugin. The second has the
// name and the label of a cluster "a-user". It describes no cluster if its
// controlling owner is that of the first one or, where one of them has no such
// owner, if both lead to the same server; while there is no first one, if it is
// controlled by the control plane of EKS or GKE, and has a plugin and no token.
func ClusterAPI(hub client.WithWatch, options HubOptions) (*HubResolver, error) {
	ours := func(object client.Object) bool {
		_, ok := clusterAPIName(object)
		return ok
	}
	return newHubResolver(hub, convention{
		primary: kind{
			gvk:       secretGVK,
			namespace: options.Namespace,
			labels:    withLabel(options.Selector, clusterAPILabel, ""),
			project: projecting(ours, func(secret *corev1.Secret) any {
				return trimSecret(&corev1.Secret{
					ObjectMeta: secret.ObjectMeta,
					Data:       only(secret.Data, clusterAPIKey),
				})
			}),
		},
		key: keyWithSuffix(clusterAPISuffix),
		clusters: func(object client.Object) []Cluster {
			name, _ := clusterAPIName(object)
			return []Cluster{{Namespace: object.GetNamespace(), Name: name}}
		},
		second: func(object any, peer func(client.ObjectKey) (any, error)) (bool, error) {
			secret := object.(*corev1.Secret)
			name, _ := clusterAPIName(secret)
			first, ok := strings.CutSuffix(name, clusterAPIUser)
			if !ok || first == "" {
				return false, nil
			}
			other, err := peer(client.ObjectKey{Namespace: secret.Namespace, Name: first + clusterAPISuffix})
			if err != nil {
				return false, err
			}
			return forUsers(secret, other, options.MaxBytes), nil
		},
		build: kubeconfigDecoder(options, clusterAPIKey),
	}, options)
}

// forUsers reports whether a Secret that is called like one for the users of a
// cluster is that, as far as Secrets tell. other is the Secret of that cluster,
// or nil.
func forUsers(secret *corev1.Secret, other any, maxBytes int) bool {
	controller := metav1.GetControllerOf(secret)
	server, user := endOf(secret, maxBytes)
	first, _ := other.(*corev1.Secret)
	if first == nil {
		return controller != nil && user != nil && user.Exec != nil && user.Token == "" &&
			(controller.Kind == "AWSManagedControlPlane" || controller.Kind == "GCPManagedControlPlane")
	}
	if firsts := metav1.GetControllerOf(first); firsts != nil && controller != nil {
		return firsts.Kind == controller.Kind && firsts.Name == controller.Name && firsts.UID == controller.UID
	}
	same, _ := endOf(first, maxBytes)
	if server == nil || same == nil {
		return false
	}

	return strings.TrimRight(server.Server, "/") == strings.TrimRight(same.Server, "/") &&
		server.TLSServerName == same.TLSServerName &&
		bytes.Equal(server.CertificateAuthorityData, same.CertificateAuthorityData)
}

// endOf returns where the kubeconfig of a Secret leads to, and as whom; nil if
// it has none that can be read.
func endOf(secret *corev1.Secret, maxBytes int) (*api.Cluster, *api.AuthInfo) {
	config, err := parseKubeconfig(secret.Data[clusterAPIKey], maxBytes)
	if err != nil {
		return nil, nil
	}
	cluster, user, err := pick(config, "")
	if err != nil {
		return nil, nil
	}
	return cluster, user
}

// clusterAPIName removes only one suffix: a cluster's name may itself end in
// it.
func clusterAPIName(object client.Object) (string, bool) {
	name, ok := strings.CutSuffix(object.GetName(), clusterAPISuffix)
	return name, ok && name != "" && object.GetLabels()[clusterAPILabel] == name
}

func only(data map[string][]byte, key string) map[string][]byte {
	value, ok := data[key]
	if !ok {
		return nil
	}
	return map[string][]byte{key: value}
}

// ClusterAPIOptions configure a resolver of Cluster API's Cluster objects.
type ClusterAPIOptions struct {
	// HubOptions select the Cluster objects, by Namespace and Selector.
	HubOptions
	// Version is that of Cluster API's objects. Default: v1beta2.
	Version string
	// Ready reports whether a cluster can be contacted, by its Cluster object,
	// which it must not change. Default: [ControlPlaneInitialized].
	Ready func(cluster *unstructured.Unstructured) bool
}

// ClusterAPIClusters resolves the clusters for which Cluster API has a Cluster
// object: the cluster namespace/name by the object of that key, and the Secret
// name-kubeconfig of the same namespace.
//
// [ClusterAPI] goes by the Secrets alone: it needs no right to read Cluster
// objects, also fits Rancher, and knows a cluster once its Secret exists. Here
// the Cluster objects decide: a cluster is listed as soon as its object exists,
// its status says what it waits for, and its labels are those of the object.
//
//	            Cluster                          Secret <name>-kubeconfig
//	absent      it does not exist                –
//	present     listed; "not ready" before       "secret not found" until it
//	            the control plane is there       exists, then connected
//	paused      as before
//	deleting    as before, until the object or the Secret is gone: controllers
//	            need the cluster to end what is in it
//
// One watch follows the objects, and one the Secrets that have the label
// cluster.x-k8s.io/cluster-name, as Cluster API writes them. A Secret whose
// label has the name of another cluster does not count. Neither does the Secret
// of a cluster a-user that is controlled by another control plane than the one
// its Cluster names: the providers of EKS and GKE write one with that name and
// label for the users of cluster a. The operator needs the right to list and
// watch both. The errors are those of the options.
func ClusterAPIClusters(hub client.WithWatch, o ClusterAPIOptions) (*HubResolver, error) {
	if o.Version == "" {
		o.Version = "v1beta2"
	}
	if o.Ready == nil {
		o.Ready = ControlPlaneInitialized
	}

	return Referenced(hub, ReferenceOptions{
		HubOptions:     o.HubOptions,
		Kind:           schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: o.Version, Kind: "Cluster"},
		SecretSelector: withLabel(nil, clusterAPILabel, ""),
		Reference: func(cluster *unstructured.Unstructured) (SecretReference, error) {
			if !o.Ready(cluster) {
				return SecretReference{}, ErrNotReady
			}
			return SecretReference{Name: cluster.GetName() + clusterAPISuffix}, nil
		},
		Decode: func(cluster *unstructured.Unstructured, secret *corev1.Secret) (Access, error) {
			return accessOfCluster(cluster, secret, o.HubOptions)
		},
	})
}

// accessOfCluster makes the access of a Cluster from its Secret.
func accessOfCluster(cluster *unstructured.Unstructured, secret *corev1.Secret, o HubOptions) (Access, error) {
	if secret.Labels[clusterAPILabel] != cluster.GetName() {
		return Access{}, fmt.Errorf("%w: this one is another cluster's, by its label %s",
			ErrSecretNotFound, clusterAPILabel)
	}
	if ofOtherControlPlane(cluster, secret) {
		return Access{}, fmt.Errorf("%w: this one is for the users of another cluster, by its owner", ErrSecretNotFound)
	}
	return o.kubeconfig(secret.Data, []string{clusterAPIKey},
		ObjectRef{Kind: cluster.GetKind(), Namespace: cluster.GetNamespace(), Name: cluster.GetName()},
		secretRef(client.ObjectKeyFromObject(secret)))
}

// ofOtherControlPlane reports whether a Secret with the name and the label of a
// cluster a-user was written by the control plane of cluster a.
func ofOtherControlPlane(cluster *unstructured.Unstructured, secret *corev1.Secret) bool {
	controller := metav1.GetControllerOf(secret)
	if !strings.HasSuffix(cluster.GetName(), clusterAPIUser) || controller == nil ||
		!strings.HasSuffix(controller.Kind, "ControlPlane") {
		return false
	}
	kind, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneRef", "kind")
	name, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneRef", "name")

	return controller.Kind != kind || controller.Name != name
}

// ClusterAPIReady watches Cluster API's Cluster objects, in the given version
// of their API such as "v1beta2", and considers a cluster ready as soon as its
// control plane is initialized. A cluster that is being deleted stays ready.
func ClusterAPIReady(version string) *ReadyObject {
	return &ReadyObject{
		Kind:  schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: version, Kind: "Cluster"},
		Ready: ControlPlaneInitialized,
	}
}

// ControlPlaneInitialized reports whether a Cluster says that its control plane
// has been initialized, which it never takes back. Before that, connections
// fail.
func ControlPlaneInitialized(cluster *unstructured.Unstructured) bool {
	if cluster == nil {
		return false
	}
	done, found, err := unstructured.NestedBool(cluster.Object, "status", "initialization", "controlPlaneInitialized")
	if found && err == nil {
		return done
	}
	// v1beta1 has a condition for it.
	conditions, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions")
	for _, condition := range conditions {
		c, _ := condition.(map[string]any)
		if c["type"] == "ControlPlaneInitialized" {
			return c["status"] == "True"
		}
	}

	return false
}

// InfrastructureProvisioned reports whether a Cluster says that its
// infrastructure is ready, as Cluster API's own ClusterCache requires: the
// first attempts to connect may come before there is a control plane.
func InfrastructureProvisioned(cluster *unstructured.Unstructured) bool {
	if cluster == nil {
		return false
	}
	done, found, err := unstructured.NestedBool(
		cluster.Object, "status", "initialization", "infrastructureProvisioned")
	if !found || err != nil { // v1beta1
		done, _, _ = unstructured.NestedBool(cluster.Object, "status", "infrastructureReady")
	}
	return done
}
