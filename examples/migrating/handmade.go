// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// Seen receives the ConfigMaps.
type Seen func(cluster string, configMap *corev1.ConfigMap)

// request is a type that the hand-made form has to define for itself.
type request struct {
	cluster string
	object  client.ObjectKey
}

// HandMade has a cluster.Cluster for each remote cluster.
func HandMade(mgr ctrl.Manager, remotes map[string]*rest.Config, seen Seen) error {
	clusters := map[string]cluster.Cluster{}
	b := builder.TypedControllerManagedBy[request](mgr).Named("handmade")
	for name, config := range remotes {
		remote, err := cluster.New(config)
		if err != nil {
			return err // one unreachable remote cluster keeps the operator from starting
		}
		if err := mgr.Add(remote); err != nil {
			return err
		}
		clusters[name] = remote
		b.WatchesRawSource(source.TypedKind(remote.GetCache(), &corev1.ConfigMap{},
			handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *corev1.ConfigMap) []request {
				return []request{{cluster: name, object: client.ObjectKeyFromObject(o)}}
			})))
	}
	return b.Complete(reconcile.TypedFunc[request](func(ctx context.Context, r request) (reconcile.Result, error) {
		configMap := &corev1.ConfigMap{}
		if err := clusters[r.cluster].GetClient().Get(ctx, r.object, configMap); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		seen(r.cluster, configMap)
		return reconcile.Result{}, nil
	}))
}

// Shared does the same with a ClusterCache. Remote clusters may be unreachable
// at any time.
func Shared(mgr ctrl.Manager, remotes map[client.ObjectKey]*rest.Config, seen Seen) error {
	clusters, err := resolver.Static(remotes)
	if err != nil {
		return err
	}
	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: clusters, Discover: true})
	if err != nil {
		return err
	}
	_, err = controller.NewControllerManagedBy(mgr, cc).For(&corev1.ConfigMap{}).
		Build(reconcile.TypedFunc[controller.Request](func(
			ctx context.Context, r controller.Request,
		) (reconcile.Result, error) {
			configMap := &corev1.ConfigMap{}
			if err := cc.Cluster(r.Cluster).Reader().Get(ctx, r.ObjectKey, configMap); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			seen(r.Cluster.Name, configMap)
			return reconcile.Result{}, nil
		}))
	return err
}
