// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

// TestReadersOnDemand proves what an operator needs that takes a reader for any
// kind that its objects name (000).
func TestReadersOnDemand(t *testing.T) {
	clusters := testenv.Start(t, 3, testenv.WithCRDs(
		testenv.SimpleCRD(widgets.Group, widgets.Kind), testenv.SimpleCRD(capiClusters.Group, capiClusters.Kind)))
	for _, b := range []struct {
		name  string
		prove func(t *testing.T, hub, east, west *testenv.Cluster)
	}{
		{"000.1 first reader lists and watches once, however many ask", firstReaderListsOnce},
		{"000.2 reader comes at once, and what has not synced is no absence", readerComesAtOnce},
		{"000.3 the hub is the zero key", hubIsTheZeroKey},
		{"000.4 any kind, without a scheme", anyKind},
		{"000.5 kinds and clusters do not mix", nothingMixes},
		{"000.6 changes reach a handler with cluster, kind and name", changesReachAHandler},
		{"000.7 four ways to have no access are told apart, and leave nothing", fourWaysToHaveNoAccess},
		{"000.8 hung cluster delays no call of another", hungClusterDelaysNobody},
		{"000.9 all who race to be first share one informer, and each is told", allWhoRaceShare},
		{"000.13 stop ends everything although a cluster is unreachable", stopEndsEverything},
		// The last one restarts a server.
		{"000.6 delete that was missed is told with its last known state", missedDeleteIsTold},
	} {
		t.Run(b.name, func(t *testing.T) { b.prove(t, clusters[0], clusters[1], clusters[2]) })
	}
}

func firstReaderListsOnce(t *testing.T, hub, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	create(t, east, configMap(ns, "one", "1"))
	r := newRemotes(t, hub)
	r.describe(t, "east", east.Kubeconfig())
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			reader, _, err := r.cc.Cluster(r.key("east")).WatchAndRead(t.Context(), configMaps)
			if err != nil || reader == nil {
				t.Errorf("%v %v", reader, err)
			}
		})
	}
	callers.Wait()
	eventually(t, "synced", func() bool {
		_, synced, err := r.cc.Cluster(r.key("east")).WatchAndRead(t.Context(), configMaps)
		require.NoError(t, err)
		return synced
	})
	got, err := readCached(t, r.cc, r.key("east"), ns, "one")
	require.NoError(t, err)
	require.Equal(t, "1", got.Data["value"])
	lists, watches := listed(t, east, "configmaps")
	require.Equal(t, 1, lists)
	streams, err := east.StreamsLists(t.Context())
	require.NoError(t, err)
	require.Equal(t, !streams, watches == 1, "a streamed list is the watch")
}

func readerComesAtOnce(t *testing.T, hub, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	create(t, east, configMap(ns, "one", "1"))
	proxy := east.Proxy(t)
	r := newRemotes(t, hub)
	r.describe(t, "east", proxy.Kubeconfig())
	watchSynced(t, r.cc, r.key("east"), &corev1.Secret{}, ns) // so that the cluster's kinds are known
	proxy.Blackhole(faultproxy.ToClient)
	reader, synced, err := r.cc.Cluster(r.key("east")).WatchAndRead(t.Context(),
		configMaps) // returns although no data arrives
	require.NoError(t, err)
	require.False(t, synced)
	for _, name := range []string{"one", "none"} {
		err = reader.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &corev1.ConfigMap{},
			clustercache.CacheOnly)
		require.ErrorIs(t, err, clustercache.ErrNotSynced)
		require.False(t, apierrors.IsNotFound(err))
	}
	require.NoError(t, proxy.Heal())
	eventually(t, "synced", func() bool {
		_, synced, err := r.cc.Cluster(r.key("east")).WatchAndRead(t.Context(), configMaps)
		require.NoError(t, err)
		return synced
	})
	_, err = readCached(t, r.cc, r.key("east"), ns, "one")
	require.NoError(t, err)
	_, err = readCached(t, r.cc, r.key("east"), ns, "none")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func hubIsTheZeroKey(t *testing.T, hub, east, _ *testenv.Cluster) {
	ns := namespace(t, hub, east)
	create(t, hub, configMap(ns, "where", "hub"))
	create(t, east, configMap(ns, "where", "east"))
	described, err := resolver.Secrets(hubClient(t, hub),
		resolver.SecretOptions{HubOptions: resolver.HubOptions{Namespace: ns}})
	require.NoError(t, err)
	create(t, hub, &corev1.Secret{ObjectMeta: configMap(ns, "east", "").ObjectMeta,
		Data: map[string][]byte{"kubeconfig": east.Kubeconfig()}})
	itself, err := resolver.Static(map[client.ObjectKey]*rest.Config{{}: hub.Config()})
	require.NoError(t, err)
	cc, _ := run(t, resolved(t, resolver.Chain(itself, described)))
	for key, want := range map[client.ObjectKey]string{{}: "hub", {Namespace: ns, Name: "east"}: "east"} {
		w := watchSynced(t, cc, key, &corev1.ConfigMap{}, ns)
		require.Equal(t, key, w.Cluster())
		got, err := readCached(t, cc, key, ns, "where")
		require.NoError(t, err)
		require.Equal(t, want, got.Data["value"])
	}
}

