// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clusterapi"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// fakes runs a test in virtual time with one cluster, that is connected.
func fakes(
	t *testing.T,
	run func(*testing.T, *clustercachetest.Fleet, *clustercachetest.Cluster, *clusterapi.ClusterCache),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("fleet/east")
		c, err := clusterapi.New(fleet.ClusterCache(), clusterapi.Options{})
		require.NoError(t, err)
		require.Same(t, fleet.ClusterCache(), c.Fleet())
		fleet.WaitSynced()
		run(t, fleet, east, c)
	})
}

// watcher is a Watcher of Secrets that calls a function.
type watcher func(cache.Cache) error

func (watcher) Name() string                    { return "secrets" }
func (watcher) Object() client.Object           { return &corev1.Secret{} }
func (w watcher) Watch(cache cache.Cache) error { return w(cache) }

// TestAWatchThatFailedIsAddedAgain: its name is free for the next call.
func TestAWatchThatFailedIsAddedAgain(t *testing.T) {
	fakes(t, func(t *testing.T, _ *clustercachetest.Fleet, east *clustercachetest.Cluster, c *clusterapi.ClusterCache) {
		broken, calls := errors.New("broken"), 0
		require.ErrorIs(t, c.Watch(t.Context(), east.Key(), watcher(func(cache.Cache) error { return broken })), broken)
		for range 2 {
			require.NoError(t, c.Watch(t.Context(), east.Key(), watcher(func(cache.Cache) error {
				calls++
				return nil
			})))
		}
		require.Equal(t, 1, calls)
	})
}

// TestAWatcherMayCallBack: for the same cluster, and for the same watch.
func TestAWatcherMayCallBack(t *testing.T) {
	fakes(t, func(t *testing.T, _ *clustercachetest.Fleet, east *clustercachetest.Cluster, c *clusterapi.ClusterCache) {
		var w watcher
		w = func(cache.Cache) error {
			if _, err := c.GetClient(t.Context(), east.Key()); err != nil {
				return err
			}
			return c.Watch(t.Context(), east.Key(), w)
		}
		require.NoError(t, c.Watch(t.Context(), east.Key(), w))
	})
}

// secrets starts a source of Secrets in a queue that it returns.
func secrets(t *testing.T) (watcher, workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	t.Cleanup(queue.ShutDown)
	return func(cache cache.Cache) error {
		return source.Kind(cache, client.Object(&corev1.Secret{}),
			handler.TypedEventHandler[client.Object, ctrl.Request](&handler.EnqueueRequestForObject{})).
			Start(t.Context(), queue)
	}, queue
}

func create(t *testing.T, c *clustercachetest.Cluster, name string) {
	t.Helper()
	require.NoError(t, c.Client().Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}))
}

// TestAWatchSurvivesAReconnect delivers what changed meanwhile, and nothing
// else, without another Watch.
func TestAWatchSurvivesAReconnect(t *testing.T) {
	fakes(t, func(
		t *testing.T, fleet *clustercachetest.Fleet, east *clustercachetest.Cluster, c *clusterapi.ClusterCache,
	) {
		create(t, east, "before")
		w, queue := secrets(t)
		require.NoError(t, c.Watch(t.Context(), east.Key(), w))
		fleet.WaitSynced()
		synctest.Wait()
		request, _ := queue.Get()
		require.Equal(t, "before", request.Name)
		queue.Done(request)

		east.Disconnect()
		fleet.WaitSynced()
		_, err := c.GetClient(t.Context(), east.Key())
		require.ErrorIs(t, err, capi.ErrClusterNotConnected)
		require.ErrorIs(t, err, clustercache.ErrNotConnected)
		create(t, east, "meanwhile")
		east.Connect()
		fleet.WaitSynced()
		require.NoError(t, c.Watch(t.Context(), east.Key(), w))
		synctest.Wait()
		request, _ = queue.Get()
		require.Equal(t, "meanwhile", request.Name)
		require.Zero(t, queue.Len())
	})
}

