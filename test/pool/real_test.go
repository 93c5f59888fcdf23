// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

var churnTime = flag.Duration("churn.time", 8*time.Second, "how long TestOnRealClusters takes and gives back informers")

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// TestOnRealClusters runs everything that only a real API server can prove, on
// three of them.
func TestOnRealClusters(t *testing.T) {
	clusters := testenv.Start(t, 3)
	t.Run("OneRequestHoweverManyLeases", func(t *testing.T) { realOneRequest(t, clusters[0]) })
	t.Run("ChurnLeavesNothing", func(t *testing.T) { realChurn(t, clusters) })
	t.Run("CutConnectionResumesWithoutAList", func(t *testing.T) { realCut(t, clusters[0]) })
	t.Run("PagedListsEqualStreamedOnes", func(t *testing.T) { realPaged(t, clusters[0]) })
	t.Run("RefusalHealsWhenTheRuleComes", func(t *testing.T) { realForbidden(t, clusters[1]) })
	t.Run("DefinitionComesGoesAndChangesScope", func(t *testing.T) { realDefinition(t, clusters[1]) })
	t.Run("RestartIsSilentForUnchangedObjects", func(t *testing.T) { realRestart(t, clusters[2]) })
	t.Run("RollbackStartsANewHistory", func(t *testing.T) { realRollback(t, clusters[2]) })
}

// realPool returns a pool on real clusters, whose keys name them by their
// index, and the clients to count connections by.
func realPool(t *testing.T, change func(*informerpool.Options), configs ...*rest.Config) *informerpool.Pool {
	t.Helper()
	endpoints := map[types.NamespacedName]informerpool.Endpoint{}
	clients := make([]*http.Client, 0, len(configs))
	for i, c := range configs {
		c = rest.CopyConfig(c)
		c.UserAgent = t.Name()
		httpClient, err := rest.HTTPClientFor(c)
		require.NoError(t, err)
		clients = append(clients, httpClient)
		endpoints[types.NamespacedName{Name: fmt.Sprint(i)}] = informerpool.Endpoint{Client: httpClient, URL: c.Host}
	}
	o := informerpool.Options{
		Source: informerpool.FromREST(func(_ context.Context, cluster types.NamespacedName) (informerpool.Endpoint,
			error) {
			return endpoints[cluster], nil
		}),
		MaxBackoff: 2 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	pool, err := informerpool.New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		began := time.Now()
		require.NoError(t, pool.Close(context.Background()))
		require.Less(t, time.Since(began), 10*time.Second, "it waits for no server")
		for _, c := range clients {
			utilnet.CloseIdleConnectionsFor(c.Transport)
		}
	})
	return pool
}

func realKey(cluster int, gvr schema.GroupVersionResource, namespace string) informerpool.Key {
	return informerpool.Key{Cluster: types.NamespacedName{Name: fmt.Sprint(cluster)}, Resource: gvr,
		Namespace: namespace}
}

// patience bounds what other processes bring about on a busy machine.
const patience = 90 * time.Second

func requireSynced(t *testing.T, l *informerpool.Lease) {
	t.Helper()
	require.NoError(t, waitForSync(t, l))
}

func waitForSync(t *testing.T, l *informerpool.Lease) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return l.WaitForSync(ctx)
}

// eventually waits for a condition that another process brings about.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, patience, 20*time.Millisecond, what)
}

func newNamespace(t *testing.T, c *testenv.Cluster) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Client().Create(t.Context(), ns))
	return ns.Name
}

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string]string{"k": value}}
}

func create(t *testing.T, c *testenv.Cluster, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		require.NoError(t, c.Client().Create(t.Context(), o))
	}
}

// requireEqualsServer compares a cache with a list of the server.
func requireEqualsServer(t *testing.T, c *testenv.Cluster, l *informerpool.Lease) {
	t.Helper()
	want := map[string]string{}
	var list corev1.ConfigMapList
	require.NoError(t, c.Client().List(t.Context(), &list, client.InNamespace(l.Key().Namespace)))
	for _, o := range list.Items {
		want[o.Namespace+"/"+o.Name] = fmt.Sprintf("%s@%s", o.UID, o.ResourceVersion)
	}
	eventually(t, "the cache shows the list's version", func() bool {
		return l.Status().ResourceVersion != "" && fmt.Sprint(pooltest.Contents(t, l)) == fmt.Sprint(want)
	})
}