func anyKind(t *testing.T, hub, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	r := newRemotes(t, hub)
	r.describe(t, "east", east.Kubeconfig())
	changes := hear(t, r.cc, ns)
	watchSynced(t, r.cc, r.key("east"), clustercache.Kind(widgets), ns)
	widget := unstructuredOf(widgets, ns, "round")
	widget.Object["spec"] = map[string]any{"size": int64(3), "parts": []any{"a", map[string]any{"b": "c"}}}
	create(t, east, widget)
	changes.await(t, r.key("east"), widgets, "round", informerpool.Added)
	got := unstructuredOf(widgets, "", "")
	require.NoError(t, r.cc.Cluster(r.key("east")).Reader().Get(t.Context(), client.ObjectKeyFromObject(widget), got,
		clustercache.CacheOnly))
	require.Equal(t, widget.Object["spec"], got.Object["spec"])
}

func nothingMixes(t *testing.T, hub, east, west *testenv.Cluster) {
	ns := namespace(t, east, west)
	r := newRemotes(t, hub)
	r.describe(t, "east", east.Kubeconfig())
	r.describe(t, "west", west.Kubeconfig())
	changes := hear(t, r.cc, ns)
	for _, name := range []string{"east", "west"} {
		watchSynced(t, r.cc, r.key(name), &corev1.ConfigMap{}, ns)
		watchSynced(t, r.cc, r.key(name), clustercache.Kind(widgets), ns)
	}
	create(t, east, configMap(ns, "same", "east"), unstructuredOf(widgets, ns, "same"))
	create(t, west, configMap(ns, "same", "west"))
	changes.await(t, r.key("east"), configMaps, "same", informerpool.Added)
	changes.await(t, r.key("east"), widgets, "same", informerpool.Added)
	changes.await(t, r.key("west"), configMaps, "same", informerpool.Added)
	require.NoError(t, east.Client().Delete(t.Context(), configMap(ns, "same", "")))
	changes.await(t, r.key("east"), configMaps, "same", informerpool.Deleted)
	// Earlier events of west have been delivered by the time this one is.
	create(t, west, configMap(ns, "later", "west"))
	changes.await(t, r.key("west"), configMaps, "later", informerpool.Added)

	_, err := readCached(t, r.cc, r.key("east"), ns, "same")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	got, err := readCached(t, r.cc, r.key("west"), ns, "same")
	require.NoError(t, err)
	require.Equal(t, "west", got.Data["value"])
	require.Equal(t, []informerpool.EventType{informerpool.Added}, changes.of(r.key("west"), configMaps, "same"))
	require.Equal(t, []informerpool.EventType{informerpool.Added}, changes.of(r.key("east"), widgets, "same"))
	require.Empty(t, changes.of(r.key("west"), widgets, "same"))
	// Ending one informer must not end the other.
	for _, key := range []client.ObjectKey{r.key("east"), r.key("west")} {
		s, err := r.cc.Cluster(key).Status()
		require.NoError(t, err)
		require.Equal(t, 2, s.Informers)
	}
}

