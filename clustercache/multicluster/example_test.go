// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// A controller written for one cluster runs on a remote one. The API servers
// here are real.
func Example() {
	if err := controlRemote(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// settings: blue
}

func controlRemote() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	env, err := testenv.Run(ctx, 2)
	if err != nil {
		return err
	}
	defer func() { _ = env.Stop() }()
	hub, remote := env.Clusters[0], env.Clusters[1]
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"},
		Data: map[string]string{"color": "blue"}}
	if err := remote.Client().Create(ctx, settings); err != nil {
		return err
	}
	east := client.ObjectKey{Namespace: "fleet", Name: "east"}
	r, err := resolver.Static(map[client.ObjectKey]*rest.Config{east: remote.Config()})
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(hub.Config(), ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}

	cc, err := clustercache.New(clustercache.Options{Resolver: r})
	if err != nil {
		return err
	}
	if err := mgr.Add(cc); err != nil {
		return err
	}
	cl, err := multicluster.New(cc, multicluster.Options{}).Cluster(east)
	if err != nil {
		return err
	}
	view := multicluster.ManagerFor(mgr, cl)
	err = ctrl.NewControllerManagedBy(view).For(&corev1.ConfigMap{}).Named("settings").
		Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			found := &corev1.ConfigMap{}
			if err := view.GetClient().Get(ctx, req.NamespacedName, found); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			if found.Name == "settings" {
				fmt.Println("settings:", found.Data["color"])
				cancel()
			}
			return reconcile.Result{}, nil
		}))
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// The names used by multicluster-runtime for the types of its Provider.
type (
	ClusterName     string
	AwareOfClusters interface {
		multicluster.Aware[ClusterName]
	}
)

// A program that uses multicluster-runtime replaces its provider by this one.
func ExampleNewProvider() {
	var errClusterNotFound error // multicluster.ErrClusterNotFound
	setup := func(mgr ctrl.Manager, r resolver.Resolver) (*multicluster.Provider[ClusterName, AwareOfClusters],
		error) {
		cc, err := clustercache.New(clustercache.Options{Resolver: r, Discover: true})
		if err != nil {
			return nil, err
		}
		clusters := multicluster.New(cc, multicluster.Options{Logger: mgr.GetLogger()})
		p := multicluster.NewProvider[ClusterName, AwareOfClusters](clusters,
			multicluster.ProviderOptions{NotFound: errClusterNotFound})
		return p, mgr.Add(cc)
	}
	_ = setup
}
