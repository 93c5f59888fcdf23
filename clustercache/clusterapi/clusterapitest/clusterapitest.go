// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package clusterapitest has what the test suites of Cluster API and its
// providers need beyond the interface ClusterCache. There they assert methods
// that Cluster API's own has for tests:
//
//	clusterCache, err := clusterapitest.SetupWithManager(ctx, mgr, options, controllerOptions)
//	...
//	clusterCache.(interface{ Shutdown() }).Shutdown()
package clusterapitest

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache/clusterapi"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// retryInterval is what Cluster API's suites set.
const retryInterval = 2 * time.Second

// ClusterCache is a clusterapi.ClusterCache with the methods for tests.
type ClusterCache struct {
	*clusterapi.ClusterCache

	hub      client.Reader
	shutdown context.CancelFunc
}

var (
	_ capi.ClusterCache    = (*ClusterCache)(nil)
	_ reconcile.Reconciler = (*ClusterCache)(nil)
)

// SetupWithManager is that of clusterapi, with attempts to connect that follow
// each other every two seconds. The result is a [*ClusterCache], as the
// interface that suites assert its methods of.
func SetupWithManager(
	ctx context.Context, mgr manager.Manager, options capi.Options, controllerOptions controller.Options,
	change ...func(*clusterapi.Settings),
) (capi.ClusterCache, error) {
	running, shutdown := context.WithCancel(context.WithoutCancel(ctx))
	change = append([]func(*clusterapi.Settings){func(s *clusterapi.Settings) {
		s.Fleet.RetryInterval, s.Fleet.MaxBackoff, s.FailureInterval = retryInterval, retryInterval, retryInterval
	}}, change...)
	cc, err := clusterapi.SetupWithManager(ctx, &ending{mgr, running}, options, controllerOptions, change...)
	if err != nil {
		shutdown()
		return nil, err
	}
	return &ClusterCache{ClusterCache: cc, hub: mgr.GetClient(), shutdown: shutdown}, nil
}

// Shutdown ends the ClusterCache before its manager does. It does not wait.
func (c *ClusterCache) Shutdown() { c.shutdown() }

// SetConnectionCreationRetryInterval has no effect: attempts to connect follow
// each other every two seconds already.
func (c *ClusterCache) SetConnectionCreationRetryInterval(time.Duration) {}

// reconcileTimeout is how long Reconcile waits for a cluster that may be
// filtered out.
const reconcileTimeout = 10 * time.Second

// Reconcile waits until a cluster with a Cluster object is connected, or an
// attempt to connect has failed, and no longer than ten seconds. It changes
// nothing: the ClusterCache connects by itself while its manager runs.
func (c *ClusterCache) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := c.hub.Get(ctx, request.NamespacedName, &clusterv1.Cluster{}); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	for e := range c.Fleet().ClusterEvents(ctx) {
		if e.Cluster == request.NamespacedName && e.Phase != status.PhaseConnecting {
			break
		}
	}
	return reconcile.Result{}, nil
}

// ending is a manager whose runnables end with a context of their own.
type ending struct {
	manager.Manager

	running context.Context //nolint:containedctx // the life of what is added
}

func (m *ending) Add(r manager.Runnable) error {
	return m.Manager.Add(&runnable{Runnable: r, running: m.running})
}

type runnable struct {
	manager.Runnable

	running context.Context //nolint:containedctx // ends what runs
}

// NeedLeaderElection returns what the runnable does.
func (r *runnable) NeedLeaderElection() bool {
	elected, ok := r.Runnable.(manager.LeaderElectionRunnable)
	return !ok || elected.NeedLeaderElection()
}

// Start runs the runnable until either context ends.
func (r *runnable) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.running, cancel)()
	return r.Runnable.Start(ctx)
}
