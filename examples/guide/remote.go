// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/remote"
)

// Deployed records an event about an object of a cluster, in that cluster.
func Deployed(recorder *remote.Recorder, cluster client.ObjectKey, obj client.Object, version string) {
	recorder.For(cluster).Eventf(obj, nil, corev1.EventTypeNormal, "Deployed", "Deploy", "version %s", version)
}

// Keep keeps an object until this operator has seen its deletion.
func Keep(
	ctx context.Context, cc *clustercache.ClusterCache, cluster client.ObjectKey, obj client.Object, finalizer string,
) error {
	c, err := cc.Cluster(cluster).Client()
	if err != nil {
		return err
	}
	if obj.GetDeletionTimestamp().IsZero() {
		_, err = remote.AddFinalizer(ctx, c, obj, finalizer)
		return err
	}
	_, err = remote.RemoveFinalizer(ctx, c, obj, finalizer)
	return err
}
