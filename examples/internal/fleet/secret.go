// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Register creates the Secret with the kubeconfig of a remote cluster in the
// hub, and its namespace if that does not exist.
func Register(ctx context.Context, hub client.Client, cluster client.ObjectKey, kubeconfig []byte) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}
	if err := hub.Create(ctx, namespace); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	return hub.Create(ctx, KubeconfigSecret(cluster, kubeconfig))
}

// Unregister deletes the Secret that Register created, if it exists.
func Unregister(ctx context.Context, hub client.Client, cluster client.ObjectKey) error {
	err := hub.Delete(ctx, KubeconfigSecret(cluster, nil))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
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
