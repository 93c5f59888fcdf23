// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/informerpool"
)

// EveryCluster runs a reconciler for the Deployments of every cluster.
func EveryCluster(
	mgr ctrl.Manager, cc *clustercache.ClusterCache, newReconciler func(client.Client) reconcile.Reconciler,
) error {
	return controller.NewControllerManagedBy(mgr, cc).
		For(&appsv1.Deployment{}).
		Owns(&corev1.ConfigMap{}).
		Complete(newReconciler)
}

// AlsoRemote adds what happens in the clusters to a controller of the hub.
func AlsoRemote(mgr ctrl.Manager, cc *clustercache.ClusterCache, r reconcile.Reconciler) error {
	nodes := events.Selection{Kinds: []client.Object{&corev1.Node{}}, Watch: true}
	return ctrl.NewControllerManagedBy(mgr).Named("fleet").
		WatchesRawSource(controller.ObjectSource(cc, nodes, controller.EnqueueClusterOf)).
		WatchesRawSource(controller.ClusterSource(cc, controller.EnqueueCluster)).
		Complete(r)
}

// Placement is an object of the hub that names what it depends on elsewhere.
type Placement struct {
	Owner   clustercache.Owner
	Cluster client.ObjectKey
	Kind    schema.GroupVersionKind
	Name    client.ObjectKey
}

// Needs declares what a placement depends on. It is called on every run of the
// placement's reconciler, and nothing has to be stopped.
func Needs(ctx context.Context, cc *clustercache.ClusterCache, p Placement) error {
	_, err := cc.Declare(ctx, p.Owner, clustercache.Target{
		Cluster: p.Cluster,
		Kind:    clustercache.Kind(p.Kind),
		Options: []client.ListOption{client.InNamespace(p.Name.Namespace)},
	})
	return err
}

// Hold watches Deployments for as long as the caller wants.
func Hold(ctx context.Context, cc *clustercache.ClusterCache, cluster client.ObjectKey) (ready int, err error) {
	watch, err := cc.Cluster(cluster).Watch(ctx, &appsv1.Deployment{}, client.InNamespace("web"))
	if err != nil {
		return 0, err
	}
	defer watch.Release()
	if err := watch.WaitForSync(ctx); err != nil {
		return 0, err
	}

	list := &appsv1.DeploymentList{}
	if err := cc.Cluster(cluster).Reader().List(ctx, list, client.InNamespace("web"),
		clustercache.CacheOnly); err != nil {
		return 0, err
	}
	for _, deployment := range list.Items {
		ready += int(deployment.Status.ReadyReplicas)
	}
	return ready, nil
}

// OnDemand reads a kind that is only known at run time. The first read starts
// an informer; it ends when nothing has read it for Options.IdleTimeout.
func OnDemand(
	ctx context.Context, cc *clustercache.ClusterCache, cluster, key client.ObjectKey, obj client.Object,
) error {
	return cc.Cluster(cluster).Reader().Get(ctx, key, obj, clustercache.AutoWatch)
}

// Follow calls handle with the changes of all ConfigMaps that carry a label,
// without a controller.
func Follow(
	cc *clustercache.ClusterCache, handle func(events.Object),
) (events.Subscription, error) {
	configMaps := events.Selection{
		Kinds:   []client.Object{&corev1.ConfigMap{}},
		Options: []client.ListOption{client.HasLabels{"app"}},
		Watch:   true,
	}
	s, err := cc.Subscribe(configMaps, handle)
	if err != nil {
		return nil, err
	}
	s.Start()
	return s, nil // s.Stop() ends it
}

// Listen adds a handler to one watch.
func Listen(
	ctx context.Context, cc *clustercache.ClusterCache, cluster client.ObjectKey, handler informerpool.Handler,
) (*clustercache.Watch, error) {
	watch, err := cc.Cluster(cluster).Watch(ctx, &corev1.Secret{})
	if err != nil {
		return nil, err
	}
	if _, err := watch.AddEventHandler(handler); err != nil {
		watch.Release()
		return nil, err
	}
	return watch, nil
}

// OneCluster runs a stock controller in one remote cluster.
func OneCluster(
	mgr ctrl.Manager, cc *clustercache.ClusterCache, key client.ObjectKey, r func(client.Client) reconcile.Reconciler,
) error {
	east, err := multicluster.New(cc, multicluster.Options{}).Cluster(key)
	if err != nil {
		return err
	}
	remote := multicluster.ManagerFor(mgr, east)
	return ctrl.NewControllerManagedBy(remote).For(&corev1.Service{}).Complete(r(remote.GetClient()))
}
