// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// probeBound is how long quick options take to detect it.
const probeBound = 3*2*time.Second + 2*time.Second + 2*time.Second

// requester is a cluster, or one of its API servers.
type requester interface {
	Requests(matches ...testenv.Match) ([]testenv.Request, error)
	StreamsLists(ctx context.Context) (bool, error)
}

// counted returns how often the kind was listed, and how often watched. A
// streamed list is a watch that begins with the existing objects.
func counted(t *testing.T, server requester, resource string) (lists, watches int) {
	t.Helper()
	requests, err := server.Requests(testenv.Resource(resource), testenv.UserAgent(fleettest.Agent))
	require.NoError(t, err)
	for _, r := range requests {
		switch {
		case r.Verb == "list" && !fleettest.IsVersionQuestion(r), r.Verb == "watch" && fleettest.IsStreamedList(r):
			lists++
		case r.Verb == "watch" && !fleettest.IsVersionQuestion(r):
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
				Namespace: "default", Name: name + "-kubeconfig",
				Labels: map[string]string{"cluster.x-k8s.io/cluster-name": name},
			},
			Data: map[string][]byte{"value": c.Kubeconfig()},
		}))
		fleettest.Create(t, c, "one", "two", "three")
	}
	r, err := resolver.ClusterAPI(hubClient, resolver.HubOptions{})
	require.NoError(t, err)
	cc := fleettest.Start(t, fleettest.Quick(r))
	eastKey, westKey := client.ObjectKey{Namespace: "default", Name: "east"},
		client.ObjectKey{Namespace: "default", Name: "west"}
	clusters := fleettest.Follow(t, cc)
	objects := fleettest.FollowObjects(t, cc, events.Selection{Kinds: []client.Object{&corev1.ConfigMap{}}})

	// One LIST and one WATCH for any number of users, in any form.
	forms := []client.Object{&corev1.ConfigMap{}, clustercache.Kind(fleettest.ConfigMap),
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}}
	var callers sync.WaitGroup
	for i := range 60 {
		callers.Go(func() {
			for _, k := range []client.ObjectKey{eastKey, westKey} {
				w, err := cc.Cluster(k).Watch(t.Context(), forms[i%len(forms)])
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
		require.NoError(t, cc.Cluster(k).Reader().List(t.Context(), list, client.InNamespace("default"),
			clustercache.CacheOnly))
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
		require.NoError(t, cc.Cluster(westKey).Reader().Get(t.Context(),
			client.ObjectKey{Namespace: "default", Name: "one"},
			&corev1.ConfigMap{}))
		slowest = max(slowest, time.Since(begin))
		err := cc.Cluster(eastKey).Reader().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"},
			&corev1.ConfigMap{})
		if err != nil {
			require.ErrorIs(t, err, clustercache.ErrNotConnected)
			break
		}
		require.Less(t, time.Since(killed), probeBound)
	}
	t.Logf("not connected after %s; slowest read of the other cluster %s", time.Since(killed).Round(time.Millisecond),
		slowest)
	e := clusters.Wait(eastKey, events.Disconnected)
	require.Equal(t, status.PhaseDisconnected, e.Phase)
	require.Equal(t, "Unreachable", e.Reason)

	// It is started again: events flow again through the same handlers, and
	// only for objects that changed.
	require.NoError(t, east.StartAPIServer(t.Context()))
	clusters.Wait(eastKey, events.Connected)
	fleettest.Create(t, east, "four")
	_, before := objects.Wait(fleettest.Named(eastKey, "four"))
	require.Empty(t, slices.DeleteFunc(before,
		func(e events.Object) bool { return e.Initial || e.Object().GetNamespace() != "default" }))
	s, err := cc.Cluster(eastKey).Status()
	require.NoError(t, err)
	require.Equal(t, status.PhaseReady, s.Phase)
	require.Equal(t, 2, s.Connects)
}

func TestRealCutConnectionCausesNoList(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	fleettest.Create(t, c, "one", "two")
	proxy := c.Proxy(t)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.WaitAll("one", "two")
	lists, _ := counted(t, c, "configmaps")
	require.Equal(t, 1, lists)

	for i := range 3 {
		proxy.ResetAll()
		fleettest.Create(t, c, fmt.Sprintf("after-%d", i))
		_, before := objects.Wait(fleettest.Named(fleettest.Key("a"), fmt.Sprintf("after-%d", i)))
		require.Empty(t, before)
	}
	// The same with an interruption that is long enough to disconnect.
	clusters := fleettest.Follow(t, cc)
	proxy.Refuse()
	clusters.Wait(fleettest.Key("a"), events.Disconnected)
	fleettest.Create(t, c, "meanwhile")
	require.NoError(t, proxy.Heal())
	_, before := objects.Wait(fleettest.Named(fleettest.Key("a"), "meanwhile"))
	require.Empty(t, before)
	lists, _ = counted(t, c, "configmaps")
	require.Equal(t, 1, lists)
}

// TestRealReconnectAsksOneQuestion: five kinds resume after a disconnect, and
// the server is asked once how far its history reaches.
func TestRealReconnectAsksOneQuestion(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	proxy := c.Proxy(t)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	for _, kind := range []client.Object{
		&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}, &appsv1.Deployment{}, &rbacv1.Role{},
	} {
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), kind, client.InNamespace("default"))
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	asked := func() (questions, watches int) {
		all, err := c.Requests(testenv.UserAgent(fleettest.Agent))
		require.NoError(t, err)
		for _, r := range all {
			switch {
			case strings.Contains(r.URI, "fleetcache-history"):
				questions++
			case r.Verb == "watch" && !fleettest.IsVersionQuestion(r):
				watches++
			}
		}
		return questions, watches
	}
	require.Eventually(t, func() bool { _, watches := asked(); return watches >= 5 },
		fleettest.Patience, 20*time.Millisecond)
	questions, watches := asked()
	clusters := fleettest.Follow(t, cc)
	proxy.Refuse()
	clusters.Wait(fleettest.Key("a"), events.Disconnected)
	require.NoError(t, proxy.Heal())
	require.Eventually(t, func() bool { _, now := asked(); return now >= watches+5 },
		fleettest.Patience, 20*time.Millisecond)
	now, _ := asked()
	streams, err := c.StreamsLists(t.Context())
	require.NoError(t, err)
	if streams { // otherwise the question looks like other short lists
		require.Equal(t, 1, now-questions)
	}
}

