// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestRelabeledClusterStaysInTheIterationItIsIn relabels clusters in both
// directions while the loop's body runs.
func TestRelabeledClusterStaysInTheIterationItIsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLabeled(t, map[string]string{"a": "prod", "b": "prod", "c": "test"})
		prod := fleet.Options{ClusterSelector: labels.SelectorFromSet(labels.Set{"env": "prod"}), Sorted: true}
		var got []string
		for answer, err := range fleet.ByCluster(t.Context(), w.cc, &corev1.ConfigMap{}, prod) {
			require.NoError(t, err)
			got = append(got, answer.Cluster.Name+answer.ClusterLabels["env"])
			if len(got) == 1 {
				w.label("b", "test")
				w.label("c", "prod")
				synctest.Wait()
			}
		}
		require.Equal(t, []string{"aprod", "bprod"}, got)

		got = nil
		for answer, err := range fleet.ByCluster(t.Context(), w.cc, &corev1.ConfigMap{}, prod) {
			require.NoError(t, err)
			got = append(got, answer.Cluster.Name+answer.ClusterLabels["env"])
		}
		require.Equal(t, []string{"aprod", "cprod"}, got)
	})
}

// TestClusterWithUnknownLabelsIsNotLeftOut has a cluster whose access is not
// known yet: it may belong to the selection.
func TestClusterWithUnknownLabelsIsNotLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLabeled(t, map[string]string{"a": "prod", "b": "test"})
		w.directory.Fail(fleettest.Key("new"), fmt.Errorf("no Secret yet: %w", resolver.ErrNoAccess))
		require.NoError(t, w.cc.Cluster(fleettest.Key("new")).Engage())
		synctest.Wait()
		var total fleet.Total
		n := 0
		for item, err := range fleet.List(t.Context(), w.cc, &corev1.ConfigMap{}, &total,
			fleet.Options{ClusterSelector: labels.SelectorFromSet(labels.Set{"env": "prod"}), Sorted: true}) {
			if n++; item.Cluster.Name == "new" {
				require.ErrorIs(t, err, fleet.ErrLabelsUnknown)
				require.ErrorIs(t, err, clustercache.ErrNotConnected)
				require.Equal(t, "NoAccess", clustercache.ReasonOf(err))
			} else {
				require.NoError(t, err)
			}
		}
		require.Equal(t, 2, n)
		require.Equal(t, []int{2, 1, 1}, []int{total.Clusters, total.Answered, total.Failed})
	})
}

// TestClustersOfOtherReplicasAreNotLeftOut has a replica that owns one cluster,
// stands by for another, and does not know the third.
func TestClustersOfOtherReplicasAreNotLeftOut(t *testing.T) {
	share := clustercachetest.NewSharding()
	share.Gain(client.ObjectKey{Name: "c00"})
	share.StandBy(client.ObjectKey{Name: "c01"})
	o := clustercachetest.Options{Cache: clustercache.Options{Sharding: share}}
	synctest.Test(t, func(t *testing.T) {
		f := clustercachetest.New(t, o)
		for _, name := range []string{"c00", "c01", "c02"} {
			f.Add(name, configMap("one", "red"))
		}
		w := &world{Fleet: f, t: t, cc: f.ClusterCache()}
		time.Sleep(time.Minute)
		var total fleet.Total
		require.Equal(t, []string{"c00/one", "c01/one", "c02: UnknownCluster"},
			lines(w.list(fleet.Options{Sorted: true}, &total)))
		require.Equal(t, "2 of 3 clusters", total.String())
		for _, err := range w.list(fleet.Options{Clusters: []client.ObjectKey{{Name: "c02"}}}) {
			require.ErrorIs(t, err, clustercache.ErrNotOwner)
		}
		require.Equal(t, []string{"c00/one"}, lines(w.list(fleet.Options{Owned: true})))
		require.Equal(t, []string{"c00/one", "c01/one", "c02: UnknownCluster"},
			lines(w.list(clustercache.AutoWatch, fleet.Options{Sorted: true})))
		require.Len(t, w.cc.Clusters(), 2, "a read makes no cluster of another replica known")
	})
}

