// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
	"github.com/fleetcache/fleetcache/internal/testenv/faultproxy"
)

func caseOneEventForTwoWatches(t *testing.T, s *site) {
	c := s.connected(t, s.remote.Config())
	for _, kind := range []client.Object{&corev1.ConfigMap{}, clustercache.Kind(fleettest.ConfigMap)} {
		w, err := c.cc.Cluster(s.key("a")).Watch(t.Context(), kind, client.InNamespace(s.name))
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	require.Equal(t, 3, c.w.Status().References)
	one := &corev1.ConfigMap{}
	require.NoError(t, s.remote.Client().Get(t.Context(), client.ObjectKey{Namespace: s.name, Name: "one"}, one))
	one.Data = map[string]string{"changed": "once"}
	require.NoError(t, s.remote.Client().Update(t.Context(), one))
	received := c.told(t, "marker")
	require.Len(t, received, 1)
	require.Equal(t, one.ResourceVersion, received[0].New.GetResourceVersion())
	require.Equal(t, 1, s.lists(t, s.remote))
}

// caseUnroutable: differs in that the cache of a lost cluster stays readable,
// for callers that accept its age.
func caseUnroutable(t *testing.T, s *site) {
	s.create(t, s.remote, "one")
	proxy, closed := s.remote.Proxy(t), s.remote.Proxy(t)
	s.store(t, "a", proxy.Kubeconfig())
	s.store(t, "free-port", closed.Kubeconfig())
	closed.RefuseNew()
	s.store(t, "good", s.remote.Kubeconfig())
	cc := fleettest.Start(t, s.options(t))
	clusters := fleettest.Follow(t, cc)
	for _, name := range []string{"free-port", "good"} {
		require.NoError(t, cc.Cluster(s.key(name)).Engage())
	}
	w := s.watch(t, cc, "a")
	require.NoError(t, w.WaitForSync(t.Context()))
	s.ready(t, cc, "good")
	lost := s.status(t, cc, "free-port",
		func(now status.Cluster) bool { return now.Phase == status.PhaseDisconnected })
	require.Equal(t, "Unreachable", lost.Reason)
	require.Zero(t, lost.Connects)

	clusters.Wait(s.key("a"), events.Connected)
	proxy.Blackhole(faultproxy.Both)
	require.Equal(t, status.PhaseDegraded, clusters.Wait(s.key("a"), events.PhaseChanged).Phase)
	require.Equal(t, "Timeout", clusters.Wait(s.key("a"), events.Disconnected).Reason)
	require.ErrorIs(t, s.get(t, cc, "a"), clustercache.ErrNotConnected)
	require.NoError(t, s.get(t, cc, "a", clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour)))

	good := s.ready(t, cc, "good")
	require.Equal(t, 1, good.Connects)
	require.NoError(t, good.LastError)
}

// caseReconnectKeepsHandlers: watch and handlers survive; no caller has to
// watch again.
func caseReconnectKeepsHandlers(t *testing.T, s *site) {
	proxy := s.remote.Proxy(t)
	c := s.connected(t, proxy.Config())
	for range 2 {
		proxy.Refuse()
		c.clusters.Wait(s.key("a"), events.Disconnected)
		s.create(t, s.remote, "meanwhile")
		require.NoError(t, s.remote.Client().Delete(t.Context(),
			&corev1.ConfigMap{ObjectMeta: objectMetaIn(s.name, "two")}))
		require.NoError(t, proxy.Heal())
		c.clusters.Wait(s.key("a"), events.Connected)
		_, before := c.objects.Wait(
			func(e events.Object) bool { return e.Type == "Deleted" && e.Old.GetName() == "two" })
		require.Len(t, before, 1)
		require.Equal(t, "meanwhile", before[0].Object().GetName())
		require.False(t, before[0].Initial)

		// As before, for another round.
		s.create(t, s.remote, "two")
		require.NoError(t, s.remote.Client().Delete(t.Context(),
			&corev1.ConfigMap{ObjectMeta: objectMetaIn(s.name, "meanwhile")}))
		c.objects.Wait(func(e events.Object) bool {
			return e.Type == "Deleted" && e.Old.GetName() == "meanwhile"
		})
	}
	require.Equal(t, 1, s.lists(t, s.remote))
	require.Equal(t, 1, c.w.Status().References)
}

