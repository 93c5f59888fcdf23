// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Create creates objects of a namespace, and the namespace if it does not exist.
func Create(ctx context.Context, to client.Client, namespace string, objects ...client.Object) error {
	in := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := to.Create(ctx, in); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	for _, o := range objects {
		if err := to.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// Register creates the Secret with the kubeconfig of a remote cluster in the
// hub, and its namespace if that does not exist.
func Register(ctx context.Context, hub client.Client, cluster client.ObjectKey, kubeconfig []byte) error {
	return Create(ctx, hub, cluster.Namespace, KubeconfigSecret(cluster, kubeconfig))
}

// KubeconfigSecret returns the Secret that Cluster API writes for a cluster
// that it has created.
func KubeconfigSecret(cluster client.ObjectKey, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace,
			Name:      cluster.Name + "-kubeconfig",
			Labels:    map[string]string{"cluster.x-k8s.io/cluster-name": cluster.Name},
		},
		Type: "cluster.x-k8s.io/secret",
		Data: map[string][]byte{"value": kubeconfig},
	}
}