func changesReachAHandler(t *testing.T, hub, east, west *testenv.Cluster) {
	ns := namespace(t, east, west)
	r := newRemotes(t, hub)
	r.describe(t, "east", east.Kubeconfig())
	r.describe(t, "west", west.Kubeconfig())
	changes := hear(t, r.cc, ns)
	for name, c := range map[string]*testenv.Cluster{"east": east, "west": west} {
		watchSynced(t, r.cc, r.key(name), &corev1.ConfigMap{}, ns)
		watchSynced(t, r.cc, r.key(name), clustercache.Kind(widgets), ns)
		for _, o := range []client.Object{configMap(ns, "o", "1"), unstructuredOf(widgets, ns, "o")} {
			gvk := widgets
			if _, ok := o.(*corev1.ConfigMap); ok {
				gvk = configMaps
			}
			create(t, c, o)
			changes.await(t, r.key(name), gvk, "o", informerpool.Added)
			o.SetLabels(map[string]string{"changed": "yes"})
			require.NoError(t, c.Client().Update(t.Context(), o))
			changes.await(t, r.key(name), gvk, "o", informerpool.Updated)
			require.NoError(t, c.Client().Delete(t.Context(), o))
			changes.await(t, r.key(name), gvk, "o", informerpool.Deleted)
		}
	}
}

func missedDeleteIsTold(t *testing.T, hub, _, west *testenv.Cluster) {
	ns := namespace(t, west)
	create(t, west, configMap(ns, "gone", "last words"), configMap(ns, "stays", ""))
	proxy := west.Proxy(t)
	r := newRemotes(t, hub)
	r.describe(t, "west", proxy.Kubeconfig())
	changes := hear(t, r.cc, ns)
	watchSynced(t, r.cc, r.key("west"), &corev1.ConfigMap{}, ns)
	changes.await(t, r.key("west"), configMaps, "gone", informerpool.Added)
	proxy.Refuse()
	require.NoError(t, west.Client().Delete(t.Context(), configMap(ns, "gone", "")))
	require.NoError(t, west.Restart(t.Context())) // its watch history starts over, without the delete
	require.NoError(t, proxy.Heal())
	changes.await(t, r.key("west"), configMaps, "gone", informerpool.Deleted)
	changes.mu.Lock()
	last := changes.events[len(changes.events)-1]
	changes.mu.Unlock()
	require.True(t, last.FinalStateUnknown)
	got := &corev1.ConfigMap{}
	require.NoError(t, last.Old.Into(got))
	require.Equal(t, "last words", got.Data["value"])
	require.Equal(t, []informerpool.EventType{informerpool.Added}, changes.of(r.key("west"), configMaps, "stays"))
}

func fourWaysToHaveNoAccess(t *testing.T, hub, east, _ *testenv.Cluster) {
	r := newRemotes(t, hub,
		func(o *resolver.HubOptions) { o.ReadyObject = resolver.ClusterAPIReady(capiClusters.Version) })
	for _, name := range []string{"no-secret", "no-key", "bad", "good"} {
		object := unstructuredOf(capiClusters, r.namespace, name)
		object.Object["status"] = map[string]any{"initialization": map[string]any{"controlPlaneInitialized": true}}
		status := object.DeepCopy()
		create(t, hub, object)
		status.SetResourceVersion(object.GetResourceVersion())
		require.NoError(t, hub.Client().Status().Update(t.Context(), status))
	}
	r.describe(t, "bad", []byte("users: not a list"))
	r.describe(t, "good", east.Kubeconfig())
	r.describe(t, "no-cluster", east.Kubeconfig()) // left over from earlier
	noKey := r.secret("no-key", nil)
	noKey.Data = map[string][]byte{"other": east.Kubeconfig()}
	create(t, hub, noKey)
	is := map[string]func(error) bool{
		"no-cluster": func(err error) bool { return errors.Is(err, resolver.ErrClusterNotFound) },
		"no-secret":  func(err error) bool { return errors.Is(err, resolver.ErrSecretNotFound) },
		"no-key":     func(err error) bool { return errors.Is(err, resolver.ErrKeyMissing) },
		"bad":        func(err error) bool { _, ok := errors.AsType[*resolver.KubeconfigError](err); return ok },
	}
	watchSynced(t, r.cc, r.key("good"), &corev1.ConfigMap{}, "default")
	for name := range is {
		require.NoError(t, r.cc.Cluster(r.key(name)).Engage())
		eventually(t, name, func() bool { return is[name](failure(r.cc, r.key(name))) })
		err := failure(r.cc, r.key(name))
		for other, isOther := range is {
			require.Equal(t, name == other, isOther(err), "%s taken for %s: %v", name, other, err)
		}
		t.Logf("%s: %v", name, err)
		reader, _, err := r.cc.Cluster(r.key(name)).WatchAndRead(t.Context(), configMaps) // must not hang
		require.NoError(t, err)
		require.Error(t, reader.List(t.Context(), &corev1.ConfigMapList{}))
	}
	r.stop()
	again := newRemotes(t, hub)
	for name := range is {
		require.NoError(t, again.cc.Cluster(again.key(name)).Engage())
		again.cc.Cluster(again.key(name)).Disengage()
	}
	eventually(t, "nothing is known any more",
		func() bool { return len(again.cc.Clusters()) == 0 && len(again.cc.Statuses()) == 0 })
}

