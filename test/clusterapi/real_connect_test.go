// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// wrongPath is a kubeconfig of the remote whose URL has a path that the remote
// does not serve.
func (s *site) wrongPath() []byte {
	config := s.remote.Config()
	config.Host += "/wrong"
	return testenv.Kubeconfig(config)
}

// caseMissingSecretIsNamed: differs in that a missing Secret is a phase of its
// own.
func caseMissingSecretIsNamed(t *testing.T, s *site) {
	cc := fleettest.Start(t, s.options(t))
	begin := time.Now()
	require.NoError(t, cc.Cluster(s.key("a")).Engage())
	now := s.status(t, cc, "a", func(now status.Cluster) bool { return now.LastError != nil })
	require.Equal(t, status.PhasePending, now.Phase)
	require.Equal(t, status.ReasonNoAccess, now.Reason)
	require.ErrorIs(t, now.LastError, resolver.ErrSecretNotFound)
	require.ErrorContains(t, now.LastError, s.name+"/a-kubeconfig")
	require.False(t, now.Connected)
	require.False(t, now.Since.Before(begin))
	require.Zero(t, now.LastLife)
	require.Zero(t, now.Connects)
	require.ErrorIs(t, s.get(t, cc, "a"), resolver.ErrNoAccess)
	require.Empty(t, s.requests(t, s.remote))
}

func caseNeverConnected(t *testing.T, s *site) {
	cc := fleettest.Start(t, s.options(t))
	_, err := cc.Cluster(s.key("a")).Client()
	require.ErrorIs(t, err, clustercache.ErrUnknownCluster, "nobody asked for it")
	require.NoError(t, cc.Cluster(s.key("a")).Engage())
	c, err := cc.Cluster(s.key("a")).Client()
	require.NoError(t, err)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "x"}}
	require.ErrorIs(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object), clustercache.ErrNotConnected)
	require.ErrorIs(t, c.List(t.Context(), &corev1.ConfigMapList{}), clustercache.ErrNotConnected)
	require.ErrorIs(t, c.Create(t.Context(), object), clustercache.ErrNotConnected)
	uncached, err := cc.Cluster(s.key("a")).LiveClient()
	require.NoError(t, err)
	require.ErrorIs(t, uncached.List(t.Context(), &corev1.ConfigMapList{}), clustercache.ErrNotConnected)
	_, err = cc.Cluster(s.key("a")).RESTConfig()
	require.ErrorIs(t, err, clustercache.ErrNotConnected)
}

func caseWrongPath(t *testing.T, s *site) {
	s.store(t, "a", s.wrongPath())
	cc := fleettest.Start(t, s.options(t))
	require.NoError(t, cc.Cluster(s.key("a")).Engage())
	now := s.status(t, cc,
		"a", func(now status.Cluster) bool { return now.Phase == status.PhaseDisconnected })
	require.Equal(t, "NotFound", now.Reason)
	require.Error(t, now.LastError)
	require.False(t, now.Connected)
	require.Zero(t, now.Connects)
	require.False(t, now.Since.IsZero())
	require.ErrorIs(t, s.get(t, cc, "a"), clustercache.ErrNotConnected)
}

func caseCorrectedSecret(t *testing.T, s *site) {
	s.store(t, "a", s.wrongPath())
	cc := fleettest.Start(t, s.options(t))
	clusters := fleettest.Follow(t, cc)
	require.NoError(t, cc.Cluster(s.key("a")).Engage())
	s.status(t, cc, "a", func(now status.Cluster) bool { return now.LastError != nil })
	begin := time.Now()
	s.store(t, "a", s.remote.Kubeconfig())
	clusters.Wait(s.key("a"), events.Connected)
	now := s.ready(t, cc, "a")
	require.NoError(t, now.LastError)
	require.Empty(t, now.Reason)
	require.Equal(t, 1, now.Connects)
	require.True(t, now.Since.After(begin))
	require.True(t, now.LastLife.After(begin))
}

