// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	fleetcontroller "github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestSetupWithManagerTakesWhatTheManagerHas(t *testing.T) {
	mgr := fleettest.NewManager()
	mgr.Scheme = runtime.NewScheme()
	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{Resolver: fleettest.NewDirectory()})
	require.NoError(t, err)
	require.Equal(t, []manager.Runnable{cc}, mgr.Added)
	require.Same(t, mgr.Scheme, cc.Options().Scheme)
	require.NoError(t, mgr.Healthz["fleetcache"](nil))
	require.Error(t, mgr.Readyz["fleetcache"](nil), "not started yet")

	own := runtime.NewScheme()
	cc, err = clustercache.SetupWithManager(mgr,
		clustercache.Options{Resolver: fleettest.NewDirectory(), Name: "edge", Scheme: own})
	require.NoError(t, err)
	require.Same(t, own, cc.Options().Scheme)
	require.Contains(t, mgr.Healthz, "fleetcache-edge")

	_, err = clustercache.SetupWithManager(mgr, clustercache.Options{})
	require.ErrorContains(t, err, "option Resolver")
}

// TestSetupWithManagerKnowsTheHub: a Secret that points back to the manager's
// own cluster is refused before any dial.
func TestSetupWithManagerKnowsTheHub(t *testing.T) {
	for hub, want := range map[string]status.Phase{"": status.PhaseRefused,
		"https://192.0.2.7": status.PhaseDisconnected} {
		d := fleettest.NewDirectory()
		d.Answer(fleettest.Key("a"), func() (resolver.Access, error) {
			return resolver.Kubeconfig(testenv.Kubeconfig(
				&rest.Config{Host: "https://192.0.2.1:6443", BearerToken: "t"}), resolver.KubeconfigOptions{})
		})
		o := fleettest.Silent(d)
		o.ProbeTimeout = 100 * time.Millisecond // no server answers at a documentation address
		if hub != "" {
			o.DialPolicy.Hub = []string{hub}
		}
		cc, err := clustercache.SetupWithManager(fleettest.NewManager(), o)
		require.NoError(t, err)
		fleettest.Run(t, cc)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		require.Eventually(t, func() bool {
			s, err := cc.Cluster(fleettest.Key("a")).Status()
			return err == nil && s.Phase == want
		}, time.Minute, 10*time.Millisecond, "hub %q", hub)
	}
}

// reconciled is one call of a reconciler that was written for one cluster.
type reconciled struct {
	client client.Client
	reconcile.Request
}

// TestPerClusterTriesAgainSoonWhereTheClusterIsNotConnected: the growing
// back-off of errors would hide that the cluster is back.
func TestPerClusterTriesAgainSoonWhereTheClusterIsNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dead := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-b")
		dead.Die()
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		d.Set(fleettest.Key("b"), dead.Config())
		o := fleettest.Silent(d)
		o.RetryInterval = 7 * time.Second
		cc := fleettest.Start(t, o)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		require.NoError(t, cc.Cluster(fleettest.Key("b")).Engage())
		synctest.Wait()
		var told []reconciled
		var fail error
		r := fleetcontroller.PerCluster(cc, func(c client.Client) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
				of, known := fleetcontroller.ClusterOf(c)
				in, _ := fleetcontroller.ClusterFromContext(ctx)
				require.True(t, known)
				require.Equal(t, in, of)
				told = append(told, reconciled{c, request})
				if fail != nil {
					return reconcile.Result{}, fail
				}
				return reconcile.Result{RequeueAfter: time.Hour},
					c.Get(ctx, request.NamespacedName, &corev1.ConfigMap{})
			})
		})
		request := fleetcontroller.Request{Cluster: fleettest.Key("a"),
			ObjectKey: client.ObjectKey{Namespace: "default", Name: "one"}}
		result, err := r.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, time.Hour, result.RequeueAfter, "its own result")
		require.Equal(t, request.ObjectKey, told[0].NamespacedName)

		request.Cluster = fleettest.Key("b")
		result, err = r.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, result.RequeueAfter)
		require.Len(t, told, 2)

		request.Cluster = fleettest.Key("nobody")
		result, err = r.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.Zero(t, result)
		require.Len(t, told, 2, "dropped")

		request.Cluster = fleettest.Key("a")
		fail = errors.New("its own trouble")
		_, err = r.Reconcile(t.Context(), request)
		require.ErrorIs(t, err, fail)
		fail = fmt.Errorf("wrapped: %w", clustercache.ErrNotConnected)
		result, err = r.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, result.RequeueAfter)
	})
}