func hungClusterDelaysNobody(t *testing.T, hub, east, west *testenv.Cluster) {
	ns := namespace(t, east)
	create(t, east, configMap(ns, "one", "1"))
	proxy := west.Proxy(t)
	proxy.Blackhole(faultproxy.Both)
	r := newRemotes(t, hub)
	r.describe(t, "hung", proxy.Kubeconfig())
	_, _, err := r.cc.Cluster(r.key("hung")).WatchAndRead(t.Context(), configMaps)
	require.NoError(t, err)
	require.NoError(t, proxy.WaitAccepted(t.Context(), 1)) // the dial is in progress

	r.describe(t, "east", east.Kubeconfig())
	watchSynced(t, r.cc, r.key("east"), &corev1.ConfigMap{}, ns)
	var took []time.Duration
	for range 200 {
		begin := time.Now()
		_, _, err := r.cc.Cluster(r.key("hung")).WatchAndRead(t.Context(), widgets)
		require.NoError(t, err)
		_, _, err = r.cc.Cluster(r.key("east")).WatchAndRead(t.Context(), configMaps)
		require.NoError(t, err)
		_, err = readCached(t, r.cc, r.key("east"), ns, "one")
		require.NoError(t, err)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("two calls and a read: median %s, slowest %s", took[100], took[199])
	require.Less(t, took[100], 50*time.Millisecond) // the median, because the slowest one depends on the scheduler
}

func allWhoRaceShare(t *testing.T, hub, east, _ *testenv.Cluster) {
	ns := namespace(t, east)
	create(t, east, configMap(ns, "early", "1"))
	r := newRemotes(t, hub)
	r.describe(t, "east", east.Kubeconfig())
	const racers = 20
	handlers := make([]*heard, racers)
	for i := range handlers {
		handlers[i] = hear(t, r.cc, ns, &corev1.ConfigMap{})
	}
	start := make(chan struct{})
	var done sync.WaitGroup
	watches := make([]*clustercache.Watch, racers)
	for i := range watches {
		done.Go(func() {
			<-start
			w, err := r.cc.Cluster(r.key("east")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
			if err != nil {
				t.Error(err)
				return
			}
			watches[i] = w
		})
	}
	close(start)
	done.Wait()
	for _, w := range watches {
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	create(t, east, configMap(ns, "late", "2"))
	for _, h := range handlers {
		h.await(t, r.key("east"), configMaps, "late", informerpool.Added)
		require.Equal(t, []informerpool.EventType{informerpool.Added}, h.of(r.key("east"), configMaps, "early"))
	}
	lists, _ := listed(t, east, "configmaps")
	require.Equal(t, 1, lists)
	// Release all watches but one, which must not be affected.
	for _, w := range watches[1:] {
		w.Release()
	}
	create(t, east, configMap(ns, "last", "3"))
	handlers[racers-1].await(t, r.key("east"), configMaps, "last", informerpool.Added)
}

func stopEndsEverything(t *testing.T, hub, east, west *testenv.Cluster) {
	before := runtime.NumGoroutine()
	proxy := west.Proxy(t)
	r := newRemotes(t, hub)
	r.describe(t, "east", east.Kubeconfig())
	r.describe(t, "hung", proxy.Kubeconfig())
	for _, name := range []string{"east", "hung"} {
		watchSynced(t, r.cc, r.key(name), &corev1.ConfigMap{}, "")
	}
	proxy.Blackhole(faultproxy.Both)
	waiting := make(chan error, 1)
	w, err := r.cc.Cluster(r.key("hung")).Watch(t.Context(), clustercache.Kind(widgets))
	require.NoError(t, err)
	go func() { waiting <- w.WaitForSync(t.Context()) }()
	begin := time.Now()
	r.stop()
	took := time.Since(begin)
	t.Logf("stopped in %s", took)
	require.Less(t, took, 10*time.Second) // it takes a moment; a network timeout would take longer
	require.ErrorIs(t, <-waiting, clustercache.ErrClosed)
	require.NoError(t, proxy.Close()) // its goroutines run in this process, too
	eventually(t, "goroutines return to where they were", func() bool {
		return runtime.NumGoroutine() <= before+hubGoroutines
	})
	require.ErrorIs(t, r.cc.Cluster(r.key("east")).Engage(), clustercache.ErrClosed)
}

// hubGoroutines is the number of goroutines of the idle connection of the
// test's own hub client.
const hubGoroutines = 4

// TestRemoteAssemblies proves what an operator needs that rolls out to clusters
// that appear, disappear and are not ready yet (003).
func TestRemoteAssemblies(t *testing.T) {
	t.Parallel()
	clusters := testenv.Start(t, 2, testenv.WithCRDs(
		testenv.SimpleCRD(kustomizations.Group, kustomizations.Kind),
		testenv.SimpleCRD(capiClusters.Group, capiClusters.Kind)))
	for _, b := range []struct {
		name  string
		prove func(t *testing.T, hub, remote *testenv.Cluster)
	}{
		{"003.1 Secret that is not there yet is no access, and its coming an event", secretComesLater},
		{"003.2 nothing is dialled before the cluster is ready", nothingIsDialledBeforeReady},
		{"003.3 deleted object is an event within seconds", deletedObjectIsAnEvent},
		{"003.4 what a Secret stands for is the resolver's to say", foreignSecretsAreIgnored},
		{"003.5 Secret deleted is a disconnect, and made again a resume", secretDeletedAndMadeAgain},
		{"003.7 live client where the cache is no help", liveClient},
		{"003.8 cluster is cleaned up without contacting it", cleanedUpWithoutContact},
	} {
		t.Run(b.name, func(t *testing.T) { b.prove(t, clusters[0], clusters[1]) })
	}
}

// secretComesLater uses Flux's convention, in which the object names the
// Secret.
func secretComesLater(t *testing.T, hub, remote *testenv.Cluster) {
	ns := namespace(t, hub, remote)
	apps := unstructuredOf(kustomizations, ns, "apps")
	apps.Object["spec"] = map[string]any{"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "prod"}}}
	create(t, hub, apps)
	create(t, remote, configMap(ns, "one", "1"))
	flux, err := resolver.Flux(hubClient(t, hub),
		resolver.FluxOptions{Kind: kustomizations, HubOptions: resolver.HubOptions{Namespace: ns, Grace: -1}})
	require.NoError(t, err)
	cc, _ := run(t, resolved(t, flux))
	delivered := clusterEvents(t, cc)
	cluster := client.ObjectKeyFromObject(apps)
	w, err := cc.Cluster(cluster).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
	require.NoError(t, err)
	eventually(t, "not ready is told",
		func() bool { return errors.Is(failure(cc, cluster), resolver.ErrSecretNotFound) })
	err = cc.Cluster(cluster).Reader().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "one"},
		&corev1.ConfigMap{})
	require.ErrorIs(t, err, clustercache.ErrNotConnected)
	require.ErrorIs(t, err, resolver.ErrNoAccess)

	create(t, hub, &corev1.Secret{ObjectMeta: configMap(ns, "prod", "").ObjectMeta,
		Data: map[string][]byte{"value": remote.Kubeconfig()}})
	next(t, delivered, cluster, events.Connected)
	require.NoError(t, w.WaitForSync(t.Context()))
	_, err = readCached(t, cc, cluster, ns, "one")
	require.NoError(t, err)
}

func nothingIsDialledBeforeReady(t *testing.T, hub, remote *testenv.Cluster) {
	proxy := remote.Proxy(t)
	r := newRemotes(t, hub,
		func(o *resolver.HubOptions) { o.ReadyObject = resolver.ClusterAPIReady(capiClusters.Version) })
	delivered := clusterEvents(t, r.cc)
	object := unstructuredOf(capiClusters, r.namespace, "new")
	create(t, hub, object)
	r.describe(t, "new", proxy.Kubeconfig()) // providers write it before any server responds
	require.NoError(t, r.cc.Cluster(r.key("new")).Engage())
	eventually(t, "not ready is told",
		func() bool { return errors.Is(failure(r.cc, r.key("new")), resolver.ErrNotReady) })
	s, err := r.cc.Cluster(r.key("new")).Status()
	require.NoError(t, err)
	require.Equal(t, status.PhasePending, s.Phase)
	require.Zero(t, proxy.Stats().Accepted)

	object.Object["status"] = map[string]any{"initialization": map[string]any{"controlPlaneInitialized": true}}
	require.NoError(t, hub.Client().Status().Update(t.Context(), object))
	next(t, delivered, r.key("new"), events.Connected)
	require.Positive(t, proxy.Stats().Accepted)
}

func deletedObjectIsAnEvent(t *testing.T, hub, remote *testenv.Cluster) {
	ns := namespace(t, remote)
	create(t, remote, configMap(ns, "rolled-out", "1"))
	r := newRemotes(t, hub)
	r.describe(t, "remote", remote.Kubeconfig())
	changes := hear(t, r.cc, ns)
	watchSynced(t, r.cc, r.key("remote"), &corev1.ConfigMap{}, ns)
	changes.await(t, r.key("remote"), configMaps, "rolled-out", informerpool.Added)
	begin := time.Now()
	require.NoError(t, remote.Client().Delete(t.Context(), configMap(ns, "rolled-out", "")))
	changes.await(t, r.key("remote"), configMaps, "rolled-out", informerpool.Deleted)
	t.Logf("after %s", time.Since(begin))
	require.Less(t, time.Since(begin), 20*time.Second, "who polls is as quick")
}

func foreignSecretsAreIgnored(t *testing.T, hub, remote *testenv.Cluster) {
	r := newRemotes(t, hub)
	r.describe(t, "mine", remote.Kubeconfig())
	r.describe(t, "has-kubeconfig", remote.Kubeconfig()) // a cluster's name may itself end in the suffix
	foreign := r.secret("user", remote.Kubeconfig())
	foreign.Labels["cluster.x-k8s.io/cluster-name"] = "mine" // a kubeconfig for the users of the cluster mine
	unlabelled := r.secret("unlabelled", remote.Kubeconfig())
	unlabelled.Labels = nil
	other := r.secret("other", remote.Kubeconfig())
	other.Name = "other" // without the suffix
	create(t, hub, foreign, unlabelled, other)
	o := resolver.HubOptions{Namespace: r.namespace, Grace: -1}
	found, err := resolver.ClusterAPI(hubClient(t, hub), o)
	require.NoError(t, err)
	options := resolved(t, found)
	options.Discover = true
	cc, _ := run(t, options)
	delivered := clusterEvents(t, cc)
	next(t, delivered, r.key("mine"), events.Connected)
	r.describe(t, "last", remote.Kubeconfig()) // its event arrives after those of all the others
	next(t, delivered, r.key("last"), events.Connected)
	eventually(t, "all are known", func() bool { return len(cc.Clusters()) == 3 })
	require.Equal(t, []client.ObjectKey{r.key("has-kubeconfig"), r.key("last"), r.key("mine")}, cc.Clusters())
}

func secretDeletedAndMadeAgain(t *testing.T, hub, remote *testenv.Cluster) {
	ns := namespace(t, remote)
	create(t, remote, configMap(ns, "one", "1"))
	r := newRemotes(t, hub)
	r.describe(t, "remote", remote.Kubeconfig())
	delivered := clusterEvents(t, r.cc)
	changes := hear(t, r.cc, ns)
	owner := clustercache.Owner{GVK: kustomizations, ObjectKey: r.key("assembly")}
	target := clustercache.Target{Cluster: r.key("remote"), Kind: &corev1.ConfigMap{},
		Options: []client.ListOption{client.InNamespace(ns)}}
	_, err := r.cc.Declare(t.Context(), owner, target)
	require.NoError(t, err)
	changes.await(t, r.key("remote"), configMaps, "one", informerpool.Added)
	next(t, delivered, r.key("remote"), events.Connected)

	require.NoError(t, hub.Client().Delete(t.Context(), r.secret("remote", nil)))
	e := next(t, delivered, r.key("remote"), events.Disconnected)
	require.Equal(t, status.PhasePending, e.Phase)
	require.Equal(t, status.ReasonNoAccess, e.Reason)
	silent := received(t, remote)
	create(t, remote, configMap(ns, "meanwhile", "2"))
	_, err = readCached(t, r.cc, r.key("remote"), ns, "one")
	require.ErrorIs(t, err, clustercache.ErrNotConnected)
	require.Equal(t, silent, received(t, remote), "asked without access")
	require.Empty(t, changes.of(r.key("remote"), configMaps, "meanwhile"))

	r.describe(t, "remote", remote.Kubeconfig())
	next(t, delivered, r.key("remote"), events.Connected)
	changes.await(t, r.key("remote"), configMaps, "meanwhile", informerpool.Added)
	require.Equal(t, []informerpool.EventType{informerpool.Added}, changes.of(r.key("remote"), configMaps, "one"))
	lists, _ := listed(t, remote, "configmaps")
	require.Equal(t, 1, lists)
}

func liveClient(t *testing.T, hub, remote *testenv.Cluster) {
	ns := namespace(t, remote)
	// The account may get and write, but neither list nor watch, so no cache is
	// possible.
	account, err := remote.AddServiceAccount(t.Context(), ns, "writer", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"},
		Verbs: []string{"get", "create", "update", "delete"},
	})
	require.NoError(t, err)
	r := newRemotes(t, hub)
	r.describe(t, "remote", account.Kubeconfig())
	w, err := r.cc.Cluster(r.key("remote")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns))
	require.NoError(t, err)
	err = w.WaitForSync(t.Context())
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	c, err := r.cc.Cluster(r.key("remote")).Client()
	require.NoError(t, err)
	o := configMap(ns, "one", "1")
	require.NoError(t, c.Create(t.Context(), o))
	o.Data["value"] = "2"
	require.NoError(t, c.Update(t.Context(), o))
	got, origin := &corev1.ConfigMap{}, clustercache.Origin{Cached: true}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), got, &origin))
	require.Equal(t, "2", got.Data["value"])
	require.False(t, origin.Cached)
	require.NoError(t, c.Delete(t.Context(), o))
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), got)))
}

