// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// one returns a fleet of one cluster whose ConfigMaps are watched.
func one(t *testing.T, objs ...client.Object) (*clustercachetest.Fleet, *clustercachetest.Cluster,
	*clustercache.ClusterCache) {
	t.Helper()
	fleet := clustercachetest.New(t, clustercachetest.Options{})
	east := fleet.Add("fleet/east", objs...)
	cc := fleet.ClusterCache()
	watch(t, cc, east)
	fleet.WaitSynced()
	return fleet, east, cc
}

func statusOf(t *testing.T, cc *clustercache.ClusterCache, c *clustercachetest.Cluster) status.Cluster {
	t.Helper()
	s, err := cc.Cluster(c.Key()).Status()
	require.NoError(t, err)
	return s
}

// lists counts the lists of ConfigMaps, streamed or not.
func lists(c *clustercachetest.Cluster) int {
	return len(c.Requests(clustercachetest.Resource("configmaps"), func(r clustercachetest.Request) bool {
		return (r.Verb == "list" || r.Initial) && !versionQuestion(r)
	}))
}

func TestHungNetworkIsNoticedWithDefaultOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		hung := time.Now()
		east.Hang()
		east.WaitPhase(status.PhaseDisconnected)
		require.Less(t, time.Since(hung), 46*time.Second)
		require.Equal(t, "Timeout", statusOf(t, cc, east).Reason)
		east.Store(configMap("a", "2"))
		east.Connect()
		fleet.WaitSynced()
		require.Equal(t, "2", cached(t, cc, east, "a"))
		require.Equal(t, 1, lists(east))
	})
}

func TestEachFailureHasItsReasonAndHeals(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason string
		phase  status.Phase
	}{
		"401": {clustercachetest.Status(http.StatusUnauthorized), "Unauthorized", status.PhaseDisconnected},
		"500": {clustercachetest.Status(http.StatusInternalServerError), "Server", status.PhaseDisconnected},
		"503": {clustercachetest.Status(http.StatusServiceUnavailable), "Server", status.PhaseDisconnected},
		"429": {clustercachetest.Status(http.StatusTooManyRequests), "Throttled", status.PhaseReady},
		"cut": {errors.New("cable"), "Unreachable", status.PhaseDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet, east, cc := one(t, configMap("a", "1"))
				heal := east.Fail(c.err)
				// A server that answers 429 is alive: its cluster stays Ready,
				// with a reason.
				require.Eventually(t, func() bool {
					return statusOf(t, cc, east).Reason != "" && statusOf(t, cc, east).Phase == c.phase
				}, 2*time.Minute, 10*time.Millisecond)
				require.Equal(t, c.reason, statusOf(t, cc, east).Reason)
				require.Error(t, statusOf(t, cc, east).LastError)
				fleet.WaitSynced()
				heal()
				fleet.WaitSynced()
				require.Eventually(t, func() bool { return statusOf(t, cc, east).Reason == "" }, 2*time.Minute,
					10*time.Millisecond)
				require.Equal(t, status.PhaseReady, statusOf(t, cc, east).Phase)
				require.Equal(t, 1, lists(east))
			})
		})
	}
}

func TestFailuresAreForWhatTheyMatch(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		heal := east.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Write(),
			clustercachetest.Resource("configmaps"))
		writer, err := cc.Cluster(east.Key()).Client()
		require.NoError(t, err)
		err = writer.Create(t.Context(), configMap("b", "1"))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, `cannot create resource "configmaps" in API group "" in the namespace "default"`)
		require.NoError(t, east.Client().Create(t.Context(), configMap("c", "1")),
			"the test's own client is not concerned")
		fleet.WaitSynced()
		require.Equal(t, "1", cached(t, cc, east, "c"))
		heal()
		require.NoError(t, writer.Create(t.Context(), configMap("b", "1")))

		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "b", errors.New("as told"))
		defer east.Fail(conflict, clustercachetest.Verb("update"))()
		require.True(t, apierrors.IsConflict(writer.Update(t.Context(), configMap("b", "2"))))
	})
}

