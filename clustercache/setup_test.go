// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardCacheThatIsNeverStartedSaysSo: without mgr.Add, an operator runs
// and does nothing.
func TestHazardCacheThatIsNeverStartedSaysSo(t *testing.T) {
	const line = "The cluster cache is used and does not run"
	to := func(context.Context, client.ObjectKey, client.Object) []reconcile.Request { return nil }
	feed := events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}, Watch: true}
	for name, use := range map[string]func(*testing.T, *clustercache.ClusterCache){
		"engage": func(t *testing.T, cc *clustercache.ClusterCache) {
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		},
		"watch": func(t *testing.T, cc *clustercache.ClusterCache) {
			_, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{})
			require.NoError(t, err)
		},
		"declare": func(t *testing.T, cc *clustercache.ClusterCache) {
			_, err := cc.Declare(t.Context(), fleettest.Owner("o"), fleettest.Target("a", "ConfigMap"))
			require.NoError(t, err)
		},
		"read": func(t *testing.T, cc *clustercache.ClusterCache) {
			require.Error(t, cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(), fleettest.Key("x"),
				&corev1.ConfigMap{}))
		},
		"client": func(t *testing.T, cc *clustercache.ClusterCache) {
			_, err := cc.Cluster(fleettest.Key("a")).Client()
			require.ErrorIs(t, err, clustercache.ErrNotStarted)
		},
		"object source": func(t *testing.T, cc *clustercache.ClusterCache) {
			s := controller.ObjectSource(cc, feed, to)
			require.NoError(t, s.Start(t.Context(), requests(t)))
			t.Cleanup(s.Stop)
		},
		"cluster source": func(t *testing.T, cc *clustercache.ClusterCache) {
			s := controller.ClusterSource(cc, controller.EnqueueCluster)
			require.NoError(t, s.Start(t.Context(), requests(t)))
			t.Cleanup(s.Stop)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book, o := &fleettest.Logbook{}, fleettest.Silent(fleettest.NewDirectory())
				o.Logger, o.Discover = book.Logger(), true
				cc, err := clustercache.New(o)
				require.NoError(t, err)
				time.Sleep(time.Hour)
				require.Empty(t, book.Lines, "nobody asked for anything")
				use(t, cc)
				use(t, cc)
				time.Sleep(10 * time.Second)
				require.Equal(t, 1, book.Count(line))
				err = cc.Cluster(fleettest.Key("a")).Reader().Get(t.Context(), fleettest.Key("x"), &corev1.ConfigMap{})
				for _, want := range []error{clustercache.ErrNotStarted, clustercache.ErrNotConnected,
					clustercache.ErrConnecting} {
					require.ErrorIs(t, err, want)
				}
				require.NotErrorIs(t, err, clustercache.ErrUnknownCluster)
				require.ErrorIs(t, cc.ReadyzCheck()(nil), clustercache.ErrNotStarted)
				time.Sleep(time.Hour)
				require.Equal(t, 1, book.Count(line), "once")
				fleettest.Run(t, cc) // its end releases what was requested
				synctest.Wait()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		book, o := &fleettest.Logbook{}, fleettest.Silent(fleettest.NewDirectory())
		o.Logger = book.Logger()
		cc, err := clustercache.New(o)
		require.NoError(t, err)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Second)
		fleettest.Run(t, cc)
		time.Sleep(time.Hour)
		require.Zero(t, book.Count(line), "it was started in time")
		err = cc.Cluster(fleettest.Key("b")).Reader().Get(t.Context(), fleettest.Key("x"), &corev1.ConfigMap{})
		require.NotErrorIs(t, err, clustercache.ErrNotStarted)
	})
}

