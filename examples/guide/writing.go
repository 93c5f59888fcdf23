// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
)

// Apply writes what this operator decides, and nothing else.
func Apply(ctx context.Context, cc *clustercache.ClusterCache, cluster, key client.ObjectKey, data string) error {
	remote, err := cc.Cluster(cluster).Client()
	if err != nil {
		return err
	}
	configMap := corev1ac.ConfigMap(key.Name, key.Namespace).WithData(map[string]string{"data": data})
	return remote.Apply(ctx, configMap, client.FieldOwner("example"), client.ForceOwnership)
}

// Withdraw gives up what Apply wrote and leaves the rest of the object alone.
func Withdraw(ctx context.Context, cc *clustercache.ClusterCache, cluster, key client.ObjectKey) error {
	remote, err := cc.Cluster(cluster).Client()
	if err != nil {
		return err
	}
	configMap := &corev1.ConfigMap{}
	if err := remote.Get(ctx, key, configMap, clustercache.ForApply); err != nil {
		return client.IgnoreNotFound(err)
	}
	mine, err := corev1ac.ExtractConfigMap(configMap, "example")
	if err != nil {
		return err
	}
	mine.Data = nil
	return remote.Apply(ctx, mine, client.FieldOwner("example"), client.ForceOwnership)
}
