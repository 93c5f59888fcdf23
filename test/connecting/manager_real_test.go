// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

// replica is a manager with a ClusterCache and a controller over both sources.
// It is one of several that elect a leader.
type replica struct {
	t        *testing.T
	cc       *clustercache.ClusterCache
	mgr      ctrl.Manager
	requests chan reconcile.Request
	cancel   context.CancelFunc
	done     chan error
}

func startReplica(t *testing.T, hub *testenv.Cluster, remotes map[string]*testenv.Proxy) *replica {
	t.Helper()
	d := fleettest.NewDirectory()
	for name, p := range remotes {
		d.Set(fleettest.Key(name), p.Config())
	}
	o := fleettest.Quick(d)
	o.Discover = true
	cc, err := clustercache.New(o)
	require.NoError(t, err)
	mgr, err := ctrl.NewManager(hub.Config(), ctrl.Options{
		Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		LeaderElection: true, LeaderElectionID: "fleet",
		LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
		RetryPeriod: new(500 * time.Millisecond),
	})
	require.NoError(t, err)
	require.NoError(t, mgr.Add(cc))
	r := &replica{t: t, cc: cc, mgr: mgr, requests: make(chan reconcile.Request, 1000), done: make(chan error, 1)}
	mine := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == "default" })
	selection := events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true,
		Predicates: []predicate.Predicate{mine}}
	toName := func(_ context.Context, cluster client.ObjectKey, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: cluster.Name, Name: o.GetName()}}}
	}
	toType := func(_ context.Context, e events.Cluster) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: e.Cluster.Name, Name: string(e.Type)}}}
	}
	require.NoError(t, ctrl.NewControllerManagedBy(mgr).Named("fleet").
		WatchesRawSource(controller.ObjectSource(cc, selection, toName)).
		WatchesRawSource(controller.ClusterSource(cc, toType)).
		Complete(reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
			r.requests <- request
			return reconcile.Result{}, nil
		})))
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.done <- mgr.Start(ctx) }()
	t.Cleanup(r.stop)
	return r
}

// wait waits until all of the requests were reconciled.
func (r *replica) wait(names ...string) {
	r.t.Helper()
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for len(want) > 0 {
		select {
		case request := <-r.requests:
			delete(want, request.String())
		case <-limit.C:
			require.Empty(r.t, want)
		}
	}
}

// stop ends the manager, which takes no longer if remotes cannot be reached. It
// can be called again.
func (r *replica) stop() {
	r.t.Helper()
	if r.cancel == nil {
		return
	}
	begin := time.Now()
	r.cancel()
	r.cancel = nil
	require.NoError(r.t, <-r.done)
	require.Less(r.t, time.Since(begin), 10*time.Second)
}

// TestRealManagersElectStopAndRestartWithAnUnreachableRemote: neither a manager
// nor its controller waits for the remote or fails because of it: not when it
// starts, is elected or stops, and not when another one is started in its place
// in the same process.
func TestRealManagersElectStopAndRestartWithAnUnreachableRemote(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2)
	hub, remote := envs[0], envs[1]
	fleettest.Create(t, remote, "one")
	silent, good := hub.Proxy(t), remote.Proxy(t)
	silent.Blackhole(faultproxy.Both)
	remotes := map[string]*testenv.Proxy{"silent": silent, "good": good}

	leader := startReplica(t, hub, remotes)
	leader.wait("good/Connected", "good/one")
	<-leader.mgr.Elected()
	lease := &coordinationv1.Lease{}
	require.NoError(t, hub.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "fleet"}, lease))
	require.NotEmpty(t, lease.Spec.HolderIdentity)

	// A replica that waits to be elected is warm: it is connected, and
	// reconciles nothing.
	next := startReplica(t, hub, remotes)
	require.Eventually(t, func() bool {
		s, err := next.cc.Cluster(fleettest.Key("good")).Status()
		return err == nil && s.Connected
	}, time.Minute, 20*time.Millisecond)
	fleettest.Create(t, remote, "two")
	leader.wait("good/two")
	require.Empty(t, next.requests)

	leader.stop()
	next.wait("good/Connected", "good/one", "good/two")
	restarted := startReplica(t, hub, remotes)
	fleettest.Create(t, remote, "three")
	next.wait("good/three")
	require.Empty(t, restarted.requests)
	next.stop()
	restarted.wait("good/one", "good/two", "good/three")

	// The remote heals: it is detected without a notification.
	require.NoError(t, silent.Heal())
	restarted.wait("silent/Connected")
	for _, s := range restarted.cc.Statuses() {
		require.True(t, s.Connected, "%s: %v", s.Cluster, s.LastError)
	}
}
