// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connecting_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// threeResources are their plurals.
var threeResources = []string{"configmaps", "secrets", "widgets"}

var readThreeKinds = []rbacv1.PolicyRule{
	{APIGroups: []string{"", "example.com"}, Resources: threeResources, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
}

func withWidgets() testenv.Option {
	return testenv.WithCRDs(testenv.SimpleCRD("example.com", "Widget"))
}

// ofKind returns an object of a kind in the namespace default, with this test's
// label.
func ofKind(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace("default")
	u.SetName(name)
	u.SetLabels(map[string]string{"ours": "yes"})
	return u
}

// createAll creates an object of each name and each kind.
func createAll(t *testing.T, c *testenv.Cluster, names ...string) {
	t.Helper()
	for _, name := range names {
		for _, gvk := range fleettest.ThreeKinds {
			o := ofKind(gvk, name)
			o.SetLabels(map[string]string{"ours": "yes", "in": c.Name()})
			require.NoError(t, c.Client().Create(t.Context(), o))
		}
	}
}

// watchAll watches this test's objects of the three kinds, until they are
// synced.
func watchAll(t *testing.T, cc *clustercache.ClusterCache) []*clustercache.Watch {
	t.Helper()
	var out []*clustercache.Watch
	for _, gvk := range fleettest.ThreeKinds {
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), clustercache.Kind(gvk),
			client.InNamespace("default"),
			client.MatchingLabels{"ours": "yes"})
		require.NoError(t, err)
		out = append(out, w)
	}
	for _, w := range out {
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	return out
}

// waitAllKinds waits until there was an event of each kind with each of the
// names, and returns the others that came before.
func waitAllKinds(t *testing.T, f *fleettest.ObjectLog, names ...string) []events.Object {
	t.Helper()
	missing := map[string]bool{}
	for _, gvk := range fleettest.ThreeKinds {
		for _, name := range names {
			missing[gvk.Kind+" "+name] = true
		}
	}
	var others []events.Object
	f.Wait(func(e events.Object) bool {
		if slices.Contains(names, e.Object().GetName()) {
			delete(missing, e.GVK.Kind+" "+e.Object().GetName())
		} else {
			others = append(others, e)
		}
		return len(missing) == 0
	})
	return others
}

// requireRequests compares how often each of the kinds was listed and watched.
func requireRequests(t *testing.T, server requester, lists, watches int) {
	t.Helper()
	streams, err := server.StreamsLists(t.Context())
	require.NoError(t, err)
	if !streams {
		watches += lists // each list is followed by a watch
	}
	for _, resource := range threeResources {
		gotLists, gotWatches := counted(t, server, resource)
		require.Equal(t, lists, gotLists, "lists of %s", resource)
		require.Equal(t, watches, gotWatches, "watches of %s that go on from another", resource)
	}
}