// caseSynced: differs in that connecting does not wait for a list; each watch
// reports whether it is synced.
func caseSynced(t *testing.T, s *site) {
	s.create(t, s.remote, "one")
	s.store(t, "a", s.remote.Kubeconfig())
	cc := fleettest.Start(t, s.options(t))
	w := s.watch(t, cc, "a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, w.WaitForSync(ctx))
	require.True(t, w.HasSynced())
	require.NoError(t, s.get(t, cc, "a", clustercache.CacheOnly))
}

func caseCachedAndUncachedReads(t *testing.T, s *site) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	require.NoError(t, s.remote.Client().Create(t.Context(), node))
	s.create(t, s.remote, "one")
	s.store(t, "a", s.remote.Kubeconfig())
	cc := fleettest.Start(t, s.options(t))
	for _, kind := range []client.Object{&corev1.Namespace{}, &corev1.Node{}} {
		w, err := cc.Cluster(s.key("a")).Watch(t.Context(), kind)
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	c, err := cc.Cluster(s.key("a")).Client()
	require.NoError(t, err)
	origin := clustercache.Origin{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: s.name}, &corev1.Namespace{}, &origin))
	require.True(t, origin.Cached)
	nodes := &corev1.NodeList{}
	require.NoError(t, c.List(t.Context(), nodes, clustercache.CacheOnly))
	require.Len(t, nodes.Items, 1)
	require.Equal(t, s.name, nodes.Items[0].Name)

	uncached, err := cc.Cluster(s.key("a")).LiveClient()
	require.NoError(t, err)
	before := len(s.requests(t, s.remote, testenv.Resource("nodes"), testenv.Verb("list")))
	require.NoError(t, uncached.List(t.Context(), nodes))
	require.Len(t, nodes.Items, 1)
	require.Len(t, s.requests(t, s.remote, testenv.Resource("nodes"), testenv.Verb("list")), before+1)
	maps := &corev1.ConfigMapList{} // this kind has no informer, and reading starts none
	require.NoError(t, c.List(t.Context(), maps, client.InNamespace(s.name), &origin))
	require.False(t, origin.Cached)
	require.NotEmpty(t, maps.Items)
	require.Equal(t, 2, s.ready(t, cc, "a").Informers)
}

func caseManagedFields(t *testing.T, s *site) {
	s.create(t, s.remote, "one")
	s.store(t, "a", s.remote.Kubeconfig())
	o := s.options(t)
	o.Informers.Transforms = map[schema.GroupResource]informerpool.TransformFunc{{
		Resource: "configmaps"}: func(u *unstructured.Unstructured) error {
		unstructured.RemoveNestedField(u.Object, "data", "in")
		return nil
	}}
	cc := fleettest.Start(t, o)
	w := s.watch(t, cc, "a")
	require.NoError(t, w.WaitForSync(t.Context()))
	object := &corev1.ConfigMap{}
	k := client.ObjectKey{Namespace: s.name, Name: "one"}
	require.NoError(t, cc.Cluster(s.key("a")).Reader().Get(t.Context(), k, object, clustercache.CacheOnly))
	require.NotEmpty(t, object.ManagedFields)
	require.Empty(t, object.Data)
	require.NoError(t, cc.Cluster(s.key("a")).Reader().Get(t.Context(), k, object, clustercache.MaxStaleness(1)))
	require.NotEmpty(t, object.ManagedFields)
	require.Equal(t, s.remote.Name(), object.Data["in"])
}

// ownCluster creates the Cluster object of Cluster API, or changes whether its
// control plane is initialized.
func (s *site) ownCluster(t *testing.T, name string, ready bool) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1", "kind": "Cluster"}}
	u.SetNamespace(s.name)
	u.SetName(name)
	require.NoError(t, client.IgnoreAlreadyExists(s.hubClient.Create(t.Context(), u)))
	require.NoError(t, s.hubClient.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	require.NoError(t, unstructured.SetNestedField(u.Object, ready, "status", "initialization",
		"controlPlaneInitialized"))
	require.NoError(t, s.hubClient.Status().Update(t.Context(), u))
	return u
}

func needsClusterObject(o *resolver.HubOptions) { o.ReadyObject = resolver.ClusterAPIReady("v1") }

func caseNotReadyYet(t *testing.T, s *site) {
	proxy := s.remote.Proxy(t)
	s.store(t, "a", proxy.Kubeconfig())
	s.ownCluster(t, "a", false)
	o := s.options(t, needsClusterObject)
	o.Discover = true
	cc := fleettest.Start(t, o)
	clusters := fleettest.Follow(t, cc)
	now := s.status(t, cc, "a", func(now status.Cluster) bool {
		// Connecting for a moment, if the resolver reports another change.
		return now.Phase == status.PhasePending && now.LastError != nil
	})
	require.ErrorIs(t, now.LastError, resolver.ErrNotReady)
	require.Zero(t, proxy.Stats().Accepted)
	s.ownCluster(t, "a", true) // and no caller has to try again
	clusters.Wait(s.key("a"), events.Connected)
	require.Positive(t, proxy.Stats().Accepted)
}