// TestAClusterThatIsCreatedAgainIsWatchedAgain: the names of the removed one
// are free.
func TestAClusterThatIsCreatedAgainIsWatchedAgain(t *testing.T) {
	fakes(t, func(
		t *testing.T, fleet *clustercachetest.Fleet, east *clustercachetest.Cluster, c *clusterapi.ClusterCache,
	) {
		w, queue := secrets(t)
		require.NoError(t, c.Watch(t.Context(), east.Key(), w))
		east.Remove()
		fleet.WaitSynced()
		synctest.Wait()
		require.ErrorIs(t, c.Watch(t.Context(), east.Key(), w), capi.ErrClusterNotConnected)
		require.Zero(t, c.GetHealthCheckingState(t.Context(), east.Key()))
		_, err := c.Fleet().Cluster(east.Key()).Status()
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster, "it is not held")

		east = fleet.Add("fleet/east")
		fleet.WaitSynced()
		require.NoError(t, c.Watch(t.Context(), east.Key(), w))
		create(t, east, "new")
		fleet.WaitSynced()
		synctest.Wait()
		request, _ := queue.Get()
		require.Equal(t, "new", request.Name)
	})
}

// foreign is an option of another implementation.
type foreign struct{ capi.WatchForProbeFailure }

// TestAnUnknownOptionOfASourceIsAnError: it is not ignored.
func TestAnUnknownOptionOfASourceIsAnError(t *testing.T) {
	fakes(t, func(t *testing.T, _ *clustercachetest.Fleet, _ *clustercachetest.Cluster, c *clusterapi.ClusterCache) {
		s := c.GetClusterSource("nodes", func(context.Context, client.Object) []ctrl.Request { return nil }, foreign{})
		require.ErrorContains(t, s.Start(t.Context(), nil), "clusterapi_test.foreign")
	})
}

// TestASourceThatIsNeverReadBlocksNothing is case 46: Cluster API's own stops
// for ever.
func TestASourceThatIsNeverReadBlocksNothing(t *testing.T) {
	fakes(t, func(
		t *testing.T, fleet *clustercachetest.Fleet, east *clustercachetest.Cluster, c *clusterapi.ClusterCache,
	) {
		c.GetClusterSource("never started", nil)
		stuck := make(chan struct{})
		defer close(stuck)
		_, queue := secrets(t)
		require.NoError(t, c.GetClusterSource("stuck", func(context.Context, client.Object) []ctrl.Request {
			<-stuck
			return nil
		}).Start(t.Context(), queue))
		synctest.Wait()
		east.Disconnect()
		fleet.WaitSynced()
		east.Connect()
		fleet.WaitSynced()
		_, err := c.GetClient(t.Context(), east.Key())
		require.NoError(t, err)
	})
}

// TestMetricsOfClusterAPIsNamesAreTakenOver from a registry in which Cluster
// API's package has registered its own.
func TestMetricsOfClusterAPIsNamesAreTakenOver(t *testing.T) {
	fakes(t, func(
		t *testing.T, fleet *clustercachetest.Fleet, east *clustercachetest.Cluster, c *clusterapi.ClusterCache,
	) {
		registry := prometheus.NewPedanticRegistry()
		for name, help := range map[string]string{
			"healthcheck":   "Result of the last clustercache healthcheck for a cluster.",
			"connection_up": "Whether the connection to the cluster is up.",
		} {
			registry.MustRegister(prometheus.NewGaugeVec(
				prometheus.GaugeOpts{Name: "capi_cluster_cache_" + name, Help: help},
				[]string{"cluster_name", "cluster_namespace"}))
		}
		theirs := prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "capi_cluster_cache_healthchecks_total",
			Help: "Results of all clustercache healthchecks.",
		}, []string{"cluster_name", "cluster_namespace", "status"})
		registry.MustRegister(theirs)
		unregister, err := clusterapi.RegisterMetrics(c.Fleet(), registry)
		require.NoError(t, err)
		require.False(t, registry.Unregister(theirs))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(series("1"))))
		east.Disconnect()
		fleet.WaitSynced()
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(series("0")),
			"capi_cluster_cache_connection_up", "capi_cluster_cache_healthcheck"))
		east.Remove()
		fleet.WaitSynced()
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader("")))
		unregister()
	})
}

