// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Readme is the program of the README: a controller in the hub that reconciles
// the ConfigMaps of all clusters that Cluster API knows there. It runs until it
// is interrupted.
//
//	go run ./examples/readme -kubeconfig FILE
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

func main() {
	flag.Parse()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		ctrl.Log.Error(err, "Stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{})
	if err != nil {
		return err
	}
	if err := setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func setup(mgr ctrl.Manager) error {
	// Which clusters there are, and how they are reached: here, by the Secrets
	// that Cluster API writes.
	clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, resolver.HubOptions{})
	if err != nil {
		return err
	}
	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: clusters, Discover: true})
	if err != nil {
		return err
	}
	reconciler := reconcile.TypedFunc[controller.Request](func(
		ctx context.Context, r controller.Request,
	) (reconcile.Result, error) {
		configMap := &corev1.ConfigMap{}
		if err := cc.Cluster(r.Cluster).Reader().Get(ctx, r.ObjectKey, configMap); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		ctrl.LoggerFrom(ctx).Info("Seen", "cluster", r.Cluster, "name", r.Name, "keys", len(configMap.Data))
		return reconcile.Result{}, nil
	})
	// One informer of ConfigMaps in each cluster that there is, or will be.
	_, err = controller.NewControllerManagedBy(mgr, cc).For(&corev1.ConfigMap{}).Build(reconciler)
	return err
}