func TestFailingAWatchEndsTheOpenOnes(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		heal := east.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Verb("watch"),
			clustercachetest.Resource("configmaps"))
		require.Eventually(t, func() bool {
			watches, err := cc.Cluster(east.Key()).WatchStatuses()
			return err == nil && len(watches) == 1 && apierrors.IsForbidden(watches[0].LastError)
		}, time.Minute, 10*time.Millisecond)
		east.Store(configMap("a", "2"))
		heal()
		fleet.WaitSynced()
		require.Equal(t, "2", cached(t, cc, east, "a"))
	})
}

func TestRotateAndRevoke(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		old := east.Config().BearerToken
		east.Rotate()
		fleet.WaitSynced()
		require.NotEqual(t, old, east.Config().BearerToken)
		require.Equal(t, 1, statusOf(t, cc, east).Connects)
		east.Revoke()
		fleet.WaitSynced()
		require.Equal(t, "Unauthorized", statusOf(t, cc, east).Reason)
		east.Rotate()
		fleet.WaitSynced()
		require.Equal(t, 1, lists(east))
		require.Equal(t, "1", cached(t, cc, east, "a"))
	})
}

func TestNewEpochAndRollback(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		before := statusOf(t, cc, east)
		east.NewEpoch(configMap("b", "2"))
		fleet.WaitSynced()
		require.Equal(t, "2", cached(t, cc, east, "b"))
		err := cc.Cluster(east.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(configMap("a", "")),
			configMap("a", ""), clustercache.CacheOnly)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		require.NotEqual(t, before.UID, statusOf(t, cc, east).UID)

		snapshot := east.Snapshot()
		east.Store(configMap("b", "3"), configMap("c", "1"))
		fleet.WaitSynced()
		east.Rollback(snapshot)
		fleet.WaitSynced()
		require.Equal(t, "2", cached(t, cc, east, "b"))
		err = cc.Cluster(east.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(configMap("c", "")),
			configMap("c", ""),
			clustercache.CacheOnly)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func TestCompactedHistoryIsListedAgainWithoutNews(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"), configMap("b", "1"))
		east.Disconnect()
		fleet.WaitSynced()
		east.Store(configMap("b", "2"))
		east.Compact()
		east.Connect()
		fleet.WaitSynced()
		require.Equal(t, "2", cached(t, cc, east, "b"))
		require.Equal(t, 2, lists(east))
		require.Zero(t, statusOf(t, cc, east).HistoryResets)
	})
}

func TestClustersGoAndCome(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		west := fleet.Add("fleet/west", configMap("w", "1"))
		watch(t, cc, west)
		fleet.WaitSynced()
		east.Remove()
		fleet.WaitSynced()
		err := cc.Cluster(east.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(configMap("a", "")),
			configMap("a", ""))
		require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
		require.Equal(t, "1", cached(t, cc, west, "w"))
		again := fleet.Add("fleet/east", configMap("a", "2"))
		fleet.WaitSynced()
		require.Equal(t, "2", cached(t, cc, again, "a"), "the watch is still held")
		require.Same(t, again, fleet.Cluster(east.Key()))
	})
}

// Gizmo is a kind with a Go type that Kubernetes does not have.
type Gizmo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Status struct {
		Ready bool `json:"ready"`
	} `json:"status"`
}

// DeepCopyObject implements runtime.Object.
func (g *Gizmo) DeepCopyObject() runtime.Object {
	out := *g
	g.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func TestKindsOfTheSchemeOfTheOptionsAndServedLater(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		gizmos := schema.GroupVersion{Group: "example.com", Version: "v1"}
		mine := runtime.NewScheme()
		require.NoError(t, scheme.AddToScheme(mine))
		mine.AddKnownTypes(gizmos, &Gizmo{})
		metav1.AddToGroupVersion(mine, gizmos)
		global := gizmos.WithKind("Planet")
		fleet := clustercachetest.New(t, clustercachetest.Options{
			Scheme: mine, Kinds: []clustercachetest.Kind{{GVK: global, ClusterScoped: true, NoStatus: true}},
		})
		gizmo := &Gizmo{ObjectMeta: metav1.ObjectMeta{Namespace: "made-for-it", Name: "g"}}
		gizmo.Status.Ready = true
		planet := &unstructured.Unstructured{}
		planet.SetGroupVersionKind(global)
		planet.SetName("earth")
		east := fleet.Add("east", gizmo, planet)
		cc := fleet.ClusterCache()
		late := clustercachetest.Kind{GVK: gizmos.WithKind("Policy"), Plural: "policies"}
		for _, kind := range []client.Object{&Gizmo{}, clustercache.Kind(global), clustercache.Kind(late.GVK)} {
			w, err := cc.Cluster(east.Key()).Watch(t.Context(), kind)
			require.NoError(t, err)
			t.Cleanup(w.Release)
		}
		east.WaitPhase(status.PhaseReady)
		east.Serve(late)
		fleet.WaitSynced()
		got := &Gizmo{}
		require.NoError(t, cc.Cluster(east.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(gizmo), got,
			clustercache.CacheOnly))
		require.True(t, got.Status.Ready, "what is stored keeps its status")
		require.NoError(t, cc.Cluster(east.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(planet), planet,
			clustercache.CacheOnly))
		require.NotEmpty(t, planet.GetUID())
		require.Empty(t, gizmo.UID, "what is stored is a copy")
	})
}