// TestHealthChecksAreCounted, those that a sign of life made unnecessary as
// well, and attempts to connect not.
func TestHealthChecksAreCounted(t *testing.T) {
	fakes(t, func(
		t *testing.T, fleet *clustercachetest.Fleet, east *clustercachetest.Cluster, c *clusterapi.ClusterCache,
	) {
		registry := prometheus.NewPedanticRegistry()
		unregister, err := clusterapi.RegisterMetrics(c.Fleet(), registry)
		require.NoError(t, err)
		defer unregister()
		checks := func() map[string]float64 {
			found := map[string]float64{}
			families, err := registry.Gather()
			require.NoError(t, err)
			for _, f := range families {
				if f.GetName() != "capi_cluster_cache_healthchecks_total" {
					continue
				}
				for _, m := range f.GetMetric() {
					require.Equal(t, []string{"east", "fleet"},
						[]string{m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue()})
					found[m.GetLabel()[2].GetValue()] = m.GetCounter().GetValue()
				}
			}
			return found
		}
		require.Empty(t, checks())
		_, err = c.Fleet().Cluster(east.Key()).Watch(t.Context(), &corev1.Secret{}) // signs of life
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		before := checks()
		require.InDelta(t, 67, before["success"], 8, "each interval is up to a fifth shorter than ten seconds")
		require.NotContains(t, before, "error")

		east.Disconnect()
		time.Sleep(time.Minute)
		fleet.WaitSynced()
		require.InDelta(t, 3, checks()["error"], 0)
		time.Sleep(10 * time.Minute)
		require.Equal(t, map[string]float64{"success": before["success"], "error": 3}, checks())
		east.Connect()
		time.Sleep(5 * time.Minute)
		require.Greater(t, checks()["success"], before["success"]+20)
		require.InDelta(t, 3, checks()["error"], 0)
	})
}

// series are the metrics of the cluster.
func series(value string) string {
	const labels = `{cluster_name="east",cluster_namespace="fleet"} `
	return "# HELP capi_cluster_cache_connection_up Whether the connection to the cluster is up.\n" +
		"# TYPE capi_cluster_cache_connection_up gauge\n" +
		"capi_cluster_cache_connection_up" + labels + value + "\n" +
		"# HELP capi_cluster_cache_healthcheck Result of the last clustercache healthcheck for a cluster.\n" +
		"# TYPE capi_cluster_cache_healthcheck gauge\n" +
		"capi_cluster_cache_healthcheck" + labels + value + "\n"
}

// recorder is a manager that runs nothing before the test ends.
type recorder struct {
	manager.Manager

	added []manager.Runnable
}

func (r *recorder) Add(added manager.Runnable) error {
	r.added = append(r.added, added)
	return nil
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	r := &recorder{Manager: mgr}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, added := range r.added {
			require.NoError(t, added.Start(ctx))
		}
	})
	return r
}

// TestOnlyTheLeaderConnectsUnlessToldOtherwise, as with Cluster API's own.
func TestOnlyTheLeaderConnectsUnlessToldOtherwise(t *testing.T) {
	for want, asked := range map[bool]*bool{true: nil, false: new(false)} {
		mgr := newRecorder(t)
		o := capi.Options{Client: capi.ClientOptions{UserAgent: "test"}}
		_, err := clusterapi.SetupWithManager(t.Context(), mgr, o, controller.Options{NeedLeaderElection: asked})
		require.NoError(t, err)
		require.Len(t, mgr.added, 1)
		elected, ok := mgr.added[0].(manager.LeaderElectionRunnable)
		require.True(t, ok)
		require.Equal(t, want, elected.NeedLeaderElection())
	}
}