func asked(t *testing.T, c *testenv.Cluster, gvr schema.GroupVersionResource) (lists, watches int) {
	t.Helper()
	all, err := c.Requests(testenv.UserAgent(t.Name()), testenv.Resource(gvr.Resource))
	require.NoError(t, err)
	for _, r := range all {
		switch {
		case r.Unstreamed, isQuestion(t, r):
		case r.Verb == "list":
			lists++
		case r.Verb == "watch":
			watches++
		}
	}
	return lists, watches
}

// isQuestion reports whether a request is only the history question.
func isQuestion(t *testing.T, r testenv.Request) bool {
	t.Helper()
	u, err := url.Parse(r.URI)
	require.NoError(t, err)
	return strings.Contains(u.Query().Get("fieldSelector"), "fleetcache-history") || u.Query().Get("limit") == "1"
}

func realOneRequest(t *testing.T, c *testenv.Cluster) {
	p := realPool(t, nil, c.Config())
	var group sync.WaitGroup
	for range 100 {
		l := pooltest.Acquire(t, p, realKey(0, configMaps, ""))
		group.Go(func() {
			if err := l.WaitForSync(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	eventually(t, "it is watched", func() bool { _, watches := asked(t, c, configMaps); return watches > 0 })
	lists, watches := asked(t, c, configMaps)
	require.Equal(t, own(t, c), lists)
	require.Equal(t, 1, watches, "the list is streamed by the watch, if the server does that")
}

// own returns how many lists an informer makes besides its watch: none if the
// server streams lists.
func own(t *testing.T, c *testenv.Cluster) int {
	t.Helper()
	streams, err := c.StreamsLists(t.Context())
	require.NoError(t, err)
	if streams {
		return 0
	}
	return 1
}

func realPaged(t *testing.T, c *testenv.Cluster) {
	ns := newNamespace(t, c)
	for i := range 25 {
		create(t, c, configMap(ns, fmt.Sprint("o", i), "1"))
	}
	streamed := pooltest.Acquire(t, realPool(t, nil, c.Config()), realKey(0, configMaps, ns))
	paged := pooltest.Acquire(t, realPool(t, func(o *informerpool.Options) { o.PagedLists, o.PageSize = true, 4 },
		c.Config()), realKey(0, configMaps, ns))
	requireSynced(t, streamed)
	requireSynced(t, paged)
	lists, _ := asked(t, c, configMaps)
	require.Equal(t, 7+own(t, c), lists) // kube-root-ca.crt is missing: no controller manager runs
	requireEqualsServer(t, c, paged)
	requireEqualsServer(t, c, streamed)
	var a, b corev1.ConfigMap
	require.NoError(t, streamed.GetInto(ns, "o7", &a))
	require.NoError(t, paged.GetInto(ns, "o7", &b))
	require.Equal(t, a, b)
	var live corev1.ConfigMap
	require.NoError(t, c.Client().Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "o7"}, &live))
	live.TypeMeta = a.TypeMeta
	require.NotEmpty(t, live.ManagedFields)
	require.Equal(t, live, a, "the same as a live read")
}

// realChurn has 100 goroutines acquire and release 20 keys in three clusters,
// and then checks that nothing is left.
func realChurn(t *testing.T, clusters []*testenv.Cluster) {
	var started, informers atomic.Int64
	logger := funcr.New(func(_, args string) {
		switch {
		case strings.Contains(args, "Informer started"):
			started.Add(1)
			informers.Add(1)
		case strings.Contains(args, "Informer stopped"):
			informers.Add(-1)
		}
	}, funcr.Options{Verbosity: 1})
	configs := make([]*rest.Config, 0, len(clusters))
	for _, c := range clusters {
		configs = append(configs, c.Config())
	}
	p := realPool(t, func(o *informerpool.Options) { o.Logger, o.Linger = logger, 20*time.Millisecond }, configs...)
	resources := []schema.GroupVersionResource{
		configMaps, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "services"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, {Version: "v1", Resource: "namespaces"},
	}
	var keys []informerpool.Key
	for i := range 20 {
		keys = append(keys, realKey(i%len(clusters), resources[i/len(clusters)], ""))
	}
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), *churnTime)
	defer cancel()
	var group sync.WaitGroup
	var rounds, synced atomic.Int64
	for range 100 {
		group.Go(func() {
			sub := p.Subscribe(informerpool.HandlerFunc(func(e informerpool.Event) { _ = e.Object().GetName() }))
			defer sub.Stop()
			for ctx.Err() == nil {
				l, err := p.Acquire(ctx, keys[rand.IntN(len(keys))])
				if err != nil {
					return
				}
				if rand.IntN(2) == 0 && sub.Add(l) != nil {
					t.Error("add")
				}
				if rand.IntN(3) > 0 && l.WaitForSync(ctx) == nil {
					synced.Add(1)
					if _, _, err := l.List(informerpool.Query{}); err != nil {
						t.Error(err)
					}
				}
				if err := l.Close(context.Background()); err != nil {
					t.Error(err)
				}
				rounds.Add(1)
				select { // so that most keys have no lease most of the time
				case <-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	group.Wait()
	eventually(t, "every informer is stopped", func() bool { return len(p.Keys()) == 0 })
	eventually(t, "every goroutine ends", func() bool { return runtime.NumGoroutine() <= before+2*len(clusters) })
	lists, watches := 0, 0
	for _, c := range clusters {
		all, err := c.Requests(testenv.UserAgent(t.Name()))
		require.NoError(t, err)
		for _, r := range all {
			switch {
			case r.Unstreamed:
			case r.Verb == "list":
				lists++
			case r.Verb == "watch":
				watches++
			}
		}
	}
	t.Logf("%d rounds, %d synced, %d informers, %d lists, %d watches", rounds.Load(), synced.Load(), started.Load(),
		lists, watches)
	require.LessOrEqual(t, int64(lists), started.Load()*int64(own(t, clusters[0])),
		"a list only where none are streamed")
	require.LessOrEqual(t, int64(watches), started.Load(), "at most one request in an informer's life")
	require.Zero(t, informers.Load())
	require.Greater(t, started.Load(), int64(2*len(keys)), "informers must have been stopped and started again")
}

func realCut(t *testing.T, c *testenv.Cluster) {
	proxy := c.Proxy(t)
	ns := newNamespace(t, c)
	create(t, c, configMap(ns, "a", "1"), configMap(ns, "b", "1"), configMap(ns, "c", "1"))
	p := realPool(t, nil, proxy.Config())
	l := pooltest.Acquire(t, p, realKey(0, configMaps, ns))
	r := pooltest.Record(t, p, l)
	requireSynced(t, l)
	eventually(t, "all is told", func() bool { return len(r.State()) == 3 })
	r.Take()
	for round := range 3 {
		proxy.Refuse()
		if round%2 == 0 {
			proxy.ResetAll()
		} else {
			proxy.CloseAll()
		}
		eventually(t, "the cut is noticed", func() bool { return l.Status().State == informerpool.StateDegraded })
		changed := configMap(ns, "a", fmt.Sprint(round))
		changed.Data["round"] = "x"
		require.NoError(t, c.Client().Update(t.Context(), changed))
		require.NoError(t, proxy.Heal())
		eventually(t, "the change arrives", func() bool { return len(r.State()) == 3 && r.Count() == 1 })
		require.Len(t, r.Take(), 1, "no event for what did not change")
	}
	requireEqualsServer(t, c, l)
	lists, _ := asked(t, c, configMaps)
	require.Equal(t, own(t, c), lists)
	require.Zero(t, l.Status().Resyncs)
	r.RequireSound(t)
}

func realRestart(t *testing.T, c *testenv.Cluster) {
	ns := newNamespace(t, c)
	create(t, c, configMap(ns, "a", "1"), configMap(ns, "b", "1"))
	p := realPool(t, nil, c.Config())
	l := pooltest.Acquire(t, p, realKey(0, configMaps, ns))
	r := pooltest.Record(t, p, l)
	requireSynced(t, l)
	eventually(t, "all is told", func() bool { return len(r.State()) == 2 })
	r.Take()
	require.NoError(t, c.Kill()) // an orderly stop would wait a minute for the watch to end
	eventually(t, "the end is noticed", func() bool { return l.Status().State == informerpool.StateDegraded })
	require.Len(t, pooltest.Contents(t, l), 2, "what is known stays readable")
	require.NoError(t, c.StartAPIServer(t.Context()))
	create(t, c, configMap(ns, "c", "1"))
	eventually(t, "events flow again", func() bool { return len(r.State()) == 3 })
	require.Equal(t, 1, r.Count())
	require.LessOrEqual(t, l.Status().Resyncs, int64(1), "its watch history starts anew: one re-sync at most")
	requireEqualsServer(t, c, l)
	r.RequireSound(t)
}

func realRollback(t *testing.T, c *testenv.Cluster) {
	ns := newNamespace(t, c)
	create(t, c, configMap(ns, "kept", "1"))
	old, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	create(t, c, configMap(ns, "ghost", "1"))
	for i := range 50 {
		require.NoError(t, c.Client().Update(t.Context(), configMap(ns, "ghost", fmt.Sprint("x", i))))
	}
	var rollbacks atomic.Int64
	p := realPool(t, func(o *informerpool.Options) { o.OnRollback = func(informerpool.Key) { rollbacks.Add(1) } },
		c.Config())
	l := pooltest.Acquire(t, p, realKey(0, configMaps, ns))
	r := pooltest.NewRecorder()
	r.Epochs = true
	pooltest.Subscribe(t, p, l, r)
	requireSynced(t, l)
	eventually(t, "all is told", func() bool { return len(r.State()) == 2 })
	r.Take()
	require.NoError(t, c.Rollback(t.Context(), old))
	eventually(t, "the ghost is gone", func() bool { return len(r.State()) == 1 })
	create(t, c, configMap(ns, "new", "1"))
	requireEqualsServer(t, c, l)
	require.EqualValues(t, 1, rollbacks.Load())
	r.RequireSound(t)
}

func realForbidden(t *testing.T, c *testenv.Cluster) {
	user, err := c.AddUser(t.Context(), "nobody")
	require.NoError(t, err)
	p := realPool(t, nil, user.Config())
	l := pooltest.Acquire(t, p, realKey(0, configMaps, ""))
	err = waitForSync(t, l)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "late"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "nobody"}},
	}
	create(t, c, role, binding)
	eventually(t, "it heals without anybody's doing", l.HasSynced)
	require.NoError(t, c.Client().Delete(t.Context(), binding))
	secrets := pooltest.Acquire(t, p, realKey(0, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, ""))
	require.True(t, apierrors.IsForbidden(waitForSync(t, secrets)))
}

func realDefinition(t *testing.T, c *testenv.Cluster) {
	gvr := schema.GroupVersionResource{Group: "late.example.com", Version: "v1", Resource: "gizmos"}
	p := realPool(t, nil, c.Config())
	l := pooltest.Acquire(t, p, informerpool.Key{Cluster: types.NamespacedName{Name: "0"}, Resource: gvr})
	r := pooltest.Record(t, p, l)
	require.True(t, apierrors.IsNotFound(waitForSync(t, l)))

	gizmo := func(namespace, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
		u.SetAPIVersion("late.example.com/v1")
		u.SetKind("Gizmo")
		u.SetNamespace(namespace)
		u.SetName(name)
		return u
	}
	require.NoError(t, c.InstallCRDs(t.Context(), testenv.SimpleCRD("late.example.com", "Gizmo")))
	eventually(t, "it starts when the definition comes", l.HasSynced)
	create(t, c, gizmo("default", "a"))
	eventually(t, "the object arrives", func() bool { return len(r.State()) == 1 })

	crd := testenv.SimpleCRD("late.example.com", "Gizmo")
	require.NoError(t, c.Client().Delete(t.Context(), crd))
	eventually(t, "its objects go with the definition", func() bool { return len(r.State()) == 0 })
	eventually(t, "the definition is gone", func() bool {
		return apierrors.IsNotFound(c.Client().Get(t.Context(), types.NamespacedName{Name: crd.Name}, crd))
	})
	eventually(t, "the informer says why", func() bool { return apierrors.IsNotFound(l.Status().LastError) })

	require.NoError(t, c.InstallCRDs(t.Context(),
		testenv.SimpleCRD("late.example.com", "Gizmo", apiextensionsv1.ClusterScoped)))
	fresh, err := client.New(c.Config(), client.Options{}) // the old one keeps the old scope for ever
	require.NoError(t, err)
	require.NoError(t, fresh.Create(t.Context(), gizmo("", "b")))
	eventually(t, "objects of the new scope arrive", func() bool { return len(r.State()) == 1 })
	o, err := l.Get("", "b")
	require.NoError(t, err)
	require.Empty(t, o.GetNamespace())
	r.RequireSound(t)
}
