// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestCachedFleetIsReadWithoutRequest hangs every cluster: what is cached is
// answered all the same, and at once.
func TestCachedFleetIsReadWithoutRequest(t *testing.T) {
	inFleet(t, 3, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch()
		for _, c := range w.clusters {
			c.Hang()
		}
		began := time.Now()
		var total fleet.Total
		require.Equal(t, []string{"c00/one", "c00/two", "c01/one", "c01/two", "c02/one", "c02/two"},
			lines(w.list(&total, fleet.Options{Sorted: true})))
		require.Equal(t, []string{"c00/two", "c01/two", "c02/two"},
			lines(w.list(client.MatchingLabels{"color": "blue"})))
		require.Zero(t, time.Since(began))

		require.True(t, total.Complete())
		require.Equal(t, []int{3, 3, 3, 0, 6},
			[]int{total.Clusters, total.Answered, total.Cached, total.Failed, total.Objects})
		require.NotZero(t, total.OldestSeen)
	})
}

// TestAnswerEqualsThatOfTheReader compares what a fleet-wide read returns with
// what the reader of each cluster returns, from the cache and from the API
// servers, in each representation.
func TestAnswerEqualsThatOfTheReader(t *testing.T) {
	inFleet(t, 2, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch(w.clusters[0])
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		loose := &unstructured.Unstructured{}
		loose.SetGroupVersionKind(fleettest.ConfigMap)
		metadata := &metav1.PartialObjectMetadataList{}
		metadata.SetGroupVersionKind(list.GroupVersionKind())
		for _, mode := range []clustercache.ReadMode{clustercache.PreferCache, clustercache.LiveOnly} {
			sameAsReader(t, w, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, mode)
			sameAsReader(t, w, loose, list, mode)
			sameAsReader(t, w, clustercache.Kind(fleettest.ConfigMap), metadata, mode)
			sameAsReader[client.Object](t, w, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, mode)
		}
	})
}

func sameAsReader[T client.Object](t *testing.T, w *world, kind T, list client.ObjectList, mode clustercache.ReadMode) {
	t.Helper()
	for answer, err := range fleet.ByCluster(t.Context(), w.cc, kind, mode, client.HasLabels{"color"}) {
		require.NoError(t, err)
		var from clustercache.Origin
		require.NoError(t, w.cc.Cluster(answer.Cluster).Reader().List(t.Context(), list, mode,
			client.HasLabels{"color"}, &from))
		require.Equal(t, from, answer.Origin)
		want := map[string]any{}
		require.NoError(t, eachItem(list, func(o client.Object) { want[o.GetName()] = o }))

		got := map[string]any{}
		for item := range answer.Items() {
			o, err := item.Object()
			require.NoError(t, err)
			got[item.Metadata().GetName()] = o
			color, ok := item.Label("color")
			require.True(t, ok)
			require.Equal(t, o.GetLabels()["color"], color)
			require.Equal(t, o.GetUID(), item.Metadata().GetUID())
			require.Equal(t, o.GetResourceVersion(), item.Metadata().GetResourceVersion())
		}
		require.Equal(t, want, got)
		require.Len(t, got, answer.Len())
		require.Len(t, got, 2)
	}
}

// TestClusterThatCannotBeReadYieldsItsErrorOnce has one cluster for each way to
// fail.
func TestClusterThatCannotBeReadYieldsItsErrorOnce(t *testing.T) {
	inFleet(t, 6, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch(w.clusters[0], w.clusters[1], w.clusters[5])
		require.Len(t, lines(w.list()), 12, "all kinds are known: from now on only lists fail")
		w.clusters[1].Disconnect()
		w.clusters[2].Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
		w.clusters[3].Fail(errors.New("broken"), clustercachetest.Resource("configmaps"))
		w.clusters[4].Hang() // not yet noticed
		time.Sleep(time.Second)
		w.clusters[1].WaitPhase(status.PhaseDisconnected)

		all := make([]client.ObjectKey, 0, 7)
		for _, c := range w.clusters {
			all = append(all, c.Key())
		}
		all = append(all, client.ObjectKey{Name: "never"}, client.ObjectKey{Name: "c00"})
		var total fleet.Total
		require.Equal(t, []string{
			"c00/one", "c00/two", "c01: Unreachable", "c02: Forbidden", "c03: Unreachable", "c04: Timeout",
			"c05/one", "c05/two", "never: UnknownCluster",
		}, lines(w.list(fleet.Options{Clusters: all, Sorted: true, Timeout: time.Second}, &total)))
		require.Equal(t, fleet.Total{
			Clusters: 7,
			Answered: 2,
			Cached:   2,
			Failed:   5,
			Reasons:  map[string]int{"Unreachable": 2, "Forbidden": 1, "Timeout": 1, "UnknownCluster": 1},
			Objects:  4,

			OldestSeen: total.OldestSeen,
			Oldest:     total.Oldest,
		}, total)
		require.False(t, total.Complete())

		require.Equal(t, []string{"c01: Unreachable", "c02: NotWatched"}, lines(w.list(clustercache.CacheOnly,
			fleet.Options{Clusters: []client.ObjectKey{w.clusters[2].Key(), w.clusters[1].Key()}, Sorted: true})))
	})
}

