// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// PerClusterHandler turns an event handler that was written for one cluster,
// such as those of controller-runtime's package handler, into one for all
// clusters, for [Builder].WatchesHandler. newHandler makes it from the client
// of the object's cluster, for each event, and has to be cheap:
//
//	WatchesHandler(&corev1.ConfigMap{}, controller.PerClusterHandler(cc,
//		func(c client.Client) handler.EventHandler {
//			return handler.EnqueueRequestsFromMapFunc((&reconciler{client: c}).usersOf)
//		}))
//
// Its requests are for objects of the same cluster, and have no kind: a Builder
// adds the one given to For. Its queue is the controller's: with delays, rate
// limits and, where the controller's has them, priorities. A handler for
// objects of a Go type fits a kind that is named by an object of the type. The
// logger in the context names the cluster, and [ClusterFromContext] returns it.
// For a cluster that is unknown, or gone, newHandler is not called.
//
// The client reads from the cache wherever an informer has listed, also while
// the cluster is not connected: the event is not delivered once more, so what a
// failed read keeps the handler from requesting would be lost. A read that says
// where it is to be answered ([clustercache.ReadMode] and the like) is
// answered there, and others are those of PerCluster's client. Such a read waits
// for the API server, and delays the events of this source in all clusters
// meanwhile: watch the kind that is read, by For, Owns or Watches.
func PerClusterHandler[object client.Object](
	cc *clustercache.ClusterCache,
	newHandler func(client.Client) handler.TypedEventHandler[object, reconcile.Request],
) handler.TypedEventHandler[client.Object, Request] {
	requireAll("PerClusterHandler", map[string]bool{"cc": cc != nil, "newHandler": newHandler != nil})
	return &perClusterHandler[object]{cc: cc, newHandler: newHandler}
}

// perClusterHandler calls the handlers that a function makes.
type perClusterHandler[object client.Object] struct {
	cc         *clustercache.ClusterCache
	newHandler func(client.Client) handler.TypedEventHandler[object, reconcile.Request]
}

func (*perClusterHandler[object]) objectType() reflect.Type { return reflect.TypeFor[object]() }

// ofAll is the queue of a controller of all clusters.
type ofAll = workqueue.TypedRateLimitingInterface[Request]

// ofOne is the queue of a controller of one cluster.
type ofOne = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Create implements handler.TypedEventHandler.
func (h *perClusterHandler[object]) Create(ctx context.Context, e event.CreateEvent, queue ofAll) {
	if to, ctx, queue := h.of(ctx, queue); to != nil {
		to.Create(ctx, typedCreate[object](e), queue)
	}
}

// Update implements handler.TypedEventHandler.
func (h *perClusterHandler[object]) Update(ctx context.Context, e event.UpdateEvent, queue ofAll) {
	if to, ctx, queue := h.of(ctx, queue); to != nil {
		to.Update(ctx, typedUpdate[object](e), queue)
	}
}

// Delete implements handler.TypedEventHandler.
func (h *perClusterHandler[object]) Delete(ctx context.Context, e event.DeleteEvent, queue ofAll) {
	if to, ctx, queue := h.of(ctx, queue); to != nil {
		to.Delete(ctx, typedDelete[object](e), queue)
	}
}

// Generic implements handler.TypedEventHandler.
func (h *perClusterHandler[object]) Generic(ctx context.Context, e event.GenericEvent, queue ofAll) {
	if to, ctx, queue := h.of(ctx, queue); to != nil {
		to.Generic(ctx, typedGeneric[object](e), queue)
	}
}

// of returns the handler of the cluster that a context names, with what it is
// to be called with, or nil.
func (h *perClusterHandler[object]) of(ctx context.Context, queue ofAll) (
	handler.TypedEventHandler[object, reconcile.Request], context.Context, ofOne,
) {
	cluster, known := ClusterFromContext(ctx)
	if !known {
		ctrllog.FromContext(ctx).Error(errNoCluster, "Event dropped")
		return nil, nil, nil
	}
	log := ctrllog.FromContext(ctx).WithValues("cluster", clustername.Of(cluster))
	c, err := h.cc.Cluster(cluster).Client()
	if err != nil {
		log.V(1).Info("Event dropped", "cause", err.Error())
		return nil, nil, nil
	}
	to := h.newHandler(&mappingClient{clusterClient{c, cluster}, h.cc.Cluster(cluster).Reader()})
	if to == nil {
		log.Error(errNoHandler, "Event dropped")
	}
	return to, ctrllog.IntoContext(ctx, log), newRequestQueue(queue, func(r reconcile.Request) Request {
		return Request{Cluster: cluster, ObjectKey: r.NamespacedName}
	})
}

var (
	errNoCluster = errors.New("no cluster in the context: PerClusterHandler is for Builder.WatchesHandler")
	errNoHandler = errors.New("the function given to PerClusterHandler returned nil")
)

// anyAge lets the cache of a cluster that is not connected answer.
const anyAge = clustercache.MaxStaleness(100 * 365 * 24 * time.Hour)

// mappingClient reads from the cache first, whatever the state of the cluster.
type mappingClient struct {
	clusterClient

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
