// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// heard is the state that a handler knows from events alone: the
// resourceVersion of each object, by kind, name and UID.
type heard map[string]string

func identityOf(kind string, o client.Object) string {
	return kind + " " + o.GetName() + " " + string(o.GetUID())
}

// apply applies an event. An added object must be absent before, a changed or
// deleted one present.
func (known heard) apply(t *testing.T, e clustercache.ObjectEvent) {
	t.Helper()
	id := identityOf(e.GVK.Kind, e.Object())
	_, there := known[id]
	require.Equal(t, e.Type != informerpool.Added, there, "%s %s", e.Type, id)
	if e.Type == informerpool.Deleted {
		delete(known, id)
		return
	}
	known[id] = e.Object().GetResourceVersion()
}

// follow applies events until the known state equals that of a cluster.
func (known heard) follow(t *testing.T, objects *objectFeed, c *testenv.Cluster) {
	t.Helper()
	want := heard{}
	for _, gvk := range threeKinds {
		list := listOf(gvk)
		require.NoError(t, c.Client().List(t.Context(), list, client.InNamespace("default"), client.MatchingLabels{"ours": "yes"}))
		for i := range list.Items {
			want[identityOf(gvk.Kind, &list.Items[i])] = list.Items[i].GetResourceVersion()
		}
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !known.equals(want) {
		select {
		case e := <-objects.events:
			known.apply(t, e)
		case <-limit.C:
			require.Equal(t, want, known)
		}
	}
}

func (known heard) equals(other heard) bool {
	for id, version := range other {
		if known[id] != version {
			return false
		}
	}
	return len(known) == len(other)
}

// TestRealOtherClusterReplacesEveryKind: three informers meet another cluster
// at the address. Objects that only the first cluster held are delivered as
// deleted, objects that both hold under one name as deleted and added, and no
// list of any kind mixes the two.
func TestRealOtherClusterReplacesEveryKind(t *testing.T) {
	t.Parallel()
	envs := testenv.Start(t, 2, testenv.WithSharedPKI(), withWidgets())
	first, second := envs[0], envs[1]
	createAll(t, first, "both", "only-first")
	createAll(t, second, "both", "only-second")
	proxy := first.Proxy(t)
	d := newDirectory()
	d.set(key("a"), proxy.Config())
	cc := start(t, brisk(d))
	clusters := follow(t, cc)
	objects := followObjects(t, cc, clustercache.ObjectFeed{})
	watchAll(t, cc)
	known := heard{}
	known.follow(t, objects, first)
	epoch := clusters.wait(key("a"), clustercache.Connected).Epoch

	for _, to := range []*testenv.Cluster{second, first, second} {
		proxy.SetBackend(to.Addr())
		proxy.ResetAll()
		listed := map[string]bool{} // kinds whose list shows the other cluster
		require.Eventually(t, func() bool {
			for _, gvk := range threeKinds {
				list := listOf(gvk)
				if cc.Reader(key("a")).List(t.Context(), list, client.InNamespace("default"), client.MatchingLabels{"ours": "yes"}, clustercache.CacheOnly) != nil {
					continue // not synced yet with the other history
				}
				in := map[string]bool{}
				for i := range list.Items {
					in[list.Items[i].GetLabels()["in"]] = true
				}
				require.Len(t, in, 1, "a list of %s mixes two clusters", gvk.Kind)
				require.Len(t, list.Items, 2)
				listed[gvk.Kind] = in[to.Name()]
			}
			return listed["ConfigMap"] && listed["Secret"] && listed["Widget"]
		}, patience, 10*time.Millisecond)
		known.follow(t, objects, to)
		clusters.wait(key("a"), clustercache.Disconnected)
		now := clusters.wait(key("a"), clustercache.Connected).Epoch
		require.NotEqual(t, epoch, now)
		epoch = now
	}
}

// TestRealRollbackIsToldForEveryKind: writes after the snapshot are delivered
// as undone: deleted, added again, changed back.
func TestRealRollbackIsToldForEveryKind(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1, withWidgets())[0]
	createAll(t, c, "stays", "two", "gone")
	d := newDirectory()
	d.set(key("a"), c.Config())
	cc := start(t, brisk(d))
	objects := followObjects(t, cc, clustercache.ObjectFeed{})
	watchAll(t, cc)
	known := heard{}
	known.follow(t, objects, c)
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	// More writes than a server makes by itself when it starts: a history that
	// has grown past the last seen version looks intact.
	for i := range 100 {
		create(t, c, fmt.Sprintf("padding-%d", i))
	}
	change(t, c)
	known.follow(t, objects, c)
	require.NoError(t, c.Rollback(t.Context(), snapshot))
	known.follow(t, objects, c)
	createAll(t, c, "after")
	known.follow(t, objects, c)
	require.Equal(t, 1, status(t, cc).HistoryResets)
}