func caseOldEndpointIsLeftAlone(t *testing.T, s *site) {
	old := s.remote.Proxy(t)
	c := s.connected(t, old.Config())
	missing, err := c.cc.Cluster(s.key("a")).Watch(t.Context(),
		clustercache.Kind(schema.GroupVersionKind{Group: "missing.example.com", Version: "v1", Kind: "Missing"}))
	require.NoError(t, err)
	require.True(t, meta.IsNoMatchError(missing.WaitForSync(t.Context())))
	require.NotZero(t, old.Stats().Open)

	old.Refuse()
	c.clusters.Wait(s.key("a"), events.Disconnected)
	s.store(t, "a", s.remote.Kubeconfig())
	c.clusters.Wait(s.key("a"), events.Connected)
	require.NoError(t, old.Heal())
	accepted, asked := old.Stats().Accepted, s.discoveries(t)
	require.Eventually(t, func() bool { return s.discoveries(t) >= asked+2 }, time.Minute, 100*time.Millisecond,
		"the missing kind is looked for at the new one")
	require.Empty(t, c.told(t, "three"))
	require.Equal(t, accepted, old.Stats().Accepted)
	require.Zero(t, old.Stats().Open)
}

// discoveries counts the discovery requests to the remote.
func (s *site) discoveries(t *testing.T) (n int) {
	t.Helper()
	for _, r := range s.requests(t, s.remote) {
		if r.Resource == "" && (strings.HasPrefix(r.URI, "/api?") || r.URI == "/api" || r.URI == "/apis" ||
			strings.HasPrefix(r.URI, "/apis?")) {
			n++
		}
	}
	return n
}

// caseOptionalKind: an index and a feed name a kind that only one of two
// clusters serves.
func caseOptionalKind(t *testing.T, s *site) {
	gadget := schema.GroupVersionKind{Group: "optional.example.com", Version: "v1", Kind: "Gadget"}
	require.NoError(t, s.remote.InstallCRDs(t.Context(), testenv.SimpleCRD(gadget.Group, gadget.Kind)))
	s.store(t, "with", s.remote.Kubeconfig())
	s.store(t, "without", s.hub.Kubeconfig())
	o := s.options(t)
	o.Discover = true
	o.Indexes = []clustercache.Index{
		{GVK: gadget, Field: "name", Values: func(o client.Object) []string { return []string{o.GetName()} }}}
	cc := fleettest.Start(t, o)
	fleettest.FollowObjects(t, cc,
		events.Selection{Kinds: []client.Object{&corev1.ConfigMap{},
			clustercache.Kind(gadget)}, Watch: true})
	s.status(t, cc, "with", func(now status.Cluster) bool { return now.Synced == 2 && now.Unmapped == 0 })
	now := s.status(t, cc, "without", func(now status.Cluster) bool { return now.Synced == 1 })
	require.Equal(t, status.PhaseReady, now.Phase)
	require.Equal(t, 1, now.Unmapped)
	w, err := cc.Cluster(s.key("without")).Watch(t.Context(), clustercache.Kind(gadget))
	require.NoError(t, err)
	require.True(t, meta.IsNoMatchError(w.WaitForSync(t.Context())))
	require.False(t, w.HasSynced())
	require.False(t, w.Status().Mapped)
	require.NoError(t, cc.Cluster(s.key("without")).Reader().List(t.Context(), &corev1.ConfigMapList{},
		clustercache.CacheOnly))
	require.ErrorIs(t, cc.Cluster(s.key("without")).Reader().List(t.Context(), fleettest.ListOf(gadget),
		clustercache.CacheOnly),
		clustercache.ErrNotWatched)
	require.NoError(t, cc.Cluster(s.key("with")).Reader().List(t.Context(), fleettest.ListOf(gadget),
		clustercache.CacheOnly,
		client.MatchingFields{"name": "x"}))
}