// TestDisconnectedClusterIsReadWithItsAge reads what is cached of a cluster
// that is away, and how old that is.
func TestDisconnectedClusterIsReadWithItsAge(t *testing.T) {
	inFleet(t, 2, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch()
		w.clusters[1].Disconnect()
		gone := time.Now()
		time.Sleep(10 * time.Minute)
		var total fleet.Total
		require.Equal(t, []string{"c00/one", "c00/two", "c01: Unreachable"}, lines(w.list(fleet.Options{Sorted: true})))
		require.Equal(t, []string{"c00/one", "c00/two", "c01/one", "c01/two"}, lines(w.list(
			clustercache.CacheOnly, clustercache.MaxStaleness(time.Hour), fleet.Options{Sorted: true}, &total)))
		require.Equal(t, w.clusters[1].Key(), total.Oldest)
		require.WithinDuration(t, gone, total.OldestSeen, 2*time.Minute)
		require.Regexp(t, `^2 of 2 clusters, oldest 1[0-2]m\d+s$`, total.String())
	})
}

// TestUnsyncedClusterIsNoEmptyOne reads a cluster whose informer cannot list.
func TestUnsyncedClusterIsNoEmptyOne(t *testing.T) {
	inFleet(t, 2, clustercachetest.Options{}, func(t *testing.T, w *world) {
		heal := w.clusters[1].Fail(clustercachetest.Status(500), clustercachetest.Resource("configmaps"))
		w.watch(w.clusters[0])
		_, err := w.cc.Cluster(w.clusters[1].Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"c00/one", "c00/two", "c01: NotSynced"},
			lines(w.list(clustercache.CacheOnly, fleet.Options{Sorted: true})))
		heal()
		require.Equal(t, []string{"c00/one", "c00/two", "c01/one", "c01/two"},
			lines(w.list(fleet.Options{Sorted: true})))
	})
}

// TestEmptyClusterIsAnAnswer distinguishes a cluster without objects from one
// that did not answer.
func TestEmptyClusterIsAnAnswer(t *testing.T) {
	inFleet(t, 3, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch(w.clusters[0])
		w.clusters[2].Fail(clustercachetest.Status(403), clustercachetest.Resource("configmaps"))
		var got []string
		var total fleet.Total
		for answer, err := range fleet.ByCluster(t.Context(), w.cc, &corev1.ConfigMap{},
			client.InNamespace("nothing"), fleet.Options{Sorted: true}, &total) {
			got = append(got, fmt.Sprint(answer.Cluster.Name, answer.Len(), answer.Origin.Cached, err == nil))
		}
		require.Equal(t, []string{"c000 true true", "c010 false true", "c020 false false"}, got)
		require.Equal(t, []int{3, 2, 1}, []int{total.Clusters, total.Answered, total.Cached})
	})
}

// TestClusterThatGoesDuringTheIterationYieldsItsError removes clusters while the
// loop's body runs: one whose answer has been yielded, and one that is to come.
func TestClusterThatGoesDuringTheIterationYieldsItsError(t *testing.T) {
	inFleet(t, 3, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch()
		var total fleet.Total
		var got []string
		for item, err := range w.list(&total) {
			if len(got) == 0 {
				w.clusters[0].Remove()
				w.clusters[2].Remove()
				w.Add("later", configMap("one", "red"))
				w.WaitSynced()
			}
			got = append(got, line(item, err))
		}
		slices.Sort(got)
		require.Equal(t, []string{"c00/one", "c00/two", "c01/one", "c01/two", "c02: UnknownCluster"}, got)
		require.Equal(t, []int{3, 2, 1}, []int{total.Clusters, total.Answered, total.Failed})

		got = lines(w.list(fleet.Options{Sorted: true}))
		require.Equal(t, []string{"c01/one", "c01/two", "later/one"}, got, "the next iteration begins anew")
	})
}