// TestBuilderReconcilesObjectsTheirOwnersAndWhatMappingsSay runs a controller
// over two clusters, one of which is lost and comes back.
func TestBuilderReconcilesObjectsTheirOwnersAndWhatMappingsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, out := fleettest.NewAPI(t, "uid-a"), fleettest.NewAPI(t, "uid-b"), fleettest.NewAPI(t, "uid-c")
		b.Die()
		for _, api := range []*fleettest.API{a, b, out} {
			api.Put("one", "1", nil)
		}
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), a.Config())
		d.Set(fleettest.Key("b"), b.Config())
		d.Set(fleettest.Key("out"), out.Config())
		o := fleettest.Silent(d)
		o.Discover = true
		cc := fleettest.Start(t, o)
		mgr := fleettest.NewManager()
		got := map[string]int{}
		err := fleetcontroller.NewControllerManagedBy(mgr, cc).
			For(&corev1.ConfigMap{}).
			Watches(&corev1.ConfigMap{}, func(_ context.Context, cluster client.ObjectKey,
				obj client.Object) []fleetcontroller.Request {
				return []fleetcontroller.Request{
					{
						Cluster:   cluster,
						ObjectKey: client.ObjectKey{Namespace: "default", Name: "mapped-" + obj.GetName()},
					},
				}
			}, fleetcontroller.WithPredicates(predicate.NewPredicateFuncs(func(obj client.Object) bool {
				return obj.GetName() == "two"
			}))).
			InClusters(func(cluster client.ObjectKey) bool { return cluster != fleettest.Key("out") }).
			WithOptions(controller.TypedOptions[fleetcontroller.Request]{MaxConcurrentReconciles: 1}).
			Complete(func(c client.Client) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
					configMap := &corev1.ConfigMap{}
					err := c.Get(ctx, request.NamespacedName, configMap)
					got[fmt.Sprint(configMap.Data["in"], " ", request.Name)]++
					return reconcile.Result{}, client.IgnoreNotFound(err)
				})
			})
		require.NoError(t, err)
		require.Len(t, mgr.Added, 1)
		stop := fleettest.Run(t, mgr.Added[0])
		time.Sleep(time.Minute)
		synctest.Wait() // orders the reconcilers' work before the checks below
		require.Equal(t, map[string]int{"uid-a one": 1}, got, "one cluster is down, and one was not selected")
		b.Live()
		a.Put("two", "1", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[string]int{"uid-a one": 1, "uid-a two": 1, " mapped-two": 1, "uid-b one": 1}, got)
		require.Equal(t, 1, a.Count("stream /api/v1/configmaps"), "two sources, one list and watch")
		stop()
	})
}

// kindManager is a manager that bounds the concurrency of kinds.
type kindManager struct {
	*fleettest.Manager

	kinds map[string]int
}

func (m kindManager) GetControllerOptions() config.Controller {
	o := m.Manager.GetControllerOptions()
	o.GroupKindConcurrency, o.MaxConcurrentReconciles = m.kinds, 3
	return o
}

// TestBuilderHasTheConcurrencyOfItsKind, unless its own options say otherwise;
// the manager's for all kinds comes last.
func TestBuilderHasTheConcurrencyOfItsKind(t *testing.T) {
	for name, tc := range map[string]struct {
		kinds map[string]int
		own   int
		want  int
	}{
		"of the kind":              {kinds: map[string]int{"ConfigMap": 2}, want: 2},
		"its own":                  {kinds: map[string]int{"ConfigMap": 2}, own: 4, want: 4},
		"of another kind":          {kinds: map[string]int{"Deployment.apps": 2}, want: 3},
		"none that makes sense":    {kinds: map[string]int{"ConfigMap": -1}, want: 3},
		"of no kind in particular": {want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				d.Set(fleettest.Key("a"), api.Config())
				for i := range 8 {
					api.Put(fmt.Sprint("object-", i), "1", nil)
				}
				o := fleettest.Silent(d)
				o.Discover = true
				cc := fleettest.Start(t, o)
				mgr := kindManager{fleettest.NewManager(), tc.kinds}
				var atOnce atomic.Int64
				_, err := fleetcontroller.NewControllerManagedBy(mgr, cc).For(&corev1.ConfigMap{}).
					WithOptions(controller.TypedOptions[fleetcontroller.Request]{MaxConcurrentReconciles: tc.own}).
					Build(reconcile.TypedFunc[fleetcontroller.Request](
						func(ctx context.Context, _ fleetcontroller.Request) (reconcile.Result, error) {
							atOnce.Add(1)
							<-ctx.Done()
							return reconcile.Result{}, nil
						}))
				require.NoError(t, err)
				stop := fleettest.Run(t, mgr.Added[0])
				time.Sleep(time.Minute)
				require.EqualValues(t, tc.want, atOnce.Load())
				stop()
			})
		})
	}
}