// readOn reads cached and live, repeatedly, until the returned function is
// called, which returns the failure, if any.
func readOn(t *testing.T, cc *clustercache.ClusterCache) (stop func() (reads int, err error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	var failed error
	reads := 0
	r := cc.Cluster(fleettest.Key("a")).Reader()
	done.Go(func() {
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for {
			for _, gvk := range fleettest.ThreeKinds {
				failed = errors.Join(failed, r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "one"},
					ofKind(gvk, ""), clustercache.CacheOnly))
			}
			failed = errors.Join(failed, r.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &corev1.Namespace{}))
			reads++
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() (int, error) {
		cancel()
		done.Wait()
		return reads, failed
	}
}

// rotated sets the resolver's answer and waits until it is in use.
func rotated(t *testing.T, cc *clustercache.ClusterCache, d *fleettest.Directory, config *rest.Config) {
	t.Helper()
	old := fleettest.Status(t, cc)
	d.Set(fleettest.Key("a"), config)
	require.Eventually(t, func() bool {
		s := fleettest.Status(t, cc)
		require.True(t, s.Connected)
		return s.Revision != old.Revision
	}, fleettest.Patience, 10*time.Millisecond)
}

// requireNeverDisconnected checks the events of a feed of cluster events.
func requireNeverDisconnected(t *testing.T, clusters *fleettest.ClusterLog) {
	t.Helper()
	for len(clusters.Events) > 0 {
		require.NotEqual(t, events.Disconnected, (<-clusters.Events).Type)
	}
}

// TestRealRotationOfEachCredentialIsNotNoticed: tokens, client certificates,
// and from one to the other, in a cluster with three informers and a reader
// that never pauses: no list, no watch, no event, no failed read.
func TestRealRotationOfEachCredentialIsNotNoticed(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1, withWidgets())[0]
	createAll(t, c, "one", "two")
	proxy := c.Proxy(t)
	account, err := c.AddServiceAccount(t.Context(), "accounts", "reader", readThreeKinds...)
	require.NoError(t, err)
	user, err := c.AddUser(t.Context(), "jane", readThreeKinds...)
	require.NoError(t, err)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Redirect(account.Config()))
	cc := fleettest.Start(t, fleettest.Brisk(d))
	clusters := fleettest.Follow(t, cc)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	watches := watchAll(t, cc)
	waitAllKinds(t, objects, "one", "two")
	connected := clusters.Wait(fleettest.Key("a"), events.Connected)
	requireRequests(t, c, 1, 0)
	stop := readOn(t, cc)

	// A new token of the same account, and one of another; after each, the old
	// one may be revoked at once.
	require.NoError(t, account.Reissue(t.Context()))
	rotated(t, cc, d, proxy.Redirect(account.Config()))
	other, err := c.AddServiceAccount(t.Context(), "accounts", "successor", readThreeKinds...)
	require.NoError(t, err)
	rotated(t, cc, d, proxy.Redirect(other.Config()))
	require.NoError(t, account.Revoke(t.Context()))
	// An invalid token does not replace a valid one.
	bad := proxy.Redirect(other.Config())
	bad.BearerToken = "worthless"
	d.Set(fleettest.Key("a"), bad)
	require.Eventually(t, func() bool { return fleettest.Status(t, cc).Reason == "Unauthorized" }, fleettest.Patience,
		10*time.Millisecond)
	require.Equal(t, status.PhaseReady, fleettest.Status(t, cc).Phase)
	// A client certificate, and another one.
	rotated(t, cc, d, proxy.Redirect(user.Config()))
	user.Reissue(time.Now().Add(30 * time.Minute))
	rotated(t, cc, d, proxy.Redirect(user.Config()))
	require.WithinDuration(t, time.Now().Add(30*time.Minute), fleettest.Status(t, cc).CredentialExpiry, 5*time.Minute)

	reads, err := stop()
	require.NoError(t, err)
	require.Positive(t, reads)
	createAll(t, c, "three")
	require.Empty(t, waitAllKinds(t, objects, "three"))
	requireRequests(t, c, 1, 0)
	requireNeverDisconnected(t, clusters)
	s := fleettest.Status(t, cc)
	require.Equal(t, connected.Epoch, s.Epoch)
	require.Equal(t, 1, s.Connects)
	for _, w := range watches {
		require.Zero(t, w.Status().Informer.Resyncs)
	}
	// Each credential was proven before it served: every user's first request
	// was the health check.
	for _, user := range []string{"jane", "system:serviceaccount:accounts:reader",
		"system:serviceaccount:accounts:successor"} {
		requests, err := c.Requests(testenv.ByUser(user), testenv.UserAgent(fleettest.Agent))
		require.NoError(t, err)
		require.NotEmpty(t, requests)
		require.Equal(t, "/readyz", requests[0].URI)
	}
}