func TestSilentWatchesAreCalledStaleAndComeBackWithWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		east.SetStale(true, &corev1.ConfigMap{})
		east.WaitStale(true)
		east.Store(configMap("a", "2"))
		fleet.WaitSynced() // there is nothing to wait for
		time.Sleep(10 * time.Minute)
		s := statusOf(t, cc, east)
		require.True(t, s.Stale)
		require.True(t, s.Connected)
		require.Positive(t, s.Stalls)
		got := configMap("a", "")
		read := func(opts ...client.GetOption) error {
			return cc.Cluster(east.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(got),
				got, append(opts, clustercache.CacheOnly)...)
		}
		require.ErrorIs(t, read(), clustercache.ErrStale)
		require.ErrorIs(t, read(clustercache.MaxStaleness(3*time.Minute)), clustercache.ErrStale)
		require.NoError(t, read(clustercache.MaxStaleness(time.Hour)), "who asks for what is old gets it")
		require.Equal(t, "1", got.Data["value"])

		east.SetStale(false)
		east.WaitStale(false)
		fleet.WaitSynced()
		require.Equal(t, "2", cached(t, cc, east, "a"))
		require.NoError(t, read())
		require.Equal(t, 1, lists(east), "it resumed")
	})
}

func TestStaleCacheFallsBehindLiveWritesUntilItIsFresh(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		fresh := east.Stale(&corev1.ConfigMap{})
		writer, err := cc.Cluster(east.Key()).Client()
		require.NoError(t, err)
		for _, value := range []string{"2", "3"} {
			require.NoError(t, writer.Update(t.Context(), configMap("a", value)))
		}
		east.Store(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}})
		fleet.WaitSynced()
		require.Equal(t, "1", cached(t, cc, east, "a"))
		live := configMap("a", "")
		require.NoError(t, east.Client().Get(t.Context(), client.ObjectKeyFromObject(live), live))
		require.Equal(t, "3", live.Data["value"])
		require.False(t, statusOf(t, cc, east).Stale, "nothing tells that the view is old")

		east.Reset() // watches that resume or begin see the old view as well
		w, err := cc.Cluster(east.Key()).Watch(t.Context(), &corev1.ConfigMap{}, client.MatchingLabels{"x": "y"})
		require.NoError(t, err)
		defer w.Release()
		fleet.WaitSynced()
		require.Equal(t, "1", cached(t, cc, east, "a"))
		fresh()
		fleet.WaitSynced()
		require.Equal(t, "3", cached(t, cc, east, "a"))
		require.Zero(t, statusOf(t, cc, east).HistoryResets)
	})
}

// told collects the values of ConfigMap a that a feed delivers.
func told(t *testing.T, cc *clustercache.ClusterCache) <-chan string {
	t.Helper()
	out := make(chan string, 100)
	seq, err := cc.ObjectEvents(t.Context(), events.Selection{})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range seq {
			var cm corev1.ConfigMap
			if e.Object().Into(&cm) == nil && cm.Name != "end" {
				out <- fmt.Sprintf("%s %s=%s", e.Type, cm.Name, cm.Data["value"])
			}
		}
	}()
	t.Cleanup(func() { <-done })
	return out
}

func TestSkippedStatesAreNeverSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"), configMap("b", "1"))
		received := told(t, cc)
		synctest.Wait()
		require.Len(t, received, 2)
		for range 2 {
			<-received
		}
		east.Skip(func() {
			east.Store(configMap("a", "2"), configMap("a", "3"), configMap("c", "1"))
			require.NoError(t, east.Client().Delete(t.Context(), configMap("c", "")))
			require.NoError(t, east.Client().Delete(t.Context(), configMap("b", "")))
			east.Store(configMap("b", "1"))
			fleet.WaitSynced()
			require.Equal(t, "1", cached(t, cc, east, "a"))
		})
		fleet.WaitSynced()
		synctest.Wait()
		var got []string
		for len(received) > 0 {
			got = append(got, <-received)
		}
		require.ElementsMatch(t, []string{"Updated a=3", "Deleted b=1", "Added b=1"}, got)
		require.Equal(t, 2, lists(east), "nothing was told of but how things are")
	})
}

func TestInterruptionsLetNoWritePassUntilTheirEnd(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet, east, cc := one(t, configMap("a", "1"))
		west := fleet.Add("west")
		fleet.WaitSynced()
		write := func(c *clustercachetest.Cluster, name string) error {
			writer, err := cc.Cluster(c.Key()).Client()
			require.NoError(t, err)
			return writer.Create(t.Context(), configMap(name, ""))
		}
		i := fleet.InterruptBefore(2)
		require.NoError(t, write(east, "b"))
		require.True(t, clustercachetest.IsInterrupted(write(west, "b")))
		require.True(t, clustercachetest.IsInterrupted(write(east, "c")))
		east.Store(configMap("d", ""))
		require.True(t, i.End())
		require.NoError(t, write(west, "b"), "it was not done")

		i = fleet.InterruptAfter(1)
		require.True(t, clustercachetest.IsInterrupted(write(west, "c")))
		require.True(t, clustercachetest.IsInterrupted(write(west, "e")))
		require.True(t, i.End())
		require.True(t, apierrors.IsAlreadyExists(write(west, "c")), "it was done")
		require.NoError(t, write(west, "e"))

		i = fleet.InterruptBefore(1)
		require.False(t, i.End(), "nothing was written")
		require.NoError(t, write(west, "f"))
	})
}

func TestKubeconfigsInAHubLeadToTheFakes(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		hub := fleet.Add("")
		east := fleet.Add("default/east", configMap("a", "1"))
		hub.Store(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east-kubeconfig",
				Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "east"}},
			Data: map[string][]byte{"value": east.Kubeconfig()},
		})
		clusters, err := resolver.ClusterAPI(hub.Client(), resolver.HubOptions{})
		require.NoError(t, err)
		cc := start(t, clustercache.Options{Resolver: clusters, Discover: true, Dial: fleet.Dial})
		w := watch(t, cc, east)
		require.NoError(t, w.WaitForSync(t.Context()))
		require.Equal(t, "1", cached(t, cc, east, "a"))
	})
}

func TestNothingIsLeftAndAHundredClustersAreCheap(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		began := time.Now()
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		cc := fleet.ClusterCache()
		var clusters []*clustercachetest.Cluster
		for i := range 100 {
			c := fleet.Add(fmt.Sprintf("fleet/c%d", i), configMap("a", fmt.Sprint(i)))
			clusters = append(clusters, c)
			watch(t, cc, c)
		}
		fleet.WaitSynced()
		for i, c := range clusters {
			require.Equal(t, fmt.Sprint(i), cached(t, cc, c, "a"))
		}
		for _, c := range clusters[:50] {
			c.Disconnect()
		}
		fleet.WaitSynced()
		t.Log("took", time.Since(began))
	})
}

func TestWhatCannotBeStoredFailsTheTest(t *testing.T) {
	for text, obj := range map[string]client.Object{
		"no kind is registered": &Gizmo{},
		"is not served": kindOnly(schema.GroupVersionKind{Group: "nobody.io",
			Version: "v1", Kind: "Nothing"}),
		"has no namespace": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		"metadata.name": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: "A B"}},
		"does not match the namespace": &corev1.Node{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}},
	} {
		fake := &exampleT{}
		func() {
			defer func() { _ = recover() }()
			clustercachetest.New(fake, clustercachetest.Options{}).Add("east", obj)
		}()
		fake.end()
		require.Contains(t, strings.Join(fake.failures, "\n"), text)
	}
}

func kindOnly(gvk schema.GroupVersionKind) client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetName("a")
	return u
}