// TestLeavingTheLoopEndsTheQueries leaves it while API servers that hang are
// queried. The bubble does not end before their goroutines.
func TestLeavingTheLoopEndsTheQueries(t *testing.T) {
	inFleet(t, 9, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch(w.clusters[8])
		for _, c := range w.clusters[:8] {
			c.Hang()
		}
		began := time.Now()
		var total fleet.Total
		for item, err := range w.list(&total) {
			require.NoError(t, err)
			require.Equal(t, "c08", item.Cluster.Name, "the others are being queried")
			break
		}
		require.Zero(t, time.Since(began))
		require.Equal(t, []int{9, 1, 0}, []int{total.Clusters, total.Answered, total.Failed})
		require.False(t, total.Complete())

		for _, err := range w.list(fleet.Options{Timeout: time.Second}) {
			if err != nil {
				break
			}
		}
		require.Equal(t, time.Second, time.Since(began), "the first that hung")

		require.PanicsWithValue(t, "left at c08", func() {
			for item, err := range w.list() {
				require.NoError(t, err)
				panic("left at " + item.Cluster.Name)
			}
		})
		require.Equal(t, time.Second, time.Since(began))
	})
}

// TestEveryClusterThatIsLeftYieldsTheEndOfTheContext ends the context while
// some clusters hang and others have not been queried.
func TestEveryClusterThatIsLeftYieldsTheEndOfTheContext(t *testing.T) {
	inFleet(t, 9, clustercachetest.Options{}, func(t *testing.T, w *world) {
		w.watch(w.clusters[0])
		require.Len(t, lines(w.list()), 18, "all kinds are known: from now on only lists hang")
		for _, c := range w.clusters[1:] {
			c.Hang()
		}
		cause := errors.New("the dashboard was closed")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		began := time.Now()
		var total fleet.Total
		var failed []string
		for item, err := range fleet.List(ctx, w.cc, &corev1.ConfigMap{}, client.InNamespace("default"),
			fleet.Options{Concurrency: 3}, &total) {
			if err != nil {
				require.ErrorIs(t, err, cause)
				of, ok := errors.AsType[*clustercache.ClusterError](err)
				require.True(t, ok)
				require.Equal(t, item.Cluster, of.Cluster)
				failed = append(failed, item.Cluster.Name)
			}
		}
		require.Equal(t, time.Second, time.Since(began))
		slices.Sort(failed)
		require.Equal(t, []string{"c01", "c02", "c03", "c04", "c05", "c06", "c07", "c08"}, failed)
		require.Equal(t, []int{9, 1, 8, 2}, []int{total.Clusters, total.Answered, total.Failed, total.Objects})

		for _, err := range fleet.List(ctx, w.cc, &corev1.ConfigMap{}) {
			require.ErrorIs(t, err, cause, "also from the beginning, and of what is cached")
			failed = append(failed, "again")
		}
		require.Len(t, failed, 8+9)
	})
}

// TestClustersThatHangDoNotDelayTheOthers hangs 21 of 50 clusters that nothing
// watches, unnoticed, and the first ones among them.
func TestClustersThatHangDoNotDelayTheOthers(t *testing.T) {
	inFleet(t, 50, clustercachetest.Options{}, func(t *testing.T, w *world) {
		for i, c := range w.clusters {
			if i < 6 || i%3 == 0 {
				c.Hang()
			}
		}
		began := time.Now()
		answered, hung := 0, 0
		for _, err := range w.list(fleet.Options{Concurrency: 4, Timeout: 20 * time.Second}) {
			if err != nil {
				require.Equal(t, "Timeout", clustercache.ReasonOf(err), err)
				hung++
				continue
			}
			require.Less(t, time.Since(began), 15*time.Second)
			answered++
		}
		require.Equal(t, 21, hung)
		require.Equal(t, 2*29, answered)
		require.Less(t, time.Since(began), 40*time.Second, "each is waited for, but not one after the other")
	})
}

// TestNoMoreAPIServersAreQueriedAtOnceThanAllowed counts the requests that are
// being served, also while the loop's body takes its time.
func TestNoMoreAPIServersAreQueriedAtOnceThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var serving gauge
		cc, apis := fleettest.NewFleet(t, 20, func(o *clustercache.Options) { o.Discover = true })
		synctest.Wait()
		for _, api := range apis {
			serving.count(api)
		}
		n := 0
		for _, err := range fleet.List(t.Context(), cc, &corev1.ConfigMap{}, fleet.Options{Concurrency: 3}) {
			require.NoError(t, err)
			n++
			time.Sleep(time.Minute)
		}
		require.Equal(t, 20, n)
		require.Equal(t, 3, serving.most)
	})
}