func requests(t *testing.T) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// TestHazardCacheWithoutClustersSaysSo: the same without Discover.
func TestHazardCacheWithoutClustersSaysSo(t *testing.T) {
	const (
		any       = "No cluster is known"
		forgotten = "though the resolver lists clusters"
		mute      = "and the resolver cannot list any"
		none      = "and the resolver lists none"
		late      = "and the resolver has not listed any yet"
	)
	blind := resolver.Func(func(context.Context, client.ObjectKey) (resolver.Access, error) {
		return resolver.Access{}, resolver.ErrNotReady
	})
	itself := func(d *fleettest.Directory) resolver.Resolver { return d }
	chained := func(d *fleettest.Directory) resolver.Resolver { return resolver.Chain(resolver.InCluster(), d) }
	mutes := func(*fleettest.Directory) resolver.Resolver { return resolver.Chain(blind) }
	for name, tc := range map[string]struct {
		resolver func(*fleettest.Directory) resolver.Resolver
		discover bool
		engage   bool
		want     string
	}{
		"forgotten":         {itself, false, false, forgotten},
		"in a chain":        {chained, false, false, forgotten},
		"none is listed":    {itself, true, false, none},
		"engages":           {itself, false, true, ""},
		"engages and lists": {itself, true, true, ""},
		"lists nothing":     {mutes, false, false, mute},
		"asks for one":      {mutes, false, true, ""},
		"lists take forever": {
			func(*fleettest.Directory) resolver.Resolver { return deafLister{blind} }, true, false, late,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book, d := &fleettest.Logbook{}, fleettest.NewDirectory()
				o := fleettest.Silent(d)
				o.Resolver, o.Discover, o.Logger = tc.resolver(d), tc.discover, book.Logger()
				cc := fleettest.Start(t, o)
				if tc.engage {
					require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				}
				for _, later := range []time.Duration{5*time.Second + time.Millisecond, time.Hour} {
					time.Sleep(later)
					if tc.want == "" {
						require.Zero(t, book.Count(any))
						continue
					}
					require.Equal(t, 1, book.Count(any))
					require.Equal(t, 1, book.Count(tc.want))
				}
			})
		})
	}
}

// deafLister never returns a list.
type deafLister struct{ resolver.Resolver }

func (deafLister) Clusters(ctx context.Context) ([]client.ObjectKey, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lateManager accepts no checks, like a manager that runs.
type lateManager struct{ *fleettest.Manager }

func (lateManager) AddHealthzCheck(string, healthz.Checker) error {
	return errors.New("created already")
}

func (lateManager) AddReadyzCheck(string, healthz.Checker) error {
	return errors.New("created already")
}

func TestSetupWithManagerThatRuns(t *testing.T) {
	book, mgr, o := &fleettest.Logbook{}, lateManager{fleettest.NewManager()},
		fleettest.Silent(fleettest.NewDirectory())
	o.Logger = book.Logger()
	cc, err := clustercache.SetupWithManager(mgr, o)
	require.NoError(t, err)
	require.Equal(t, []manager.Runnable{cc}, mgr.Added)
	require.Equal(t, 1, book.Count("has no checks of this cluster cache"))

	// A real manager that runs.
	real, err := ctrl.NewManager(mgr.GetConfig(), ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	require.NoError(t, err)
	stop := fleettest.Run(t, real)
	<-real.Elected()
	cc, err = clustercache.SetupWithManager(real, o)
	require.NoError(t, err)
	select {
	case <-cc.Started():
	case <-time.After(time.Minute):
		require.Fail(t, "not started")
	}
	stop()
}

// lease is the lock of a leader election in memory.
type lease struct {
	mu     sync.Mutex // protects record
	record resourcelock.LeaderElectionRecord
}

// candidate takes part in an election for a lease.
type candidate struct {
	*lease

	name string
}

func (c candidate) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	record := c.record
	raw, err := json.Marshal(record)
	return &record, raw, err
}

func (c candidate) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return c.Update(ctx, r)
}

func (c candidate) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record = r
	return nil
}

func (candidate) RecordEvent(string) {}

func (c candidate) Identity() string { return c.name }

func (c candidate) Describe() string { return c.name }

// TestLeaderOnlyConnectsNothingBeforeTheManagerLeads: a replica that waits costs
// the clusters nothing, is ready, and complains about nothing.
func TestLeaderOnlyConnectsNothingBeforeTheManagerLeads(t *testing.T) {
	api, d, book := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory(), &fleettest.Logbook{}
	d.Set(fleettest.Key("a"), api.Config())
	o := fleettest.Silent(d)
	o.Discover, o.LeaderOnly, o.Logger = true, true, book.Logger()
	held := &lease{}
	start := func(name string) (*clustercache.ClusterCache, func()) {
		mgr, err := ctrl.NewManager(fleettest.NewManager().GetConfig(), ctrl.Options{
			Metrics:                             server.Options{BindAddress: "0"},
			LeaderElection:                      true,
			LeaderElectionID:                    "test",
			LeaderElectionResourceLockInterface: candidate{held, name},
			LeaderElectionReleaseOnCancel:       true,
			LeaseDuration:                       new(4 * time.Second),
			RenewDeadline:                       new(3 * time.Second),
			RetryPeriod:                         new(time.Second),
		})
		require.NoError(t, err)
		cc, err := clustercache.SetupWithManager(mgr, o)
		require.NoError(t, err)
		return cc, fleettest.Run(t, mgr)
	}
	first, stop := start("first")
	defer stop()
	<-first.Started()
	connected := func(cc *clustercache.ClusterCache) func() bool {
		return func() bool {
			s, err := cc.Cluster(fleettest.Key("a")).Status()
			return err == nil && s.Connected
		}
	}
	require.Eventually(t, connected(first), time.Minute, time.Millisecond)

	second, stopSecond := start("second")
	defer stopSecond()
	require.NoError(t, second.ReadyzCheck()(nil), "or a rolling update would wait for ever")
	require.NoError(t, second.HealthzCheck()(nil))
	require.NoError(t, second.Cluster(fleettest.Key("a")).Engage())
	err := second.Cluster(fleettest.Key("a")).Reader().Get(t.Context(), fleettest.Key("x"), &corev1.ConfigMap{})
	require.ErrorIs(t, err, clustercache.ErrNotStarted)
	require.False(t, connected(second)())
	require.Empty(t, second.Started())

	stop()
	select {
	case <-second.Started():
	case <-time.After(time.Minute):
		require.Fail(t, "not started by the new leader")
	}
	require.Eventually(t, connected(second), time.Minute, time.Millisecond)
	require.Zero(t, book.Count("is used and does not run"))
}

