// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
)

// This file and reconciler.go are what your own operator needs. They import
// only public packages.

// userAgent is the user agent that the remote API servers see.
const userAgent = "fleetcache-quickstart"

// These values speed up the demonstration: a dead cluster is noticed within the
// probe bound, about ten seconds if it does not answer and three if its port is
// closed. The defaults (10 s, 5 s, 3 failures) cost a tenth of the requests and
// notice within three quarters of a minute; keep them unless you need better.
const (
	probeInterval    = time.Second
	probeTimeout     = 2 * time.Second
	failureThreshold = 3
	probeBound       = failureThreshold*(probeInterval+probeTimeout) + probeInterval
	// reconnectEvery caps the time between two attempts to reach a cluster that
	// is down (default 30 s), and the time between two queries of the resolver
	// for access that does not exist yet (default 10 s).
	reconnectEvery = 2 * time.Second
	// linger is how long an informer outlives its last user, so that using it
	// again soon costs nothing (default 30 s).
	linger = 2 * time.Second
)

// operator is a controller-runtime manager in the hub with a ClusterCache and a
// reconciler for objects in all clusters.
type operator struct {
	manager  manager.Manager
	clusters *clustercache.ClusterCache
}

// newOperator returns an operator that runs in the hub, reads the clusters that
// the resolver lists, and reconciles the objects that the selection selects in
// them. It does no I/O.
func newOperator(
	hub *rest.Config, clusters resolver.Resolver, selection events.Selection,
	report func(observation), log logr.Logger,
) (*operator, error) {
	mgr, err := ctrl.NewManager(hub, ctrl.Options{
		Logger:  log,
		Metrics: metricsserver.Options{BindAddress: "0"}, // no port is opened
	})
	if err != nil {
		return nil, err
	}
	cc, err := clustercache.New(clustercache.Options{
		Resolver:         clusters,
		Discover:         true,
		Scheme:           mgr.GetScheme(),
		Logger:           log,
		UserAgent:        userAgent,
		ProbeInterval:    probeInterval,
		ProbeTimeout:     probeTimeout,
		FailureThreshold: failureThreshold,
		MaxBackoff:       reconnectEvery,
		RetryInterval:    reconnectEvery,
		Informers:        informerpool.Options{Linger: linger, MaxBackoff: reconnectEvery},
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(cc); err != nil {
		return nil, err
	}
	err = builder.TypedControllerManagedBy[request](mgr).Named("fleet").
		WatchesRawSource(controller.ClusterSource(cc, clusterRequests)).
		WatchesRawSource(controller.ObjectSource(cc, selection, objectRequests)).
		Complete(&reconciler{clusters: cc, report: report})
	if err != nil {
		return nil, err
	}
	return &operator{manager: mgr, clusters: cc}, nil
}

// run runs the operator until ctx ends, and returns when everything has
// stopped.
func (o *operator) run(ctx context.Context) error { return o.manager.Start(ctx) }

// clusterAPI resolves the clusters that Cluster API describes in a namespace of
// the hub, by its kubeconfig Secrets.
func clusterAPI(hub *rest.Config, namespace string, log logr.Logger) (resolver.Resolver, error) {
	reader, err := client.NewWithWatch(hub, client.Options{})
	if err != nil {
		return nil, err
	}
	return resolver.ClusterAPI(reader, resolver.HubOptions{Namespace: namespace, Logger: log})
}
