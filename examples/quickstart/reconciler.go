// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// retryUnreachable is when to retry an object that could not be read because
// its cluster is down.
const retryUnreachable = 5 * time.Second

// request names what to reconcile: an object of a cluster, or the cluster
// itself if kind is empty. Like any request of a controller it names the
// object, not the event.
type request struct {
	cluster client.ObjectKey
	kind    schema.GroupVersionKind
	object  client.ObjectKey
}

// observation is the result of a reconciliation.
type observation struct {
	request
	// object is nil if it does not exist.
	object *unstructured.Unstructured
	// status is that of the cluster.
	status status.Cluster
}

// objectRequests is called for every existing object, and for every change. It
// does not decode the object.
func objectRequests(_ context.Context, cluster client.ObjectKey, obj client.Object) []request {
	return []request{{
		cluster: cluster,
		kind:    obj.GetObjectKind().GroupVersionKind(),
		object:  client.ObjectKeyFromObject(obj),
	}}
}

// clusterRequests is called for every existing cluster, and for every change of
// one.
func clusterRequests(_ context.Context, event events.Cluster) []request {
	return []request{{cluster: event.Cluster}}
}

// reconciler reads the requested object, and reports it. Yours would do its
// work there.
type reconciler struct {
	clusters *clustercache.ClusterCache
	report   func(observation)
}

var _ reconcile.TypedReconciler[request] = (*reconciler)(nil)

// Reconcile implements reconcile.TypedReconciler.
func (r *reconciler) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	status, err := r.clusters.Cluster(req.cluster).Status()
	if errors.Is(err, clustercache.ErrUnknownCluster) {
		return reconcile.Result{}, nil // it was removed, and its objects with it
	}
	if err != nil || req.kind.Empty() {
		r.report(observation{request: req, status: status})
		return reconcile.Result{}, err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(req.kind)
	err = r.clusters.Cluster(req.cluster).Reader().Get(ctx, req.object, obj)
	switch {
	case err == nil:
		r.report(observation{request: req, object: obj, status: status})
	case apierrors.IsNotFound(err):
		r.report(observation{request: req, status: status})
	case errors.Is(err, clustercache.ErrNotConnected):
		// The object's state is unknown for now. That is no failure of the
		// reconciler, and no reason to back off.
		return reconcile.Result{RequeueAfter: retryUnreachable}, nil
	default:
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}
