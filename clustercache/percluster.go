// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// PerCluster makes a reconciler that was written for one cluster one of all
// clusters: it is given the client of the cluster that a request is about, and
// the name of the object. Reads of what is watched are answered from the cache,
// as those of a manager's client are, and others by the API server.
//
// The function is called for each request and has to be cheap; what the
// reconcilers share belongs outside. A request of a cluster that is unknown, or
// gone, is dropped; one that fails because the cluster is not connected is
// tried again after Options.RetryInterval, without the growing back-off of
// other errors, which would hide that the cluster is back. The logger in the
// context names the cluster, and [ClusterFromContext] returns it.
func PerCluster(cc *ClusterCache, reconciler func(client.Client) reconcile.Reconciler) reconcile.TypedReconciler[Request] {
	return perCluster(cc, reconciler, func(r Request) []any { return []any{"cluster", clusterName(r.Cluster)} })
}

// clusterKey is where a context has the cluster that a reconciler works on.
type clusterKey struct{}

// ClusterFromContext returns the cluster of the request that a reconciler of
// [PerCluster], or of [Builder].Complete, was called for; false elsewhere.
func ClusterFromContext(ctx context.Context) (client.ObjectKey, bool) {
	cluster, ok := ctx.Value(clusterKey{}).(client.ObjectKey)
	return cluster, ok
}

// perCluster is PerCluster with what the logger is to say about a request.
func perCluster(
	cc *ClusterCache, reconciler func(client.Client) reconcile.Reconciler, values func(Request) []any,
) reconcile.TypedReconciler[Request] {
	return reconcile.TypedFunc[Request](func(ctx context.Context, r Request) (reconcile.Result, error) {
		c, err := cc.Client(r.Cluster)
		var result reconcile.Result
		if err == nil {
			ctx = context.WithValue(ctx, clusterKey{}, r.Cluster)
			ctx = ctrllog.IntoContext(ctx, ctrllog.FromContext(ctx).WithValues(values(r)...))
			result, err = reconciler(c).Reconcile(ctx, reconcile.Request{NamespacedName: r.ObjectKey})
		}
		switch {
		case errors.Is(err, ErrUnknownCluster) && !errors.Is(err, ErrNotStarted):
			return reconcile.Result{}, nil
		case errors.Is(err, ErrNotConnected):
			ctrllog.FromContext(ctx).V(1).Info("Cluster is not connected; trying again later", "after", cc.options.RetryInterval)
			return reconcile.Result{RequeueAfter: cc.options.RetryInterval}, nil
		}
		return result, err
	})
}