// TestReadBeforeTheClustersAreKnownIsNotComplete reads before Start.
func TestReadBeforeTheClustersAreKnownIsNotComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		o := fleettest.Silent(d)
		o.Discover = true
		cc, err := clustercache.New(o)
		require.NoError(t, err)
		var total fleet.Total
		n := 0
		for _, err := range fleet.List(t.Context(), cc, &corev1.ConfigMap{}, &total) {
			n++
			require.ErrorIs(t, err, clustercache.ErrNotStarted)
			_, about := errors.AsType[*clustercache.ClusterError](err)
			require.False(t, about, "it is about no cluster")
		}
		require.Equal(t, 1, n)
		require.False(t, total.Complete())
		require.Equal(t, "0 of at least 0 clusters", total.String())
		fleettest.Run(t, cc)
		synctest.Wait()
		require.Empty(t, lines(fleet.List(t.Context(), cc, &corev1.ConfigMap{}, &total)))
		require.True(t, total.Complete())
	})
}

// TestReadOfAReplicaThatDoesNotLeadIsNotComplete: the replica is ready, but
// knows no clusters.
func TestReadOfAReplicaThatDoesNotLeadIsNotComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := fleettest.Silent(fleettest.NewDirectory())
		o.Discover, o.LeaderOnly = true, true
		cc, err := clustercache.New(o)
		require.NoError(t, err)
		require.NoError(t, cc.ReadyzCheck()(nil))
		var total fleet.Total
		n := 0
		for _, err := range fleet.List(t.Context(), cc, &corev1.ConfigMap{}, &total) {
			n++
			require.ErrorIs(t, err, clustercache.ErrNotStarted)
		}
		require.Equal(t, 1, n)
		require.False(t, total.Complete())
		fleettest.Run(t, cc)
		synctest.Wait()
		require.Empty(t, lines(fleet.List(t.Context(), cc, &corev1.ConfigMap{}, &total)))
		require.True(t, total.Complete())
	})
}

// TestQueriesShareNoOptions: client.ListOptions keeps the page that it asks for
// next in Raw.
func TestQueriesShareNoOptions(t *testing.T) {
	inFleet(t, 3, clustercachetest.Options{}, func(t *testing.T, w *world) {
		raw := &metav1.ListOptions{}
		require.Len(t, lines(w.list(&client.ListOptions{Raw: raw})), 6)
		require.Equal(t, &metav1.ListOptions{}, raw)
	})
}

// TestNoClustersAreNotAll passes a list of clusters that is empty.
func TestNoClustersAreNotAll(t *testing.T) {
	inFleet(t, 2, clustercachetest.Options{}, func(t *testing.T, w *world) {
		var total fleet.Total
		require.Empty(t, lines(w.list(fleet.Options{Clusters: []client.ObjectKey{}}, &total)))
		require.Zero(t, total.Clusters)
		require.NotEmpty(t, lines(w.list(fleet.Options{Clusters: nil}, &total)))
	})
}

// TestLoopBodyMayUseTheClusterCache calls everything that takes locks.
func TestLoopBodyMayUseTheClusterCache(t *testing.T) {
	inFleet(t, 2, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch(w.clusters[0])
		n := 0
		for item, err := range w.list() {
			require.NoError(t, err)
			n++
			c, err := w.cc.Cluster(item.Cluster).Client()
			require.NoError(t, err)
			o, err := item.Object()
			require.NoError(t, err)
			o.Data = map[string]string{"seen": "yes"}
			require.NoError(t, c.Update(t.Context(), o))
			watch, err := w.cc.Cluster(item.Cluster).Watch(t.Context(), &corev1.Secret{})
			require.NoError(t, err)
			require.NoError(t, watch.WaitForSync(t.Context()))
			watch.Release()
			w.cc.Statuses()
			w.WaitSynced()
			require.Len(t, lines(w.list()), 4, "iterations may be nested")
		}
		require.Equal(t, 4, n)
	})
}