// TestSettingsBeginWithClusterAPIsNumbers and with its options.
func TestSettingsBeginWithClusterAPIsNumbers(t *testing.T) {
	var settings clusterapi.Settings
	c, err := clusterapi.SetupWithManager(t.Context(), newRecorder(t), capi.Options{
		Client: capi.ClientOptions{UserAgent: "test", QPS: 7, Burst: 8, Timeout: time.Minute},
	}, controller.Options{}, func(s *clusterapi.Settings) {
		settings = *s
		s.Fleet.Name = "changed"
	})
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, settings.Fleet.ProbeInterval)
	require.Equal(t, 5*time.Second, settings.Fleet.ProbeTimeout)
	require.Equal(t, 5, settings.Fleet.FailureThreshold)
	require.True(t, settings.Fleet.DialPolicy.AllowHub)
	o := c.Fleet().Options()
	require.Equal(t, "test", o.UserAgent)
	require.InDelta(t, 7, o.QPS, 0)
	require.Equal(t, 8, o.Burst)
	require.Equal(t, time.Minute, o.RequestTimeout)
	require.Equal(t, "changed", o.Name)

	_, err = clusterapi.SetupWithManager(t.Context(), newRecorder(t), capi.Options{}, controller.Options{})
	wrong, ok := errors.AsType[*clustercache.OptionError](err)
	require.True(t, ok)
	require.Equal(t, "Client.UserAgent", wrong.Field)
}

// TestFiveFailuresAreTwoMinutes: by them Cluster API's controllers decide that
// a cluster that never answered is not only late, and call its Nodes unknown.
func TestFiveFailuresAreTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
		api.Die()
		d.Set(fleettest.Key("a"), api.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		c, err := clusterapi.New(cc, clusterapi.Options{})
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		state := func() capi.HealthCheckingState { return c.GetHealthCheckingState(t.Context(), fleettest.Key("a")) }
		for want := 1; want <= 5; want++ {
			for state().ConsecutiveFailures < want {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			require.InDelta(t, 30*float64(want-1), time.Since(began).Seconds(), 5, "failure %d", want)
			require.Zero(t, state().LastProbeSuccessTime)
		}
		require.Greater(t, fleettest.Status(t, cc).Failures, 5)
		time.Sleep(time.Hour)
		require.InDelta(t, 120, state().ConsecutiveFailures, 8)

		api.Live()
		time.Sleep(time.Minute)
		require.Zero(t, state().ConsecutiveFailures)
		time.Sleep(time.Minute)
		api.Die()
		time.Sleep(5 * time.Minute)
		require.Greater(t, state().ConsecutiveFailures, 5)
	})
}

// TestAFailureIsCountedEvenIfAttemptsAreRarer than Cluster API's.
func TestAFailureIsCountedEvenIfAttemptsAreRarer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		d.Fail(fleettest.Key("a"), resolver.ErrSecretNotFound)
		o := fleettest.Silent(d)
		o.RetryInterval = 10 * time.Minute
		cc := fleettest.Start(t, o)
		c, err := clusterapi.New(cc, clusterapi.Options{FailureInterval: time.Minute})
		require.NoError(t, err)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
		time.Sleep(7 * time.Minute)
		require.Equal(t, 1, c.GetHealthCheckingState(t.Context(), fleettest.Key("a")).ConsecutiveFailures)
	})
}

// TestGettersDoNotAskForTheStatus of the cluster, whose length depends on how
// many keys lead to it.
func TestGettersDoNotAskForTheStatus(t *testing.T) {
	allocs := map[int]float64{}
	for _, n := range []int{1, 80} {
		synctest.Test(t, func(t *testing.T) {
			api, d := fleettest.NewAPI(t, "uid-a"), fleettest.NewDirectory()
			cc := fleettest.Start(t, fleettest.Silent(d))
			c, err := clusterapi.New(cc, clusterapi.Options{})
			require.NoError(t, err)
			for i := range n {
				key := fleettest.Key(strconv.Itoa(i))
				d.Set(key, api.Config())
				require.NoError(t, cc.Cluster(key).Engage())
			}
			time.Sleep(time.Minute)
			status, err := cc.Cluster(fleettest.Key("0")).Status()
			require.NoError(t, err)
			require.Len(t, status.SameAs, n-1)
			allocs[n] = testing.AllocsPerRun(100, func() {
				_, err = c.GetClient(t.Context(), fleettest.Key("0"))
				require.NoError(t, err)
			})
		})
	}
	t.Logf("allocations by keys: %v", allocs)
	require.LessOrEqual(t, allocs[80], 5.0)
	require.InDelta(t, allocs[1], allocs[80], 0)
}