func caseRefusedWatch(t *testing.T, s *site) {
	user, err := s.remote.AddUser(t.Context(), s.name, fleettest.ReadConfigMaps...)
	require.NoError(t, err)
	proxy := s.remote.Proxy(t)
	c := s.connected(t, proxy.Redirect(user.Config()))
	secrets, err := c.cc.Cluster(s.key("a")).Watch(t.Context(), &corev1.Secret{}, client.InNamespace(s.name))
	require.NoError(t, err)
	err = secrets.WaitForSync(t.Context())
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.True(t, apierrors.IsForbidden(secrets.Status().LastError))
	require.False(t, secrets.HasSynced())
	require.True(t, c.w.HasSynced())
	require.Equal(t, status.PhaseReady, s.ready(t, c.cc, "a").Phase)

	// A permission that is lost while the watch runs shows when the watch has
	// to be renewed.
	require.NoError(t, user.Deny(t.Context()))
	proxy.ResetAll()
	require.Eventually(t, func() bool { return apierrors.IsForbidden(c.w.Status().LastError) }, time.Minute,
		10*time.Millisecond)
	s.ready(t, c.cc, "a")
	require.False(t, c.w.HasSynced(), "no read is answered from what it has, though it is kept")

	refused := s.lists(t, s.remote) // a refused watch is tried as a list, too
	require.NoError(t, user.Grant(t.Context(), append([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}},
	}, fleettest.ReadConfigMaps...)...))
	require.Eventually(t, secrets.HasSynced, time.Minute, 10*time.Millisecond)
	require.Empty(t, withoutSecrets(c.told(t, "three")))
	require.NoError(t, c.w.Status().LastError)
	require.LessOrEqual(t, s.lists(t, s.remote), refused+1)
	c.quiet(t)
}

func withoutSecrets(received []events.Object) (out []events.Object) {
	for _, e := range received {
		if e.GVK.Kind != "Secret" {
			out = append(out, e)
		}
	}
	return out
}

// caseOneBucketForAllKinds: client-go's limit, which applies to each kind,
// would let three kinds through at three times the rate.
func caseOneBucketForAllKinds(t *testing.T, s *site) {
	s.store(t, "a", s.remote.Kubeconfig())
	o := s.options(t)
	o.QPS, o.Burst = 4, 1
	cc := fleettest.Start(t, o)
	require.NoError(t, cc.Cluster(s.key("a")).Engage())
	s.ready(t, cc, "a")
	c, err := cc.Cluster(s.key("a")).Client()
	require.NoError(t, err)
	lists := []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.NamespaceList{}}
	for _, l := range lists { // the other requests that the first list of a kind needs
		require.NoError(t, c.List(t.Context(), l))
	}
	begin := time.Now()
	const n = 13
	for i := range n {
		require.NoError(t, c.List(t.Context(), lists[i%len(lists)]))
	}
	require.Greater(t, time.Since(begin), 11*time.Second/4, "(13-1)/4, less what was saved up")
}

func caseFreshDial(t *testing.T, s *site) {
	proxy := s.remote.Proxy(t)
	c := s.connected(t, proxy.Config())
	require.Positive(t, proxy.Stats().Open)
	proxy.Blackhole(faultproxy.Both)
	c.clusters.Wait(s.key("a"), events.Disconnected)
	dials := proxy.Stats().Accepted
	require.NoError(t, proxy.Heal())
	c.clusters.Wait(s.key("a"), events.Connected)
	require.Greater(t, proxy.Stats().Accepted, dials)
	require.Empty(t, c.told(t, "three"))

	c.w.Release()
	c.cc.Cluster(s.key("a")).Disengage()
	require.Eventually(t, func() bool { return proxy.Stats().Open == 0 }, fleettest.Patience, 10*time.Millisecond)
	dials = proxy.Stats().Accepted
	require.NoError(t, c.cc.Cluster(s.key("a")).Engage())
	c.clusters.Wait(s.key("a"), events.Connected)
	require.Greater(t, proxy.Stats().Accepted, dials)
}
