// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// grace is how long a watch is kept after the last Pipeline released it. It is
// shorter than the default, of 30 s, for the sake of the demonstration.
const grace = time.Second

// newOperator returns an operator that runs in the hub, and its caches. It does
// no I/O.
func newOperator(hub *rest.Config, log logr.Logger) (manager.Manager, *clustercache.ClusterCache, error) {
	scheme := runtime.NewScheme()
	addToScheme(scheme)
	mgr, err := ctrl.NewManager(hub, ctrl.Options{
		Scheme:  scheme,
		Logger:  log,
		Metrics: metricsserver.Options{BindAddress: "0"}, // no port is opened
	})
	if err != nil {
		return nil, nil, err
	}
	access, err := clusters(hub, log)
	if err != nil {
		return nil, nil, err
	}
	cc, err := clustercache.New(clustercache.Options{
		Resolver: access,
		Scheme:   scheme,
		Logger:   log,
		GC:       clustercache.GC{Grace: grace, InUse: clustercache.OwnerExists(mgr.GetAPIReader())},
	})
	if err != nil {
		return nil, nil, err
	}
	if err := mgr.Add(cc); err != nil {
		return nil, nil, err
	}

	return mgr, cc, ctrl.NewControllerManagedBy(mgr).
		For(&Pipeline{}).
		WatchesRawSource(controller.DeclarerSource(cc, controller.EnqueueDeclarer(pipelineKind))).
		Complete(&reconciler{hub: mgr.GetClient(), clusters: cc})
}

// clusters resolves the hub itself, as the cluster without a name, and those
// that Cluster API describes in it by kubeconfig Secrets.
func clusters(hub *rest.Config, log logr.Logger) (resolver.Resolver, error) {
	itself, err := resolver.Static(map[resolver.Cluster]*rest.Config{{}: hub})
	if err != nil {
		return nil, err
	}
	reader, err := client.NewWithWatch(hub, client.Options{})
	if err != nil {
		return nil, err
	}
	remotes, err := resolver.ClusterAPI(reader, resolver.HubOptions{Logger: log})
	if err != nil {
		return nil, err
	}
	return resolver.Chain(itself, remotes), nil
}