func caseSelection(t *testing.T, s *site) {
	proxy := s.remote.Proxy(t)
	s.store(t, "a", proxy.Kubeconfig())
	s.store(t, "other", s.remote.Kubeconfig(), map[string]string{"fleet": "mine"})
	o := s.options(t, func(o *resolver.HubOptions) { o.Selector = labels.SelectorFromSet(labels.Set{"fleet": "mine"}) })
	o.Discover = true
	cc := fleettest.Start(t, o)
	clusters := fleettest.Follow(t, cc)
	clusters.Wait(s.key("other"), events.Connected)
	require.Equal(t, []client.ObjectKey{s.key("other")}, cc.Clusters())
	require.Zero(t, proxy.Stats().Accepted)

	s.store(t, "a", proxy.Kubeconfig(), map[string]string{"fleet": "mine"})
	clusters.Wait(s.key("a"), events.Connected)
	s.store(t, "a", proxy.Kubeconfig())
	clusters.Wait(s.key("a"), events.Removed)
	require.Eventually(t, func() bool { return len(cc.Clusters()) == 1 && proxy.Stats().Open == 0 }, fleettest.Patience,
		10*time.Millisecond)
	now := proxy.Stats().Accepted
	s.store(t, "a", proxy.Kubeconfig(), map[string]string{"fleet": "mine"})
	clusters.Wait(s.key("a"), events.Connected)
	require.Greater(t, proxy.Stats().Accepted, now)
}

// caseDeletedClusterObject: differs in that a short absence does not end the
// cluster: objects are often deleted and created again.
func caseDeletedClusterObject(t *testing.T, s *site) {
	s.create(t, s.remote, "one")
	s.store(t, "a", s.remote.Kubeconfig())
	object := s.ownCluster(t, "a", true)
	o := s.options(t, needsClusterObject)
	o.Discover = true
	cc := fleettest.Start(t, o)
	clusters := fleettest.Follow(t, cc)
	w := s.watch(t, cc, "a")
	require.NoError(t, w.WaitForSync(t.Context()))
	w.Release()
	require.NoError(t, s.hubClient.Delete(t.Context(), object))
	clusters.Wait(s.key("a"), events.Disconnected)
	clusters.Wait(s.key("a"), events.Removed)
	require.Eventually(t, func() bool {
		_, err := cc.Cluster(s.key("a")).Status()
		return err != nil
	}, fleettest.Patience, 10*time.Millisecond)
	require.Empty(t, cc.Clusters())
	require.ErrorIs(t, s.get(t, cc, "a"), clustercache.ErrUnknownCluster)
}

func caseOthersSecretsAreNeverRead(t *testing.T, s *site) {
	s.store(t, "mine", s.remote.Kubeconfig(), map[string]string{"fleet": s.name})
	others := s.remote.Proxy(t)
	s.store(t, "theirs", others.Kubeconfig(), map[string]string{"fleet": "theirs"})
	o := s.options(t, func(o *resolver.HubOptions) {
		o.Namespace = "" // all namespaces, by the label alone
		o.Selector = labels.SelectorFromSet(labels.Set{"fleet": s.name})
	})
	o.Discover = true
	cc := fleettest.Start(t, o)
	clusters := fleettest.Follow(t, cc)
	clusters.Wait(s.key("mine"), events.Connected)
	s.store(t, "theirs", append(others.Kubeconfig(), '\n'), map[string]string{"fleet": "theirs"})
	// Events are ordered: earlier ones are seen before this one.
	s.store(t, "mine", s.hub.Kubeconfig(), map[string]string{"fleet": s.name})
	s.status(t, cc, "mine", func(now status.Cluster) bool { return now.HistoryResets == 1 })
	require.Equal(t, []client.ObjectKey{s.key("mine")}, cc.Clusters())
	require.Zero(t, others.Stats().Accepted)

	asked := s.hubRequests(t)
	require.NotEmpty(t, asked)
	for _, r := range asked {
		if r.Verb == "create" || r.Verb == "update" { // sent by the test itself
			continue
		}
		if r.Verb == "get" && r.Name == "mine-kubeconfig" { // before the first list is complete
			continue
		}
		require.Contains(t, []string{"list", "watch"}, r.Verb, r.URI)
		require.Contains(t, r.URI, "fleet%3D"+s.name, "Secrets of others were read")
	}
}

// hubRequests returns the requests for Secrets that the resolver and the test
// itself sent.
func (s *site) hubRequests(t *testing.T) []testenv.Request {
	t.Helper()
	requests, err := s.hub.Requests(testenv.Resource("secrets"), testenv.UserAgent("hub-"+s.name))
	require.NoError(t, err)
	return requests
}