// TestRealRotationOfTheAuthorityIsNotNoticed: the bundle gets a second
// authority, the server a certificate from it, and the bundle loses the first
// one.
func TestRealRotationOfTheAuthorityIsNotNoticed(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1, withWidgets())[0]
	createAll(t, c, "one", "two")
	account, err := c.AddServiceAccount(t.Context(), "accounts", "reader", readThreeKinds...)
	require.NoError(t, err)
	var bundles [2][]byte
	var pairs [2]tls.Certificate
	for i := range pairs {
		pem, keyPEM, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		require.NoError(t, err)
		pairs[i], err = tls.X509KeyPair(pem, keyPEM)
		require.NoError(t, err)
		bundles[i] = pem
	}
	door := newFrontDoor(t, c)
	door.certificate.Store(&pairs[0])
	trusting := func(ca ...[]byte) *rest.Config {
		config := door.lead(account.Config())
		config.CAData = slices.Concat(ca...)
		return config
	}
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), trusting(bundles[0]))
	cc := fleettest.Start(t, fleettest.Brisk(d))
	clusters := fleettest.Follow(t, cc)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	watchAll(t, cc)
	waitAllKinds(t, objects, "one", "two")
	clusters.Wait(fleettest.Key("a"), events.Connected)
	stop := readOn(t, cc)

	rotated(t, cc, d, trusting(bundles[0], bundles[1]))
	door.certificate.Store(&pairs[1])
	rotated(t, cc, d, trusting(bundles[1]))

	_, err = stop()
	require.NoError(t, err)
	createAll(t, c, "three")
	require.Empty(t, waitAllKinds(t, objects, "three"))
	requireRequests(t, c, 1, 0)
	// Streams over the first authority's connections end some day; they
	// continue over the second one's.
	door.CloseClientConnections()
	createAll(t, c, "four")
	require.Empty(t, waitAllKinds(t, objects, "four"))
	for _, resource := range threeResources {
		lists, _ := counted(t, c, resource)
		require.Equal(t, 1, lists)
	}
	requireNeverDisconnected(t, clusters)
	require.Equal(t, 1, fleettest.Status(t, cc).Connects)
	require.Zero(t, fleettest.Status(t, cc).HistoryResets)
}

// TestRealMovesBetweenAddressesCauseNoList: through one proxy, another one, and
// to another API server of the same cluster.
func TestRealMovesBetweenAddressesCauseNoList(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1, withWidgets())[0]
	replica, err := c.AddReplica(t.Context())
	require.NoError(t, err)
	direct, err := client.New(replica.Config(), client.Options{})
	require.NoError(t, err)
	for _, gvk := range fleettest.ThreeKinds { // a server's history of a kind may begin with the first request for it
		require.NoError(t, direct.List(t.Context(), fleettest.ListOf(gvk)))
	}
	createAll(t, c, "one", "two")
	first, second := c.Proxy(t), c.Proxy(t)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), first.Config())
	cc := fleettest.Start(t, fleettest.Brisk(d))
	clusters := fleettest.Follow(t, cc)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	watchAll(t, cc)
	waitAllKinds(t, objects, "one", "two")
	clusters.Wait(fleettest.Key("a"), events.Connected)
	stop := readOn(t, cc)
	for i, to := range []*testenv.Proxy{second, first} {
		rotated(t, cc, d, to.Config())
		name := fmt.Sprintf("moved-%d", i)
		createAll(t, c, name)
		require.Empty(t, waitAllKinds(t, objects, name))
		requireRequests(t, c, 1, i+1)
	}
	_, err = stop()
	require.NoError(t, err)
	rotated(t, cc, d, replica.Config())
	createAll(t, c, "on-replica")
	require.Empty(t, waitAllKinds(t, objects, "on-replica"))
	requireNeverDisconnected(t, clusters)
	s := fleettest.Status(t, cc)
	require.Equal(t, 1, s.Connects)
	require.Zero(t, s.HistoryResets)
	requireRequests(t, c, 1, 2)
	requireRequests(t, replica, 0, 1)
}

// away returns a cluster that three informers watch, whose connections are
// refused from now on.
func away(t *testing.T) (*testenv.Cluster, *testenv.Proxy, *clustercache.ClusterCache, *fleettest.ObjectLog,
	[]*clustercache.Watch) {
	t.Helper()
	c := testenv.Start(t, 1, withWidgets())[0]
	createAll(t, c, "one", "two", "gone")
	proxy := c.Proxy(t)
	d := fleettest.NewDirectory()
	d.Set(fleettest.Key("a"), proxy.Config())
	cc := fleettest.Start(t, fleettest.Brisk(d))
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	watches := watchAll(t, cc)
	waitAllKinds(t, objects, "one", "two", "gone")
	createAll(t, c, "before")
	waitAllKinds(t, objects, "before")
	proxy.Refuse()
	return c, proxy, cc, objects, watches
}

