// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// EnqueueFromMapFunc returns an [ObjectMapFunc], for [Builder].Watches, of a
// mapping function that was written for one cluster, as handler's
// EnqueueRequestsFromMapFunc takes it. mapFunc makes it from the client of the
// object's cluster, for each call, and has to be cheap:
//
//	Watches(&corev1.ConfigMap{}, controller.EnqueueFromMapFunc(cc,
//		func(c client.Client) handler.MapFunc { return (&reconciler{client: c}).usersOf }))
//
// The requests are for objects of the same cluster, and have no kind: a Builder
// adds the one given to For. The logger in the context names the cluster, and
// [ClusterFromContext] returns it. For a cluster that is unknown, or gone,
// mapFunc is not called.
//
// The client reads as that of PerCluster does. A read that the cache does not
// answer waits for the API server, and delays the events of this source in all
// clusters meanwhile: watch the kind that is read, by For, Owns or Watches.
// Until its first list is complete, the API server answers;
// [clustercache.CacheOnly], as an option of the read, fails instead.
func EnqueueFromMapFunc(
	cc *clustercache.ClusterCache, mapFunc func(client.Client) handler.MapFunc,
) ObjectMapFunc[Request] {
	requireAll("EnqueueFromMapFunc", map[string]bool{"cc": cc != nil, "mapFunc": mapFunc != nil})
	return func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []Request {
		log := ctrllog.FromContext(ctx).WithValues("cluster", clustername.Of(cluster))
		c, err := cc.Client(cluster)
		if err != nil {
			log.V(1).Info("Event dropped", "cause", err.Error())
			return nil
		}
		ctx = context.WithValue(ctx, clusterKey{}, cluster)
		var requests []Request
		for _, r := range mapFunc(c)(ctrllog.IntoContext(ctx, log), obj) {
			requests = append(requests, Request{Cluster: cluster, ObjectKey: r.NamespacedName})
		}

		return requests
	}
}

// ofKind is mapping, with a kind in the requests that have none: what is
// requested by name alone is then the same request as that of the object.
func ofKind(gvk schema.GroupVersionKind, mapping ObjectMapFunc[Request]) ObjectMapFunc[Request] {
	return func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []Request {
		requests := slices.Clone(mapping(ctx, cluster, obj)) // it may keep its own
		for i := range requests {
			if requests[i].GVK.Empty() {
				requests[i].GVK = gvk
			}
		}
		return requests
	}
}
