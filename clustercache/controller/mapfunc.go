// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

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
// The client reads from the cache wherever an informer has listed, also while
// the cluster is not connected: the event is not delivered once more, so what a
// failed read keeps the function from requesting would be lost. A read that says
// where it is to be answered ([clustercache.ReadMode] and the like) is
// answered there, and others are those of PerCluster's client. Such a read waits
// for the API server, and delays the events of this source in all clusters
// meanwhile: watch the kind that is read, by For, Owns or Watches.
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
		for _, r := range mapFunc(&mappingClient{c, cc.Reader(cluster)})(ctrllog.IntoContext(ctx, log), obj) {
			requests = append(requests, Request{Cluster: cluster, ObjectKey: r.NamespacedName})
		}

		return requests
	}
}

// anyAge lets the cache of a cluster that is not connected answer.
const anyAge = clustercache.MaxStaleness(100 * 365 * 24 * time.Hour)

// mappingClient reads from the cache first, whatever the state of the cluster.
type mappingClient struct {
	client.Client

	cached client.Reader
}

// Get implements client.Reader.
func (c *mappingClient) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	if !slices.ContainsFunc(opts, saysWhere) {
		err := c.cached.Get(ctx, key, obj, slices.Concat(opts, []client.GetOption{clustercache.CacheOnly, anyAge})...)
		if client.IgnoreNotFound(err) == nil {
			return err
		}
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *mappingClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if !slices.ContainsFunc(opts, saysWhere) {
		err := c.cached.List(ctx, list, slices.Concat(opts, []client.ListOption{clustercache.CacheOnly, anyAge})...)
		if err == nil {
			return nil
		}
	}
	return c.Client.List(ctx, list, opts...)
}

// saysWhere reports whether an option of a read decides what may answer it.
func saysWhere[option any](o option) bool {
	switch any(o).(type) {
	case clustercache.ReadMode, clustercache.MaxStaleness, clustercache.NotOlderThan:
		return true
	}
	return false
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
