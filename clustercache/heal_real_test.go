// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

const agent = "fleetcache-under-test"

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// quick returns options that detect a dead cluster within ten seconds.
func quick(r clustercache.Resolver) clustercache.Options {
	return clustercache.Options{
		Resolver: r, UserAgent: agent, ProbeInterval: 2 * time.Second, ProbeTimeout: 2 * time.Second, RetryInterval: 2 * time.Second,
		MaxBackoff: 2 * time.Second,
	}
}

// probeBound is how long quick options take to detect it.
const probeBound = 3*2*time.Second + 2*time.Second + 2*time.Second

func create(t *testing.T, c *testenv.Cluster, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, c.Client().Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"in": c.Name()},
		}))
	}
}

// requester is a cluster, or one of its API servers.
type requester interface {
	Requests(matches ...testenv.Match) ([]testenv.Request, error)
	StreamsLists(ctx context.Context) (bool, error)
}

// counted returns how often the kind was listed, and how often watched. A
// streamed list is a watch that begins with the existing objects.
func counted(t *testing.T, server requester, resource string) (lists, watches int) {
	t.Helper()
	requests, err := server.Requests(testenv.Resource(resource), testenv.UserAgent(agent))
	require.NoError(t, err)
	for _, r := range requests {
		switch {
		case r.Verb == "list" && !isVersionQuestion(r), r.Verb == "watch" && isStreamedList(r):
			lists++
		case r.Verb == "watch" && !isVersionQuestion(r):
			watches++
		}
	}
	return lists, watches
}

