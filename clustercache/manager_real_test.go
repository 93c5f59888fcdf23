// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

// TestRealManagerStartsAndStopsWithAnUnreachableRemote: neither the manager nor its controller waits for the remote.
func TestRealManagerStartsAndStopsWithAnUnreachableRemote(t *testing.T) {
	envs := testenv.Start(t, 2)
	hub, remote := envs[0], envs[1]
	create(t, remote, "one")
	silentProxy, proxy := hub.Proxy(t), remote.Proxy(t)
	silentProxy.Blackhole(faultproxy.Both)
	d := newDirectory()
	d.set(key("silent"), silentProxy.Config())
	d.set(key("good"), proxy.Config())
	o := quick(d)
	o.Discover = true
	cc, err := clustercache.New(o)
	require.NoError(t, err)

	mgr, err := ctrl.NewManager(hub.Config(), ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	require.NoError(t, err)
	require.NoError(t, mgr.Add(cc))
	requests := make(chan reconcile.Request, 100)
	toCluster := func(_ context.Context, cluster client.ObjectKey, o client.Object) []reconcile.Request {
		if o.GetNamespace() != "default" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Name, Name: o.GetName()}}}
	}
	require.NoError(t, ctrl.NewControllerManagedBy(mgr).Named("fleet").
		WatchesRawSource(clustercache.ObjectSource(cc, clustercache.ObjectFeed{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true}, toCluster)).
		WatchesRawSource(clustercache.ClusterSource(cc, func(_ context.Context, e clustercache.ClusterEvent) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: e.Cluster.Name, Name: string(e.Type)}}}
		})).
		Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			requests <- r
			return reconcile.Result{}, nil
		})))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	begin := time.Now()
	go func() { done <- mgr.Start(ctx) }()
	want := map[string]bool{"good/Connected": true, "good/one": true}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for len(want) > 0 {
		select {
		case r := <-requests:
			delete(want, r.String())
		case <-limit.C:
			require.Empty(t, want)
		}
	}
	require.Less(t, time.Since(begin), 20*time.Second)
	begin = time.Now()
	cancel()
	require.NoError(t, <-done)
	require.Less(t, time.Since(begin), 5*time.Second)
}