// TestOptionThatCannotBeUsedIsRefused passes options that make no sense for
// many clusters.
func TestOptionThatCannotBeUsedIsRefused(t *testing.T) {
	cc, err := clustercache.New(fleettest.Silent(fleettest.NewDirectory()))
	require.NoError(t, err)
	for name, opt := range map[string]client.ListOption{
		"Limit":        client.Limit(1),
		"Limit ":       client.Continue("x"),
		"Origin":       &clustercache.Origin{},
		"NotOlderThan": clustercache.NotOlderThan("7"),
		"Concurrency":  fleet.Options{Concurrency: -1},
		"Timeout":      fleet.Options{Timeout: -1},
		"Options":      (*fleet.Options)(nil),
		"Total":        (*fleet.Total)(nil),
	} {
		refused(t, strings.TrimSpace(name), cc, &corev1.ConfigMap{}, opt)
	}
	refused(t, "Kind", cc, (*corev1.ConfigMap)(nil))
	refused(t, "Kind", cc, client.Object(nil))
	refused(t, "Kind", cc, &unstructured.Unstructured{})
}

func refused[T client.Object](
	t *testing.T, field string, cc *clustercache.ClusterCache, kind T, opts ...client.ListOption,
) {
	t.Helper()
	n := 0
	for _, err := range fleet.List(t.Context(), cc, kind, opts...) {
		n++
		refusal, ok := errors.AsType[*clustercache.OptionError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, field, refusal.Field)
	}
	require.Equal(t, 1, n)
}

// TestLargeLiveListIsReadInPages reads more objects than a page has, of a
// cluster that is selected by a field, too.
func TestLargeLiveListIsReadInPages(t *testing.T) {
	inFleet(t, 1, clustercachetest.Options{}, func(t *testing.T, w *world) {
		for i := range 1200 {
			w.clusters[0].Store(configMap(fmt.Sprintf("more-%04d", i), "green"))
		}
		got := lines(w.list(fleet.Options{Sorted: true}))
		require.Len(t, got, 1202)
		require.True(t, slices.IsSorted(got))
		require.Len(t, slices.Compact(got), 1202)
		require.Equal(t, []string{"c00/two"}, lines(w.list(client.MatchingFields{"metadata.name": "two"})))
		require.Len(t, w.clusters[0].Requests(clustercachetest.Verb("list"),
			clustercachetest.Resource("configmaps")), 4)
	})
}

// TestPagesOfDifferentStatesAreNoAnswer has a server that continues a list with
// another state of its objects.
func TestPagesOfDifferentStatesAreNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, func(o *clustercache.Options) { o.Discover = true })
		synctest.Wait()
		second := "10"
		answerList(apis[0], func(token string) map[string]any {
			if token == "" {
				return page("10", "more", "one", "1")
			}
			return page(second, "", "two", "2")
		})
		require.Equal(t, []string{"a/one", "a/two"},
			lines(fleet.List(t.Context(), cc, &corev1.ConfigMap{}, fleet.Options{Sorted: true})))
		second = "11"
		for answer, err := range fleet.ByCluster(t.Context(), cc, &corev1.ConfigMap{}) {
			require.ErrorIs(t, err, clustercache.ErrAnswer)
			require.Zero(t, answer.Len())
		}
	})
}

// TestObjectThatDoesNotFitIsTheOnlyOneThatFails reads an object whose data are
// no strings.
func TestObjectThatDoesNotFitIsTheOnlyOneThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, apis := fleettest.NewFleet(t, 1, func(o *clustercache.Options) { o.Discover = true })
		synctest.Wait()
		answerList(apis[0], func(token string) map[string]any {
			if token == "" {
				return page("10", "more", "one", 1)
			}
			return page("10", "", "two", "2")
		})
		var got []string
		for item, err := range fleet.List(t.Context(), cc, &corev1.ConfigMap{}, fleet.Options{Sorted: true}) {
			require.NoError(t, err)
			o, err := item.Object()
			if err == nil {
				got = append(got, o.Name)
				continue
			}
			of, ok := errors.AsType[*clustercache.ClusterError](err)
			require.True(t, ok, err)
			require.Equal(t, []string{"a", "ConfigMap", "decode"}, []string{of.Cluster.Name, of.GVK.Kind, of.Op})
			require.Nil(t, o)
			got = append(got, item.Metadata().GetName()+" failed")
		}
		require.Equal(t, []string{"one failed", "two"}, got)
	})
}