func TestRealCredentialRotationCausesNoListAndNoEvent(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	fleettest.Create(t, c, "one", "two")
	account, err := c.AddServiceAccount(t.Context(), "default", "reader", fleettest.ReadConfigMaps...)
	require.NoError(t, err)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), account.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	clusters := fleettest.Follow(t, cc)
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.WaitAll("one", "two")

	for range 3 {
		old, err := cc.Cluster(fleettest.Key("a")).Status()
		require.NoError(t, err)
		require.NoError(t, account.Reissue(t.Context()))
		d.Set(fleettest.Key("a"), account.Config())
		require.Eventually(t, func() bool {
			now, err := cc.Cluster(fleettest.Key("a")).Status()
			require.NoError(t, err)
			require.True(t, now.Connected)
			return now.Revision != old.Revision
		}, fleettest.Patience, 10*time.Millisecond)
	}
	fleettest.Create(t, c, "three")
	_, before := objects.Wait(fleettest.Named(fleettest.Key("a"), "three"))
	require.Empty(t, before)
	lists, _ := counted(t, c, "configmaps")
	require.Equal(t, 1, lists)
	for len(clusters.Events) > 0 {
		require.NotEqual(t, events.Disconnected, (<-clusters.Events).Type)
	}
}

func TestRealOtherClusterBehindTheSameURLIsANewEpoch(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2, testenv.WithSharedPKI())
	first, second := envs[0], envs[1]
	fleettest.Create(t, first, "only-first", "both")
	fleettest.Create(t, second, "only-second", "both")
	proxy := first.Proxy(t)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{}, client.InNamespace("default"))
	require.NoError(t, err)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	clusters := fleettest.Follow(t, cc)
	require.NoError(t, w.WaitForSync(t.Context()))
	objects.Wait(fleettest.Named(fleettest.Key("a"), "only-first"))
	epoch := clusters.Wait(fleettest.Key("a"), events.Connected).Epoch

	// Every list during the change of the backend belongs to one epoch.
	proxy.SetBackend(second.Addr())
	proxy.ResetAll()
	seen := map[string]bool{}
	require.Eventually(t, func() bool {
		origin := clustercache.Origin{}
		list := &corev1.ConfigMapList{}
		if err := cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list, client.InNamespace("default"),
			clustercache.CacheOnly, &origin); err != nil {
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
	}, fleettest.Patience, time.Millisecond)
	deleted, _ := objects.Wait(
		func(e events.Object) bool { return e.Type == "Deleted" && e.Old.GetName() == "only-first" })
	require.Equal(t, fleettest.Key("a"), deleted.Cluster)
	clusters.Wait(fleettest.Key("a"), events.Disconnected)
	require.NotEqual(t, epoch, clusters.Wait(fleettest.Key("a"), events.Connected).Epoch)
}

func TestRealMissingDefinitionHealsWhenItAppears(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1)[0]
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), c.Config())
	cc := fleettest.Start(t, fleettest.Quick(d))
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), clustercache.Kind(gvk))
	require.NoError(t, err)
	err = w.WaitForSync(t.Context())
	require.Error(t, err)
	require.Contains(t, err.Error(), "Widget")
	require.ErrorIs(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), fleettest.ListOf(gvk),
		clustercache.CacheOnly),
		clustercache.ErrNotWatched)

	require.NoError(t, c.InstallCRDs(t.Context(), testenv.SimpleCRD("example.com", "Widget")))
	require.Eventually(t, w.HasSynced, fleettest.Patience, 10*time.Millisecond)
	require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), fleettest.ListOf(gvk),
		clustercache.CacheOnly))
}
