// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// A cluster is engaged, watched and read. The API server here is a real one.
func Example() {
	if err := readOneCluster(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// Connected fleet/east
	// settings: blue
	// from the cache: true
}

func readOneCluster() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	env, err := testenv.Run(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { _ = env.Stop() }()
	east := client.ObjectKey{Namespace: "fleet", Name: "east"}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"},
		Data: map[string]string{"color": "blue"}}
	if err := env.Clusters[0].Client().Create(ctx, settings); err != nil {
		return err
	}

	r, err := resolver.Static(map[client.ObjectKey]*rest.Config{east: env.Clusters[0].Config()})
	if err != nil {
		return err
	}
	cc, err := clustercache.New(clustercache.Options{Resolver: r})
	if err != nil {
		return err
	}
	stopped := make(chan error, 1)
	go func() { stopped <- cc.Start(ctx) }() // or mgr.Add(cc)
	defer func() {
		cancel()
		if err := <-stopped; err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()

	w, err := cc.Cluster(east).Watch(ctx, &corev1.ConfigMap{})
	if err != nil {
		return err
	}
	defer w.Release()
	for e := range cc.ClusterEvents(ctx) {
		if e.Type == events.Connected {
			fmt.Println(e.Type, e.Cluster)
			break
		}
	}
	if err := w.WaitForSync(ctx); err != nil {
		return err
	}
	var origin clustercache.Origin
	if err := cc.Cluster(east).Reader().Get(ctx, client.ObjectKeyFromObject(settings), settings, &origin); err != nil {
		return err
	}
	fmt.Println("settings:", settings.Data["color"])
	fmt.Println("from the cache:", origin.Cached)
	return nil
}

// A reconciler of ConfigMaps that name clusters declares on every run what its
// object needs. It never stops anything.
func ExampleClusterCache_Declare() {
	reconcile := func(ctx context.Context, hub client.Client, cc *clustercache.ClusterCache,
		req ctrl.Request) (ctrl.Result, error) {
		owner := clustercache.Owner{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), ObjectKey: req.NamespacedName}
		placement := &corev1.ConfigMap{}
		if err := hub.Get(ctx, req.NamespacedName, placement); err != nil {
			if apierrors.IsNotFound(err) {
				cc.Drop(owner)
			}
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		var targets []clustercache.Target
		for name := range placement.Data {
			targets = append(targets, clustercache.Target{
				Cluster: client.ObjectKey{Namespace: "fleet", Name: name},
				Kind:    &corev1.Pod{},
				Options: []client.ListOption{client.InNamespace(req.Namespace),
					client.MatchingLabels{"placed-by": req.Name}},
			})
		}
		if _, err := cc.Declare(ctx, owner, targets...); err != nil {
			return ctrl.Result{}, err
		}
		for _, use := range cc.Declared(owner) {
			if !use.Synced {
				continue // its objects arrive as events
			}
			pods := &corev1.PodList{}
			if err := cc.Cluster(use.Key.Cluster).Reader().List(ctx, pods, client.InNamespace(req.Namespace),
				client.MatchingLabels{"placed-by": req.Name}); err != nil {
				return ctrl.Result{}, err
			}
			fmt.Println(use.Key, len(pods.Items))
		}
		return ctrl.Result{}, nil
	}
	_ = reconcile
}

// An owner that is deleted without a Drop is found by a query to the hub.
func ExampleOwnerExists() {
	setup := func(mgr ctrl.Manager, r resolver.Resolver) error {
		cc, err := clustercache.New(clustercache.Options{
			Resolver: r,
			GC:       clustercache.GC{InUse: clustercache.OwnerExists(mgr.GetAPIReader())},
		})
		if err != nil {
			return err
		}
		return mgr.Add(cc)
	}
	_ = setup
}

// Owners and keys have a short readable form.
func ExampleOwner_String() {
	owner := clustercache.Owner{
		GVK:       schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		ObjectKey: client.ObjectKey{Namespace: "web", Name: "shop"},
	}
	fmt.Println(owner)
	// Output:
	// apps/v1 Deployment web/shop
}