// cleanedUpWithoutContact: the machines disappear before the object that
// describes them.
func cleanedUpWithoutContact(t *testing.T, hub, remote *testenv.Cluster) {
	ns := namespace(t, hub, remote)
	create(t, remote, configMap(ns, "one", "1"))
	proxy := remote.Proxy(t)
	described, err := resolver.Secrets(hubClient(t, hub), resolver.SecretOptions{
		HubOptions: resolver.HubOptions{Namespace: ns, Grace: -1}, ID: func(s *corev1.Secret) (resolver.Cluster, bool) {
			return client.ObjectKeyFromObject(s), true
		},
	})
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: configMap(ns, "remote", "").ObjectMeta,
		Data: map[string][]byte{"value": proxy.Kubeconfig()}}
	create(t, hub, secret)
	o := resolved(t, described)
	o.Discover = true
	cc, _ := run(t, o)
	cluster := client.ObjectKeyFromObject(secret)
	delivered := clusterEvents(t, cc)
	changes := hear(t, cc, ns)
	w := watchSynced(t, cc, cluster, &corev1.ConfigMap{}, ns)
	changes.await(t, cluster, configMaps, "one", informerpool.Added)

	proxy.Blackhole(faultproxy.Both)
	sent := proxy.Stats().ToServer
	require.NoError(t, hub.Client().Delete(t.Context(), secret))
	next(t, delivered, cluster, events.Removed)
	changes.await(t, cluster, configMaps, "one", informerpool.Deleted)
	require.ErrorIs(t, cc.Cluster(cluster).Reader().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "one"},
		&corev1.ConfigMap{}), clustercache.ErrUnknownCluster)
	w.Release()
	eventually(t, "it is forgotten", func() bool { return len(cc.Clusters()) == 0 && len(cc.Statuses()) == 0 })
	require.Equal(t, sent, proxy.Stats().ToServer)
}