func TestRealDeadClusterGivesTypedErrorAndHealsWithoutNews(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 3)
	hub, east, west := envs[0], envs[1], envs[2]
	hubClient, err := client.NewWithWatch(hub.Config(), client.Options{})
	require.NoError(t, err)
	for name, c := range map[string]*testenv.Cluster{"east": east, "west": west} {
		require.NoError(t, hubClient.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name + "-kubeconfig", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": name},
			},
			Data: map[string][]byte{"value": c.Kubeconfig()},
		}))
		create(t, c, "one", "two", "three")
	}
	r, err := resolver.ClusterAPI(hubClient, resolver.HubOptions{})
	require.NoError(t, err)
	cc := start(t, quick(r))
	eastKey, westKey := client.ObjectKey{Namespace: "default", Name: "east"}, client.ObjectKey{Namespace: "default", Name: "west"}
	clusters := follow(t, cc)
	objects := followObjects(t, cc, clustercache.ObjectFeed{Kinds: []client.Object{&corev1.ConfigMap{}}})

	// One LIST and one WATCH for any number of users, in any form.
	forms := []client.Object{&corev1.ConfigMap{}, clustercache.Kind(configMap), &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}}
	var callers sync.WaitGroup
	for i := range 60 {
		callers.Go(func() {
			for _, k := range []client.ObjectKey{eastKey, westKey} {
				w, err := cc.Watch(t.Context(), k, forms[i%len(forms)])
				if err == nil {
					err = w.WaitForSync(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	for _, k := range []client.ObjectKey{eastKey, westKey} {
		list := &corev1.ConfigMapList{}
		require.NoError(t, cc.Reader(k).List(t.Context(), list, client.InNamespace("default"), clustercache.CacheOnly))
		names := []string{}
		for _, o := range list.Items {
			names = append(names, o.Name)
		}
		require.Subset(t, names, []string{"one", "two", "three"})
	}
	for _, c := range []*testenv.Cluster{east, west} {
		lists, _ := counted(t, c, "configmaps")
		require.Equal(t, 1, lists, c.Name())
	}

	// The API server dies: reads fail with a typed error within the bound of
	// the probe, and no other cluster waits.
	require.NoError(t, east.Kill())
	killed := time.Now()
	slowest := time.Duration(0)
	for {
		begin := time.Now()
		require.NoError(t, cc.Reader(westKey).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{}))
		slowest = max(slowest, time.Since(begin))
		err := cc.Reader(eastKey).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"}, &corev1.ConfigMap{})
		if err != nil {
			require.ErrorIs(t, err, clustercache.ErrNotConnected)
			break
		}
		require.Less(t, time.Since(killed), probeBound)
	}
	t.Logf("not connected after %s; slowest read of the other cluster %s", time.Since(killed).Round(time.Millisecond), slowest)
	e := clusters.wait(eastKey, clustercache.Disconnected)
	require.Equal(t, clustercache.PhaseDisconnected, e.Phase)
	require.Equal(t, "Unreachable", e.Reason)

	// It is started again: events flow again through the same handlers, and
	// only for objects that changed.
	require.NoError(t, east.StartAPIServer(t.Context()))
	clusters.wait(eastKey, clustercache.Connected)
	create(t, east, "four")
	_, before := objects.wait(named(eastKey, "four"))
	require.Empty(t, slices.DeleteFunc(before, func(e clustercache.ObjectEvent) bool { return e.Initial || e.Object().GetNamespace() != "default" }))
	status, err := cc.Status(eastKey)
	require.NoError(t, err)
	require.Equal(t, clustercache.PhaseReady, status.Phase)
	require.Equal(t, 2, status.Connects)
}

func TestRealCutConnectionCausesNoList(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	create(t, c, "one", "two")
	proxy := c.Proxy(t)
	d := newDirectory()
	d.set(key("a"), proxy.Config())
	cc := start(t, quick(d))
	w, err := cc.Watch(t.Context(), key("a"), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := followObjects(t, cc, clustercache.ObjectFeed{})
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.waitAll("one", "two")
	lists, _ := counted(t, c, "configmaps")
	require.Equal(t, 1, lists)

	for i := range 3 {
		proxy.ResetAll()
		create(t, c, fmt.Sprintf("after-%d", i))
		_, before := objects.wait(named(key("a"), fmt.Sprintf("after-%d", i)))
		require.Empty(t, before)
	}
	// The same with an interruption that is long enough to disconnect.
	clusters := follow(t, cc)
	proxy.Refuse()
	clusters.wait(key("a"), clustercache.Disconnected)
	create(t, c, "meanwhile")
	require.NoError(t, proxy.Heal())
	_, before := objects.wait(named(key("a"), "meanwhile"))
	require.Empty(t, before)
	lists, _ = counted(t, c, "configmaps")
	require.Equal(t, 1, lists)
}

func TestRealCredentialRotationCausesNoListAndNoEvent(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	create(t, c, "one", "two")
	account, err := c.AddServiceAccount(t.Context(), "default", "reader", readConfigMaps...)
	require.NoError(t, err)
	d := newDirectory()
	d.set(key("a"), account.Config())
	cc := start(t, quick(d))
	w, err := cc.Watch(t.Context(), key("a"), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := followObjects(t, cc, clustercache.ObjectFeed{})
	clusters := follow(t, cc)
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.waitAll("one", "two")

	for range 3 {
		old, err := cc.Status(key("a"))
		require.NoError(t, err)
		require.NoError(t, account.Reissue(t.Context()))
		d.set(key("a"), account.Config())
		require.Eventually(t, func() bool {
			now, err := cc.Status(key("a"))
			require.NoError(t, err)
			require.True(t, now.Connected)
			return now.Revision != old.Revision
		}, 10*time.Second, 10*time.Millisecond)
	}
	create(t, c, "three")
	_, before := objects.wait(named(key("a"), "three"))
	require.Empty(t, before)
	lists, _ := counted(t, c, "configmaps")
	require.Equal(t, 1, lists)
	for len(clusters.events) > 0 {
		require.NotEqual(t, clustercache.Disconnected, (<-clusters.events).Type)
	}
}

func TestRealOtherClusterBehindTheSameURLIsANewEpoch(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2, testenv.WithSharedPKI())
	first, second := envs[0], envs[1]
	create(t, first, "only-first", "both")
	create(t, second, "only-second", "both")
	proxy := first.Proxy(t)
	d := newDirectory()
	d.set(key("a"), proxy.Config())
	cc := start(t, quick(d))
	w, err := cc.Watch(t.Context(), key("a"), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := followObjects(t, cc, clustercache.ObjectFeed{})
	clusters := follow(t, cc)
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.wait(named(key("a"), "only-first"))
	epoch := clusters.wait(key("a"), clustercache.Connected).Epoch

	// Every list during the change of the backend belongs to one epoch.
	proxy.SetBackend(second.Addr())
	proxy.ResetAll()
	seen := map[string]bool{}
	require.Eventually(t, func() bool {
		origin := clustercache.Origin{}
		list := &corev1.ConfigMapList{}
		if err := cc.Reader(key("a")).List(t.Context(), list, client.InNamespace("default"), clustercache.CacheOnly, &origin); err != nil {
			return false
		}
		in := map[string]bool{}
		for _, o := range list.Items {
			if o.Data["in"] != "" {
				in[o.Data["in"]] = true
			}
		}
		require.Len(t, in, 1, "a list mixes two clusters")
		seen[origin.Epoch] = true
		return origin.Epoch != epoch && in[second.Name()]
	}, 30*time.Second, time.Millisecond)
	deleted, _ := objects.wait(func(e clustercache.ObjectEvent) bool { return e.Type == "Deleted" && e.Old.GetName() == "only-first" })
	require.Equal(t, key("a"), deleted.Cluster)
	clusters.wait(key("a"), clustercache.Disconnected)
	require.NotEqual(t, epoch, clusters.wait(key("a"), clustercache.Connected).Epoch)
}

func TestRealMissingDefinitionHealsWhenItAppears(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	d := newDirectory()
	d.set(key("a"), c.Config())
	cc := start(t, quick(d))
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	w, err := cc.Watch(t.Context(), key("a"), clustercache.Kind(gvk))
	require.NoError(t, err)
	err = w.WaitForSync(t.Context())
	require.Error(t, err)
	require.Contains(t, err.Error(), "Widget")
	require.ErrorIs(t, cc.Reader(key("a")).List(t.Context(), listOf(gvk), clustercache.CacheOnly), clustercache.ErrNotWatched)

	require.NoError(t, c.InstallCRDs(t.Context(), testenv.SimpleCRD("example.com", "Widget")))
	require.Eventually(t, w.HasSynced, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, cc.Reader(key("a")).List(t.Context(), listOf(gvk), clustercache.CacheOnly))
}

func listOf(gvk schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	gvk.Kind += "List"
	l.SetGroupVersionKind(gvk)
	return l
}

// readConfigMaps are the rules of least-privileged credentials.
var readConfigMaps = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}}

// isVersionQuestion reports whether a request is neither a list nor a watch: it
// asks how far the server's history has advanced, before an informer resumes,
// or whether lists are streamed.
func isVersionQuestion(r testenv.Request) bool {
	u, err := url.Parse(r.URI)
	return err == nil && (r.Unstreamed || u.Query().Get("fieldSelector") != "" || u.Query().Get("limit") == "1")
}

func isStreamedList(r testenv.Request) bool {
	u, err := url.Parse(r.URI)
	return err == nil && u.Query().Get("sendInitialEvents") == "true" && !isVersionQuestion(r)
}
