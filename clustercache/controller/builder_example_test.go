// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// A ClusterCache of the clusters that Cluster API manages in the manager's
// cluster, with health checks, metrics and a page that shows why a cluster is
// not connected.
func ExampleSetupWithManager() {
	setup := func(mgr manager.Manager) (*clustercache.ClusterCache, error) {
		clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, resolver.HubOptions{})
		if err != nil {
			return nil, err
		}
		cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: clusters, Discover: true})
		if err != nil {
			return nil, err
		}
		return cc, mgr.AddMetricsServerExtraHandler("/debug/clusters", cc.DebugHandler())
	}
	_ = setup // in main
}

// A reconciler written for one cluster works in all of them. For each request
// it gets the client of the request's cluster.
func ExampleNewControllerManagedBy() {
	setup := func(mgr manager.Manager, cc *clustercache.ClusterCache) error {
		return controller.NewControllerManagedBy(mgr, cc).
			For(&corev1.Namespace{}).
			Owns(&networkingv1.NetworkPolicy{}).
			Complete(func(c client.Client) reconcile.Reconciler { return &stockReconciler{c} })
	}
	_ = setup // in main
}

// A reconciler whose requests name the cluster can work across clusters.
func ExampleBuilder_Build() {
	setup := func(mgr manager.Manager, cc *clustercache.ClusterCache) error {
		_, err := controller.NewControllerManagedBy(mgr, cc).For(&corev1.Namespace{}).Build(
			reconcile.TypedFunc[controller.Request](func(ctx context.Context,
				r controller.Request) (reconcile.Result, error) {
				there := 0
				for _, cluster := range cc.Clusters() {
					if cc.Cluster(cluster).Reader().Get(ctx, r.ObjectKey, &corev1.Namespace{}) == nil {
						there++
					}
				}
				ctrl.LoggerFrom(ctx).Info("Namespace", "name", r.Name, "clusters", there)
				return reconcile.Result{}, nil
			}))
		return err
	}
	_ = setup // in main
}

// An event handler that was written for one cluster works in all of them: it is
// made from the client of the event's cluster.
func ExamplePerClusterHandler() {
	setup := func(mgr manager.Manager, cc *clustercache.ClusterCache) error {
		return controller.NewControllerManagedBy(mgr, cc).
			For(&corev1.Namespace{}).
			WatchesHandler(&corev1.Secret{}, controller.PerClusterHandler(cc,
				func(c client.Client) handler.EventHandler {
					return handler.EnqueueRequestsFromMapFunc((&stockReconciler{c}).namespaceOf)
				}), controller.OnlyMetadata, controller.Selecting(client.HasLabels{"example.com/copied"})).
			Complete(func(c client.Client) reconcile.Reconciler { return &stockReconciler{c} })
	}
	_ = setup // in main
}

// stockReconciler knows nothing of clusters.
type stockReconciler struct{ client client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *stockReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, request.NamespacedName, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	fmt.Println(namespace.Name)
	return reconcile.Result{}, nil
}

func (*stockReconciler) namespaceOf(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetNamespace()}}}
}