func TestBuilderRefusesWhatCannotBe(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	nothing := func(client.Client) reconcile.Reconciler { return nil }
	mgr := fleettest.NewManager()
	for text, b := range map[string]*fleetcontroller.Builder{
		"For or Named": fleetcontroller.NewControllerManagedBy(mgr, cc).Watches(&corev1.Pod{},
			fleetcontroller.EnqueueObject),
		"option mapping": fleetcontroller.NewControllerManagedBy(mgr, cc).For(&corev1.Pod{}).
			Watches(&corev1.Node{}, nil),
		"option handler": fleetcontroller.NewControllerManagedBy(mgr, cc).For(&corev1.Pod{}).
			WatchesHandler(&corev1.Node{}, nil),
		"option filter":  fleetcontroller.NewControllerManagedBy(mgr, cc).For(&corev1.Pod{}).WithEventFilter(nil),
		"Owns needs For": fleetcontroller.NewControllerManagedBy(mgr, cc).Named("x").Owns(&corev1.Pod{}),
		"called once":    fleetcontroller.NewControllerManagedBy(mgr, cc).For(&corev1.Pod{}).For(&corev1.Node{}),
		"no kind": fleetcontroller.NewControllerManagedBy(mgr, cc).
			For(clustercache.Kind(schema.GroupVersionKind{})),
		"option CacheSyncTimeout: no source": fleetcontroller.NewControllerManagedBy(mgr, cc).For(&corev1.Pod{}).
			WithOptions(controller.TypedOptions[fleetcontroller.Request]{CacheSyncTimeout: time.Minute}),
		"no watches config": fleetcontroller.NewControllerManagedBy(mgr, cc).Named("x"),
	} {
		require.ErrorContains(t, b.Complete(nothing), text)
	}
}

// syncing is a source that syncs after some time.
type syncing time.Duration

func (syncing) Start(context.Context, workqueue.TypedRateLimitingInterface[fleetcontroller.Request]) error {
	return nil
}

func (s syncing) WaitForSync(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(s)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestCacheSyncTimeoutBoundsTheSourcesThatSync: those of the hub, which others
// have made. It says nothing of the clusters.
func TestCacheSyncTimeoutBoundsTheSourcesThatSync(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		says  string
	}{"in time": {time.Second, ""}, "too late": {time.Hour, "failed to wait for"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
				api.Die()
				d.Set(fleettest.Key("a"), api.Config())
				o := fleettest.Silent(d)
				o.Discover = true
				cc, mgr := fleettest.Start(t, o), fleettest.NewManager()
				require.NoError(t, fleetcontroller.NewControllerManagedBy(mgr, cc).For(&corev1.ConfigMap{}).
					WatchesRawSource(syncing(tc.takes)).
					WithOptions(controller.TypedOptions[fleetcontroller.Request]{CacheSyncTimeout: time.Minute}).
					Complete(func(client.Client) reconcile.Reconciler { return nil }))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				err := mgr.Added[0].Start(ctx)
				if tc.says == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, tc.says)
			})
		})
	}
}

func TestLiveClientReadsPastTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		d := fleettest.NewDirectory()
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		_, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		cached, err := cc.Cluster(fleettest.Key("a")).Client()
		require.NoError(t, err)
		live, err := cc.Cluster(fleettest.Key("a")).LiveClient()
		require.NoError(t, err)
		const path = "get /api/v1/namespaces/default/configmaps/one"
		one := client.ObjectKey{Namespace: "default", Name: "one"}
		require.NoError(t, cached.Get(t.Context(), one, &corev1.ConfigMap{}))
		require.Zero(t, api.Count(path))
		require.NoError(t, live.Get(t.Context(), one, &corev1.ConfigMap{}))
		require.Equal(t, 1, api.Count(path))
	})
}
