// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleetcache/fleetcache/clustercache/internal/fairqueue"
)

// FairQueue returns a value for NewQueue of a controller's options. The queue
// is controller-runtime's priority queue, in which clusters take turns, so that
// ten thousand requests of one cluster do not delay one of another; and at most
// maxPerCluster requests of a cluster are reconciled at a time, so that a slow
// cluster does not occupy all workers. That should be less than
// MaxConcurrentReconciles; less than 1 means 1.
//
//	controller.NewControllerManagedBy(mgr, cc).
//		For(&appsv1.Deployment{}).
//		WithOptions(runtimecontroller.TypedOptions[controller.Request]{
//			MaxConcurrentReconciles: 20,
//			NewQueue:                controller.FairQueue(4),
//		})
//
// A request waits for at most maxPerCluster others of each cluster and
// priority. The workqueue's metrics count, of each cluster and priority, as
// many of the requests that wait.
func FairQueue(maxPerCluster int) func(
	name string, limiter workqueue.TypedRateLimiter[Request],
) workqueue.TypedRateLimitingInterface[Request] {
	return FairQueueOf(maxPerCluster, Request.cluster)
}

// FairQueueOf is [FairQueue] for requests of any type, such as a
// reconcile.Request for the object of the hub that describes a cluster. cluster
// returns the cluster of a request; it must be quick, and always return the same
// for a request. It panics if cluster is nil.
func FairQueueOf[request comparable](maxPerCluster int, cluster func(request) client.ObjectKey) func(
	name string, limiter workqueue.TypedRateLimiter[request],
) workqueue.TypedRateLimitingInterface[request] {
	requireAll("FairQueueOf", map[string]bool{"cluster": cluster != nil})
	return func(
		name string, limiter workqueue.TypedRateLimiter[request],
	) workqueue.TypedRateLimitingInterface[request] {
		inner := priorityqueue.New(name, func(o *priorityqueue.Opts[request]) { o.RateLimiter = limiter })
		return fairqueue.New(inner, maxPerCluster, cluster)
	}
}
