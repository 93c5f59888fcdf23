// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	fleetcontroller "github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
)

// A controller of the hub reconciles its object for a cluster whenever the
// cluster, or a ConfigMap in it, changes.
func ExampleObjectSource() {
	setup := func(mgr ctrl.Manager, cc *clustercache.ClusterCache, reconciler reconcile.Reconciler) error {
		settings := events.Selection{
			Kinds:   []client.Object{&corev1.ConfigMap{}},
			Watch:   true,
			Options: []client.ListOption{client.MatchingLabels{"settings": "yes"}},
		}
		return ctrl.NewControllerManagedBy(mgr).Named("fleet").
			WatchesRawSource(fleetcontroller.ObjectSource(cc, settings, fleetcontroller.EnqueueClusterOf)).
			WatchesRawSource(fleetcontroller.ClusterSource(cc, fleetcontroller.EnqueueCluster)).
			Complete(reconciler)
	}
	_ = setup
}

// A controller reconciles objects of the remote clusters: a Deployment when its
// generation changes, and when there is an event of a ConfigMap that it owns;
// in a burst of these it waits for the end.
func ExampleObjectSource_owner() {
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	setup := func(mgr ctrl.Manager, cc *clustercache.ClusterCache) error {
		deployments := events.Selection{
			Kinds: []client.Object{&appsv1.Deployment{}}, Watch: true,
			Predicates: []predicate.Predicate{predicate.GenerationChangedPredicate{}},
		}
		owned := events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true}
		quiet := fleetcontroller.ObjectSourceOptions{Debounce: time.Second, MaxDelay: 10 * time.Second}
		return builder.TypedControllerManagedBy[fleetcontroller.Request](mgr).Named("deployments").
			WatchesRawSource(fleetcontroller.ObjectSource(cc, deployments, fleetcontroller.EnqueueObject)).
			WatchesRawSource(fleetcontroller.ObjectSource(cc, owned, fleetcontroller.EnqueueOwner(deployment), quiet)).
			Complete(reconcile.TypedFunc[fleetcontroller.Request](func(ctx context.Context,
				r fleetcontroller.Request) (reconcile.Result, error) {
				d := &appsv1.Deployment{}
				err := cc.Cluster(r.Cluster).Reader().Get(ctx, r.ObjectKey, d)
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}))
	}
	_ = setup
}

// A mapping function that needs more than metadata requests the form that it
// needs.
func ExampleRepresentation() {
	source := func(cc *clustercache.ClusterCache,
		feed events.Selection) *fleetcontroller.TypedObjectSource[fleetcontroller.Request] {
		return fleetcontroller.ObjectSource(cc, feed, func(_ context.Context, cluster client.ObjectKey,
			obj client.Object) []fleetcontroller.Request {
			pod, ok := obj.(*corev1.Pod)
			if !ok || pod.Spec.NodeName == "" {
				return nil
			}
			node := schema.GroupVersionKind{Version: "v1", Kind: "Node"}
			return []fleetcontroller.Request{
				{Cluster: cluster, GVK: node, ObjectKey: client.ObjectKey{Name: pod.Spec.NodeName}}}
		}, fleetcontroller.ObjectSourceOptions{Representation: events.Typed})
	}
	_ = source
}

// A source is added to a running controller, triggered for all objects, and
// removed again.
func ExampleTypedObjectSource() {
	reload := func(ctx context.Context, c controller.TypedController[fleetcontroller.Request],
		cc *clustercache.ClusterCache, feed events.Selection) error {
		s := fleetcontroller.ObjectSource(cc, feed, fleetcontroller.EnqueueObject)
		if err := c.Watch(s); err != nil {
			return err
		}
		s.TriggerAll()
		return s.Close(ctx) // from here on no mapping function runs
	}
	_ = reload
}

// Without controller-runtime, events are a sequence.
func ExampleClusterCache_ObjectEvents() {
	follow := func(ctx context.Context, cc *clustercache.ClusterCache) error {
		received, err := cc.ObjectEvents(ctx,
			events.Selection{Kinds: []client.Object{&corev1.Node{}}, Watch: true})
		if err != nil {
			return err
		}
		for e := range received {
			fmt.Println(e.Cluster, e.Type, e.Object().GetName())
		}
		return nil
	}
	_ = follow
}

// A controller is notified only when clusters were lost.
func ExampleClusterSource() {
	source := func(cc *clustercache.ClusterCache) *fleetcontroller.TypedClusterSource[reconcile.Request] {
		return fleetcontroller.ClusterSource(cc, fleetcontroller.EnqueueCluster, fleetcontroller.ClusterSourceOptions{
			Types: []events.ClusterType{events.Disconnected, events.Removed},
		})
	}
	_ = source
}

// A controller of the hub reconciles ConfigMaps that name clusters. Each run
// declares what it needs, reads it, and reports why it cannot. It is called
// again whenever a read could be answered differently: it requeues nothing.
func ExampleDeclarerSource() {
	placement := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	setup := func(mgr ctrl.Manager, cc *clustercache.ClusterCache) error {
		reconciler := reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			owner := clustercache.Owner{GVK: placement, ObjectKey: r.NamespacedName}
			object := &corev1.ConfigMap{}
			if err := mgr.GetClient().Get(ctx, r.NamespacedName, object); err != nil {
				if apierrors.IsNotFound(err) {
					cc.Drop(owner)
				}
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			cluster := client.ObjectKey{Namespace: "fleet", Name: object.Data["cluster"]}
			target := clustercache.Target{Cluster: cluster, Kind: &appsv1.Deployment{}}
			if _, err := cc.Declare(ctx, owner, target); err != nil {
				return reconcile.Result{}, err
			}

			deployments := &appsv1.DeploymentList{}
			err := cc.Cluster(cluster).Reader().List(ctx, deployments)
			object.Annotations = map[string]string{
				"deployments": strconv.Itoa(len(deployments.Items)),
				"reason":      clustercache.ReasonOf(err), // such as Forbidden, NotServed, Unreachable
			}
			return reconcile.Result{}, mgr.GetClient().Update(ctx, object)
		})
		return ctrl.NewControllerManagedBy(mgr).
			For(&corev1.ConfigMap{}).
			WatchesRawSource(fleetcontroller.DeclarerSource(cc, fleetcontroller.EnqueueDeclarer(placement))).
			Complete(reconciler)
	}
	_ = setup
}

// A request names an object in a cluster.
func ExampleRequest() {
	r := fleetcontroller.Request{
		Cluster:   client.ObjectKey{Namespace: "fleet", Name: "east"},
		GVK:       schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		ObjectKey: client.ObjectKey{Namespace: "default", Name: "web"},
	}
	fmt.Println(r)
	// Output: fleet/east apps/v1 Deployment default/web
}
