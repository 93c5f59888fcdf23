// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Readme is the program of the README: a controller in the hub that reconciles the ConfigMaps of all clusters that
// Cluster API knows there. It runs until it is interrupted.
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
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
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

// request is an object of a cluster.
type request struct{ cluster, object client.ObjectKey }

func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{})
	if err != nil {
		return err
	}
	hub, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return err
	}
	clusters, err := resolver.ClusterAPI(hub, resolver.HubOptions{})
	if err != nil {
		return err
	}
	cc, err := clustercache.New(clustercache.Options{Resolver: clusters, Discover: true, Logger: mgr.GetLogger()})
	if err != nil {
		return err
	}
	if err := mgr.Add(cc); err != nil {
		return err
	}
	// One informer of ConfigMaps in each cluster that there is, or will be.
	feed := clustercache.ObjectFeed{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true}
	source := clustercache.ObjectSource(cc, feed, func(_ context.Context, cluster client.ObjectKey, obj client.Object) []request {
		return []request{{cluster, client.ObjectKeyFromObject(obj)}}
	})
	reconciler := reconcile.TypedFunc[request](func(ctx context.Context, r request) (reconcile.Result, error) {
		configMap := &corev1.ConfigMap{}
		if err := cc.Reader(r.cluster).Get(ctx, r.object, configMap); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		ctrl.LoggerFrom(ctx).Info("Seen", "cluster", r.cluster, "object", r.object, "keys", len(configMap.Data))
		return reconcile.Result{}, nil
	})
	if err := builder.TypedControllerManagedBy[request](mgr).Named("fleet").WatchesRawSource(source).Complete(reconciler); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
