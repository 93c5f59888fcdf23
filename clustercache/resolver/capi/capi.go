// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package capi resolves the clusters for which Cluster API has a Cluster object.
//
// resolver.ClusterAPI goes by the Secrets alone: it needs no right to read
// Cluster objects, also fits Rancher, and knows a cluster once its Secret
// exists. Here the Cluster objects decide: a cluster is listed as soon as its
// object exists, its status says what it waits for, and its labels are those of
// the object. This package does not import Cluster API.
//
//	            Cluster                          Secret <name>-kubeconfig
//	absent      it does not exist                –
//	present     listed; "not ready" before       "secret not found" until it
//	            the control plane is there       exists, then connected
//	paused      as before
//	deleting    as before, until the object or the Secret is gone: controllers
//	            need the cluster to end what is in it
package capi

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

const (
	nameLabel    = "cluster.x-k8s.io/cluster-name"
	secretSuffix = "-kubeconfig"
	secretKey    = "value"
)

// Options configure a resolver of Cluster objects.
type Options struct {
	// HubOptions select the Cluster objects, by Namespace and Selector.
	resolver.HubOptions
	// Version is that of Cluster API's objects. Default: v1beta2.
	Version string
	// Ready reports whether a cluster can be contacted, by its Cluster object,
	// which it must not change. Default: [ControlPlaneInitialized].
	Ready func(cluster *unstructured.Unstructured) bool
}

// Clusters resolves the cluster namespace/name by the Cluster object of that
// key, and the Secret name-kubeconfig of the same namespace. One watch follows
// the objects, and one the Secrets that have the label
// cluster.x-k8s.io/cluster-name, as Cluster API writes them. A Secret whose
// label has the name of another cluster does not count. Neither does the Secret
// of a cluster a-user that is controlled by another control plane than the one
// its Cluster names: the providers of EKS and GKE write one with that name and
// label for the users of cluster a. The operator needs the right to list and
// watch both. The errors are those of the options.
func Clusters(hub client.WithWatch, o Options) (*resolver.HubResolver, error) {
	if o.Version == "" {
		o.Version = "v1beta2"
	}
	if o.Ready == nil {
		o.Ready = ControlPlaneInitialized
	}
	named, err := labels.NewRequirement(nameLabel, selection.Exists, nil)
	if err != nil {
		return nil, err
	}

	return resolver.Referenced(hub, resolver.ReferenceOptions{
		HubOptions:     o.HubOptions,
		Kind:           schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: o.Version, Kind: "Cluster"},
		SecretSelector: labels.NewSelector().Add(*named),
		Reference: func(cluster *unstructured.Unstructured) (resolver.SecretReference, error) {
			if !o.Ready(cluster) {
				return resolver.SecretReference{}, resolver.ErrNotReady
			}
			return resolver.SecretReference{Name: cluster.GetName() + secretSuffix}, nil
		},
		Decode: func(cluster *unstructured.Unstructured, secret *corev1.Secret) (resolver.Access, error) {
			return access(cluster, secret, o.HubOptions)
		},
	})
}

// access makes the access of a cluster from its Secret.
func access(
	cluster *unstructured.Unstructured, secret *corev1.Secret, o resolver.HubOptions,
) (resolver.Access, error) {
	if secret.Labels[nameLabel] != cluster.GetName() {
		return resolver.Access{}, fmt.Errorf("%w: this one is another cluster's, by its label %s",
			resolver.ErrSecretNotFound, nameLabel)
	}
	if forUsers(cluster, secret) {
		return resolver.Access{}, fmt.Errorf("%w: this one is for the users of another cluster, by its owner",
			resolver.ErrSecretNotFound)
	}
	data, ok := secret.Data[secretKey]
	if !ok {
		return resolver.Access{}, fmt.Errorf("%w: %s", resolver.ErrKeyMissing, secretKey)
	}

	return resolver.Kubeconfig(data, resolver.KubeconfigOptions{Allow: o.Allow, MaxBytes: o.MaxBytes},
		resolver.ObjectRef{Kind: cluster.GetKind(), Namespace: cluster.GetNamespace(), Name: cluster.GetName()},
		resolver.ObjectRef{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name})
}

// forUsers reports whether a Secret with the name and the label of a cluster
// a-user was written by the control plane of cluster a.
func forUsers(cluster *unstructured.Unstructured, secret *corev1.Secret) bool {
	controller := metav1.GetControllerOf(secret)
	if !strings.HasSuffix(cluster.GetName(), "-user") || controller == nil ||
		!strings.HasSuffix(controller.Kind, "ControlPlane") {
		return false
	}
	kind, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneRef", "kind")
	name, _, _ := unstructured.NestedString(cluster.Object, "spec", "controlPlaneRef", "name")

	return controller.Kind != kind || controller.Name != name
}

// ControlPlaneInitialized reports whether a Cluster says that its control plane
// has been initialized, which it never takes back. Before that, connections
// fail.
func ControlPlaneInitialized(cluster *unstructured.Unstructured) bool {
	return cluster != nil && resolver.ClusterAPIReady("").Ready(cluster)
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
