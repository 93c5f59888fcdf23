// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// PerCluster turns a reconciler that was written for one cluster into one for
// all clusters: it receives the client of the request's cluster, and the name
// of the object. As with a manager's client, the cache answers reads of what is
// watched, and the API server the others.
//
// The function is called for each request and has to be cheap; create outside
// of it what the reconcilers share. A request for a cluster that is unknown, or
// gone, is dropped. One that fails because its cluster is not connected is
// retried after Options.RetryInterval, without the exponential back-off of
// other errors, which would delay requests after the cluster is connected
// again. That another cluster is unknown or not connected is an error like any
// other: controller-runtime counts it, logs it and tries again. The logger in
// the context names the cluster, and [ClusterFromContext] returns it, as
// [ClusterOf] does for the client.
func PerCluster(
	cc *clustercache.ClusterCache, reconciler func(client.Client) reconcile.Reconciler,
) reconcile.TypedReconciler[Request] {
	return WhileOwned(cc, Request.cluster, perCluster(cc, reconciler,
		func(r Request) []any { return []any{"cluster", clustername.Of(r.Cluster)} }))
}

// notOwnerRetry is how long a request waits that failed because of an ownership
// that ended, if no loss of the cluster is known yet.
const notOwnerRetry = time.Second

// WhileOwned returns a reconciler that is called for requests of clusters that
// this replica owns, by the ClusterCache's Options.Sharding. Other requests are
// dropped, since the owner has them as well. Once the cluster of a request is
// lost, the context of the call ends, with the cause
// [clustercache.ErrNotOwner], and its result has no effect: the next owner
// reconciles all objects. That another replica owns another cluster, to which
// the reconciler wrote, is an error like any other. [PerCluster] and [Builder]
// include it.
func WhileOwned[request comparable](
	cc *clustercache.ClusterCache, cluster func(request) client.ObjectKey,
	reconciler reconcile.TypedReconciler[request],
) reconcile.TypedReconciler[request] {
	requireAll("WhileOwned", map[string]bool{
		"cc":         cc != nil,
		"cluster":    cluster != nil,
		"reconciler": reconciler != nil,
	})
	return reconcile.TypedFunc[request](func(ctx context.Context, r request) (reconcile.Result, error) {
		key := cluster(r)
		working, done, err := cc.Cluster(key).Work(ctx)
		if err != nil {
			ctrllog.FromContext(ctx).V(1).Info("Request dropped", "cause", err.Error())
			return reconcile.Result{}, nil
		}
		defer done()

		result, err := reconciler.Reconcile(working, r)
		switch {
		case errors.Is(context.Cause(working), clustercache.ErrNotOwner):
			return reconcile.Result{}, nil
		case says(err, key, clustercache.ErrNotOwner).alone():
			return reconcile.Result{RequeueAfter: notOwnerRetry}, nil
		}

		return result, err
	})
}

// clusterKey is the context key of the cluster that a reconciler works on.
type clusterKey struct{}

// ClusterFromContext returns the cluster of the request that a reconciler of
// [PerCluster], or of [Builder].Complete, was called for, or of the object that
// a handler of [Builder].WatchesHandler was called for, and false in any other
// context.
func ClusterFromContext(ctx context.Context) (client.ObjectKey, bool) {
	cluster, ok := ctx.Value(clusterKey{}).(client.ObjectKey)
	return cluster, ok
}

// clusterClient is the client of a cluster that a factory of this package gets.
type clusterClient struct {
	client.Client

	cluster client.ObjectKey
}

func (c clusterClient) ofCluster() client.ObjectKey { return c.cluster }

// ClusterOf returns the cluster of a client that [PerCluster],
// [Builder].Complete or [PerClusterHandler] has given to a function, and false
// for any other client. So the function can give each reconciler what belongs
// to its cluster, and a function that needs only the client stays as it is:
//
//	Complete(func(c client.Client) reconcile.Reconciler {
//		cluster, _ := controller.ClusterOf(c)
//		return &reconciler{client: c, recorder: recorder.For(cluster)}
//	})
func ClusterOf(c client.Client) (client.ObjectKey, bool) {
	named, ok := c.(interface{ ofCluster() client.ObjectKey })
	if !ok {
		return client.ObjectKey{}, false
	}
	return named.ofCluster(), true
}

// perCluster is PerCluster with the logger's values for a request.
func perCluster(
	cc *clustercache.ClusterCache, reconciler func(client.Client) reconcile.Reconciler, values func(Request) []any,
) reconcile.TypedReconciler[Request] {
	requireAll("PerCluster", map[string]bool{"cc": cc != nil, "reconciler": reconciler != nil})
	again := cc.Options().RetryInterval
	return reconcile.TypedFunc[Request](func(ctx context.Context, r Request) (reconcile.Result, error) {
		c, err := cc.Cluster(r.Cluster).Client()
		var result reconcile.Result
		if err == nil {
			ctx = context.WithValue(ctx, clusterKey{}, r.Cluster)
			ctx = ctrllog.IntoContext(ctx, ctrllog.FromContext(ctx).WithValues(values(r)...))
			c = clusterClient{c, r.Cluster}
			result, err = reconciler(c).Reconcile(ctx, reconcile.Request{NamespacedName: r.ObjectKey})
		}
		unknown := says(err, r.Cluster, clustercache.ErrUnknownCluster)
		switch {
		// Nothing follows a request that is dropped: the error has to name its
		// cluster. If another one does not, the next attempt finds it unknown.
		case unknown.alone() && unknown.named && !errors.Is(err, clustercache.ErrNotStarted):
			return reconcile.Result{}, nil
		case says(err, r.Cluster, clustercache.ErrNotConnected).alone():
			ctrllog.FromContext(ctx).V(1).Info("Cluster is not connected; trying again later", "after", again)
			return reconcile.Result{RequeueAfter: again}, nil
		}

		return result, err
	})
}

// requireAll panics with the names of the arguments of a function that are nil.
func requireAll(function string, given map[string]bool) {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !given[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		panic(fmt.Sprintf("controller: %s: required: %s", function, strings.Join(missing, ", ")))
	}
}