// change makes the same changes to every kind: it deletes an object, changes
// one three times, creates and deletes one, and creates one.
func change(t *testing.T, c *testenv.Cluster) {
	t.Helper()
	for _, gvk := range fleettest.ThreeKinds {
		require.NoError(t, c.Client().Delete(t.Context(), ofKind(gvk, "gone")))
		two := ofKind(gvk, "two")
		for i := range 3 {
			require.NoError(t, c.Client().Get(t.Context(), client.ObjectKeyFromObject(two), two))
			two.SetAnnotations(map[string]string{"change": fmt.Sprint(i)})
			require.NoError(t, c.Client().Update(t.Context(), two))
		}
		require.NoError(t, c.Client().Create(t.Context(), ofKind(gvk, "ghost")))
		require.NoError(t, c.Client().Delete(t.Context(), ofKind(gvk, "ghost")))
	}
	createAll(t, c, "new")
}

// requireChanges checks the events of these changes, each delivered once and in
// order. A list shows only the last state.
func requireChanges(t *testing.T, received []events.Object, listed bool) {
	t.Helper()
	got := map[string][]string{}
	versions := map[string]string{}
	for _, e := range received {
		o := e.Object()
		k := e.GVK.Kind + " " + o.GetName()
		require.NotEqual(t, versions[k], o.GetResourceVersion()+string(e.Type), "twice: %s", k)
		versions[k] = o.GetResourceVersion() + string(e.Type)
		what := string(e.Type)
		if e.Type == informerpool.Updated {
			what = o.GetAnnotations()["change"]
		}
		got[k] = append(got[k], what)
	}
	want := map[string][][]string{
		"gone": {{"Deleted"}},
		// Events that wait for the loop at the same time are merged.
		"two": {{"2"}, {"0", "2"}, {"1", "2"}, {"0", "1", "2"}},
		"new": {{"Added"}},
	}
	for _, gvk := range fleettest.ThreeKinds {
		if ghost := got[gvk.Kind+" ghost"]; ghost != nil {
			require.Equal(t, []string{"Added", "Deleted"}, ghost)
			require.False(t, listed)
		}
		delete(got, gvk.Kind+" ghost")
		for name, any := range want {
			require.Contains(t, any, got[gvk.Kind+" "+name], "%s %s", gvk.Kind, name)
			if listed && name == "two" {
				require.Equal(t, any[0], got[gvk.Kind+" "+name])
			}
			delete(got, gvk.Kind+" "+name)
		}
	}
	require.Empty(t, got, "events for what did not change")
}

// TestRealMissedChangesArriveOnceAndInOrder: after an interruption that is long
// enough to disconnect.
func TestRealMissedChangesArriveOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c, proxy, cc, objects, watches := away(t)
	require.Eventually(t, func() bool { return !fleettest.Status(t, cc).Connected }, fleettest.Patience,
		10*time.Millisecond)
	change(t, c)
	require.NoError(t, proxy.Heal())
	createAll(t, c, "last")
	requireChanges(t, waitAllKinds(t, objects, "last"), false)
	for _, resource := range threeResources {
		lists, _ := counted(t, c, resource)
		require.Equal(t, 1, lists)
	}
	for _, w := range watches {
		require.Zero(t, w.Status().Informer.Resyncs)
	}
	require.Equal(t, 2, fleettest.Status(t, cc).Connects)
}

// TestRealRestartedServerCostsOneListForEachInformer: the server's watch
// history begins again with it, so that it answers 410 to clients that were
// away.
func TestRealRestartedServerCostsOneListForEachInformer(t *testing.T) {
	t.Parallel()
	c, proxy, cc, objects, watches := away(t)
	change(t, c)
	require.NoError(t, c.Restart(t.Context()))
	require.NoError(t, proxy.Heal())
	for _, w := range watches {
		require.Eventually(t, func() bool { return w.Status().Informer.Resyncs == 1 }, fleettest.Patience,
			10*time.Millisecond)
	}
	createAll(t, c, "last")
	requireChanges(t, waitAllKinds(t, objects, "last"), true)
	for _, w := range watches {
		require.EqualValues(t, 1, w.Status().Informer.Resyncs)
	}
	for _, resource := range threeResources {
		lists, _ := counted(t, c, resource)
		require.Equal(t, 2, lists)
	}
	require.Zero(t, fleettest.Status(t, cc).HistoryResets)
}