// TestHazardReplicaThatWaitsToLeadComplains: it is not forgotten to be started.
func TestHazardReplicaThatWaitsToLeadComplains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book, o := &fleettest.Logbook{}, fleettest.Silent(fleettest.NewDirectory())
		o.LeaderOnly, o.Logger = true, book.Logger()
		cc, err := clustercache.New(o)
		require.NoError(t, err)
		require.True(t, cc.NeedLeaderElection())
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(time.Hour)
		require.Zero(t, book.Count("is used and does not run"))

		o.Sharding = clustercachetest.NewSharding()
		_, err = clustercache.New(o)
		invalid, ok := errors.AsType[*clustercache.OptionError](err)
		require.True(t, ok)
		require.Equal(t, "LeaderOnly", invalid.Field)
		o.LeaderOnly = false
		cc, err = clustercache.New(o)
		require.NoError(t, err)
		require.False(t, cc.NeedLeaderElection())
	})
}

// ownerManager is a manager with a hub.
type ownerManager struct {
	*fleettest.Manager

	hub client.Reader
}

func (m ownerManager) GetAPIReader() client.Reader { return m.hub }

// TestHazardOwnersThatVanishAreFoundByDefault: with a manager, owners are
// looked up without configuration.
func TestHazardOwnersThatVanishAreFoundByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d, book := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory(), &fleettest.Logbook{}
		d.Set(fleettest.Key("a"), api.Config())
		there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "there"}}
		vanishes := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vanishes"}}
		leaving := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "leaving",
			Finalizers: []string{"fleet.test/copied"}}}
		hub := fake.NewClientBuilder().WithObjects(there, vanishes, leaving).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object,
				opts ...client.GetOption) error {
				if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Group != "" {
					return &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
				}
				return c.Get(ctx, k, obj, opts...)
			},
		}).Build()
		o := fleettest.Silent(d)
		o.Logger = book.Logger()
		cc, err := clustercache.SetupWithManager(ownerManager{fleettest.NewManager(), hub}, o)
		require.NoError(t, err)
		fleettest.Run(t, cc)

		ids := map[string]clustercache.Owner{
			"there":    {GVK: fleettest.ConfigMap, ObjectKey: client.ObjectKeyFromObject(there)},
			"vanishes": {GVK: fleettest.ConfigMap, ObjectKey: client.ObjectKeyFromObject(vanishes)},
			"leaving":  {GVK: fleettest.ConfigMap, ObjectKey: client.ObjectKeyFromObject(leaving)},
			"unknown": {GVK: schema.GroupVersionKind{Group: "nobody.example", Version: "v1", Kind: "Thing"},
				ObjectKey: fleettest.Key("x")},
		}
		uses := func() (out []string) {
			for name, id := range ids {
				if len(cc.Declared(id)) > 0 {
					out = append(out, name)
				}
			}
			return out
		}
		for _, id := range ids {
			_, err := cc.Declare(t.Context(), id,
				clustercache.Target{Cluster: fleettest.Key("a"), Kind: &corev1.ConfigMap{}})
			require.NoError(t, err)
		}
		time.Sleep(time.Hour)
		require.Len(t, uses(), 4)
		require.NoError(t, hub.Delete(t.Context(), vanishes))
		require.NoError(t, hub.Delete(t.Context(), leaving))
		time.Sleep(time.Hour)
		require.ElementsMatch(t, []string{"there", "unknown", "leaving"}, uses(), "one waits for its finalizer")
		require.Equal(t, 1, book.Count("Owners of a kind cannot be looked for"))
		require.Zero(t, book.Count("set Options.GC.InUse"), "owners of the kind were met there")
	})
}