// TestInformersOfTheOptionsStartWithTheConnection: reads that follow are not
// answered by the API server.
func TestInformersOfTheOptionsStartWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		c, err := clusterapi.New(fleet.ClusterCache(), clusterapi.Options{
			Informers: []client.Object{&corev1.Secret{}, &corev1.Node{}},
		})
		require.NoError(t, err)
		east := fleet.Add("fleet/east")
		create(t, east, "one")
		fleet.WaitSynced()
		synctest.Wait()
		status, err := c.Fleet().Cluster(east.Key()).Status()
		require.NoError(t, err)
		require.Equal(t, 2, status.Synced)

		requests := len(east.Requests())
		reader, err := c.GetReader(t.Context(), east.Key())
		require.NoError(t, err)
		one := client.ObjectKey{Namespace: "default", Name: "one"}
		for range 200 {
			require.NoError(t, reader.Get(t.Context(), one, &corev1.Secret{}))
			require.NoError(t, reader.List(t.Context(), &corev1.NodeList{}))
		}
		require.Len(t, east.Requests(), requests)

		_, err = clusterapi.New(fleet.ClusterCache(), clusterapi.Options{Informers: []client.Object{&unregistered{}}})
		wrong, ok := errors.AsType[*clustercache.OptionError](err)
		require.True(t, ok)
		require.Equal(t, "Informers[*clusterapi_test.unregistered]", wrong.Field)
	})
}

// unregistered is a kind that no scheme has.
type unregistered struct{ corev1.Secret }

// TestErrorsNameTheClusterOnce, whatever they are made of.
func TestErrorsNameTheClusterOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, key := fleettest.NewDirectory(), fleettest.Key("a")
		cc := fleettest.Start(t, fleettest.Silent(d))
		c, err := clusterapi.New(cc, clusterapi.Options{})
		require.NoError(t, err)
		once := func(cause string) {
			_, err := c.GetClient(t.Context(), key)
			require.ErrorIs(t, err, capi.ErrClusterNotConnected)
			require.ErrorContains(t, err, cause)
			require.Equal(t, 1, strings.Count(err.Error(), key.String()), err)
		}
		once("is down: unknown cluster")
		d.Fail(key, &resolver.AccessError{Cluster: key, Err: resolver.ErrNotReady})
		require.NoError(t, cc.Cluster(key).Engage())
		synctest.Wait()
		once("not ready")
		d.Set(key, &rest.Config{
			Host: "https://192.0.2.1:1",
			Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") },
		})
		synctest.Wait()
		once("no route")
	})
}

// TestAKindWithALimitIsNotWatched: an informer would have all of it.
func TestAKindWithALimitIsNotWatched(t *testing.T) {
	fakes(t, func(t *testing.T, _ *clustercachetest.Fleet, east *clustercachetest.Cluster, c *clusterapi.ClusterCache) {
		clusterapi.Limit(c, corev1.SchemeGroupVersion.WithKind("Secret"), "kube-system")
		require.ErrorContains(t, c.Watch(t.Context(), east.Key(), watcher(func(cache.Cache) error { return nil })),
			"Cache.ByObject limits the kind")
	})
}

// TestTheTableOfCasesIsTrue compares the README with the behaviors that run on
// both.
func TestTheTableOfCasesIsTrue(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|.*\| (yes|) ?\|$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, 57)
	var listed []string
	for n, row := range rows {
		require.Equal(t, strconv.Itoa(n+1), row[1])
		if row[2] == "yes" {
			listed = append(listed, row[1])
		}
	}
	var run []string
	for _, b := range behaviors() {
		run = append(run, strings.Split(b.cases, ", ")...)
	}
	slices.SortFunc(run, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	require.Equal(t, listed, slices.Compact(run))
}
