// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package declaring_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var gadgets = schema.GroupVersionKind{Group: "toys.example", Version: "v1", Kind: "Gadget"}

// callLog records the owners that were called.
type callLog struct {
	mu    sync.Mutex // protects calls
	calls map[string]int
}

// ownersOf subscribes to the owners of a ClusterCache until the test ends.
func ownersOf(t *testing.T, cc *clustercache.ClusterCache) *callLog {
	t.Helper()
	l := &callLog{calls: map[string]int{}}
	s, err := cc.SubscribeOwners(func(e clustercache.OwnerEvent) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls[e.Owner.Name]++
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Stop)
	return l
}

// take returns which owners were called since the last call of take, after a
// time.
func (l *callLog) take(after time.Duration) (called []string) {
	time.Sleep(after)
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range []string{"one", "two", "three"} {
		if l.calls[name] > 0 {
			called = append(called, name)
		}
	}
	clear(l.calls)
	return called
}

// watchLog follows the events of watches.
type watchLog struct {
	mu     sync.Mutex // protects events
	events []events.Watch
}

func watchesOf(t *testing.T, cc *clustercache.ClusterCache) *watchLog {
	t.Helper()
	l := &watchLog{}
	s, err := cc.SubscribeWatches(func(e events.Watch) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events = append(l.events, e)
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(s.Stop)
	return l
}

// last returns the last event of a kind.
func (l *watchLog) last(kind string) (e events.Watch) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range l.events {
		if event.Key.GVK.Kind == kind {
			e = event
		}
	}
	return e
}

var (
	one = []string{"one"}

	configMaps = clustercachetest.Resource("configmaps")
)

// TestEachChangeOfWhatWasDeclaredCallsItsOwners: objects call the owners of the
// targets that cover them, and only those.
func TestEachChangeOfWhatWasDeclaredCallsItsOwners(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls := ownersOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		fleettest.Declare(t, cc, fleettest.Owner("two"), fleettest.Target("a", "ConfigMap",
			client.MatchingLabels{"color": "red"}))
		fleettest.Declare(t, cc, fleettest.Owner("three"), fleettest.Target("a", "ConfigMap",
			client.InNamespace("other")), fleettest.Target("a", "Node", client.InNamespace("any")))
		require.Equal(t, []string{"one", "two", "three"}, calls.take(time.Second), "each watch has synced")
		require.Empty(t, calls.take(time.Hour), "nothing happens")

		green := fleettest.ColoredConfigMap("green", "green")
		require.NoError(t, c.Client().Create(t.Context(), green))
		require.Equal(t, one, calls.take(time.Second))
		green.Labels = map[string]string{"color": "red"}
		require.NoError(t, c.Client().Update(t.Context(), green))
		require.Equal(t, []string{"one", "two"}, calls.take(time.Second), "the selection has another object")
		green.Labels = nil
		require.NoError(t, c.Client().Update(t.Context(), green))
		require.Equal(t, []string{"one", "two"}, calls.take(time.Second), "the selection has it no more")
		node := &corev1.Node{}
		node.Name = "n"
		require.NoError(t, c.Client().Create(t.Context(), node))
		require.Equal(t, []string{"three"}, calls.take(time.Second), "of a kind that ignores namespaces")

		cc.Drop(fleettest.Owner("two"))
		green.Labels = map[string]string{"color": "red"}
		require.NoError(t, c.Client().Update(t.Context(), green))
		require.Equal(t, one, calls.take(time.Second))
	})
}

// TestHazardEndOfAnEmptyListGoesUnheard: without an object, the end of the
// first list is the only event.
func TestHazardEndOfAnEmptyListGoesUnheard(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		heal := c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), configMaps)
		calls, watches := ownersOf(t, cc), watchesOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Minute)
		require.False(t, watches.last("ConfigMap").Synced)
		require.Equal(t, "Server", watches.last("ConfigMap").Reason)
		heal()
		require.Equal(t, one, calls.take(time.Minute))
		require.True(t, watches.last("ConfigMap").Synced)
		require.NoError(t, watches.last("ConfigMap").Err)
	})
}

// TestHazardOwnerStaysWithWhatALiveReadShowed: an object that was read before
// the first list ended, and that the list lacks, has no event of its own.
func TestHazardOwnerStaysWithWhatALiveReadShowed(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		heal := c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), configMaps,
			clustercachetest.Verb("list", "watch"))
		red := fleettest.ColoredConfigMap("red", "red")
		c.Store(red)
		calls := ownersOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Second)
		got := &corev1.ConfigMap{}
		require.NoError(t, cc.Cluster(c.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(red), got))
		require.NoError(t, c.Client().Delete(t.Context(), red))
		heal()
		require.Equal(t, one, calls.take(time.Minute))
		err := cc.Cluster(c.Key()).Reader().Get(t.Context(), client.ObjectKeyFromObject(red), got)
		require.True(t, apierrors.IsNotFound(err))
	})
}

// TestHazardRefusalGoesUnheard: a right that is revoked and granted again calls
// the owners, and no attempt in between does.
func TestHazardRefusalGoesUnheard(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls, watches := ownersOf(t, cc), watchesOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Minute)
		heal := c.Fail(clustercachetest.Status(http.StatusForbidden), configMaps)
		require.Equal(t, one, calls.take(time.Second))
		e := watches.last("ConfigMap")
		require.False(t, e.Synced)
		require.True(t, apierrors.IsForbidden(e.Err))
		require.Equal(t, "Forbidden", e.Reason)
		err := cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{})
		require.True(t, apierrors.IsForbidden(err))
		require.Equal(t, "Forbidden", clustercache.ReasonOf(err))
		require.False(t, clustercache.IsWaiting(err))
		require.Empty(t, calls.take(time.Hour), "nothing changes")
		heal()
		require.Equal(t, one, calls.take(time.Minute))
		require.True(t, watches.last("ConfigMap").Synced)
		require.NoError(t, cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{}))
	})
}

// TestHazardStalenessGoesUnheard: an interruption calls no owner, since the
// cache still answers; one that lasts for StaleAfter does, and its end.
func TestHazardStalenessGoesUnheard(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls, watches := ownersOf(t, cc), watchesOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Minute)
		began := time.Now()
		heal := c.Fail(errors.New("broken"), configMaps)
		require.Empty(t, calls.take(time.Minute))
		require.True(t, watches.last("ConfigMap").Synced)
		require.Error(t, watches.last("ConfigMap").Err, "it is interrupted")
		require.NoError(t, cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{}))

		require.Equal(t, one, calls.take(time.Until(began.Add(cc.Options().StaleAfter+time.Second))))
		require.False(t, watches.last("ConfigMap").Synced)
		require.ErrorIs(t, watches.last("ConfigMap").Err, clustercache.ErrStale)
		require.Equal(t, "Stale", watches.last("ConfigMap").Reason)
		require.Empty(t, calls.take(time.Hour))
		heal()
		require.Equal(t, one, calls.take(time.Minute))
		require.True(t, watches.last("ConfigMap").Synced)
		require.NoError(t, watches.last("ConfigMap").Err)
	})
}

// TestHazardStalenessOfAnInformerThatWasInterruptedBefore: a declaration that
// finds an informer in its linger, with its watch broken already, has no event
// of the interruption.
func TestHazardStalenessOfAnInformerThatWasInterruptedBefore(t *testing.T) {
	o := clustercachetest.Options{}
	o.Cache.StaleAfter = 30 * time.Second // sooner than most attempts
	fleettest.WithFakeCluster(t, o, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls := ownersOf(t, cc)
		w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		w.Release()
		began := time.Now()
		c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), configMaps)
		time.Sleep(3 * time.Second)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Second)
		require.NoError(t, cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{}))

		require.Equal(t, one, calls.take(time.Until(began.Add(cc.Options().StaleAfter+time.Second))))
		require.ErrorIs(t, cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{}), clustercache.ErrStale)
	})
}

// TestOwnersHearOfTheOwnershipOfTheirClusters: with sharding, writes to a
// cluster begin to succeed when the replica gains it, and fail when it loses
// it; reads do not differ.
func TestOwnersHearOfTheOwnershipOfTheirClusters(t *testing.T) {
	o, s := clustercachetest.Options{}, clustercachetest.NewSharding()
	o.Cache.Sharding = s
	fleettest.WithFakeCluster(t, o, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls := ownersOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		require.Equal(t, one, calls.take(time.Minute))
		require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("a", "red")))
		require.Equal(t, one, calls.take(time.Second), "a declared cluster is watched by each replica")

		s.Gain(c.Key())
		require.Equal(t, one, calls.take(time.Second))
		s.Lose(c.Key())
		require.Equal(t, one, calls.take(time.Second))
		require.NoError(t, cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{}))
		require.Empty(t, calls.take(time.Hour))
	})
}

// TestHazardKindThatIsInstalledWithoutAnObjectGoesUnheard: neither an object
// nor an informer has an event of it.
func TestHazardKindThatIsInstalledWithoutAnObjectGoesUnheard(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls, watches := ownersOf(t, cc), watchesOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"),
			clustercache.Target{Cluster: c.Key(), Kind: clustercache.Kind(gadgets)})
		require.Equal(t, one, calls.take(time.Minute))
		require.True(t, meta.IsNoMatchError(watches.last("Gadget").Err))
		require.Equal(t, "NotServed", watches.last("Gadget").Reason)
		require.Empty(t, calls.take(time.Hour), "no look-up changes anything")

		c.Serve(clustercachetest.Kind{GVK: gadgets})
		require.Equal(t, one, calls.take(time.Minute))
		require.True(t, watches.last("Gadget").Synced)
	})
}

// TestHazardKindThatIsRefusedAndRemovedGoesUnheard: an informer that is refused
// is refused in the same way once its kind is gone, but reads know that it is.
func TestHazardKindThatIsRefusedAndRemovedGoesUnheard(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		require.NoError(t, c.Client().Create(t.Context(), gadgetDefinition()))
		c.Fail(clustercachetest.Status(http.StatusServiceUnavailable), clustercachetest.Resource("gadgets"))
		calls := ownersOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"),
			clustercache.Target{Cluster: c.Key(), Kind: clustercache.Kind(gadgets)})
		require.Equal(t, one, calls.take(time.Minute))
		require.NoError(t, c.Client().Delete(t.Context(), gadgetDefinition()))

		require.Equal(t, one, calls.take(20*time.Minute))
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gadgets)
		require.Equal(t, "NotServed", clustercache.ReasonOf(cc.Cluster(c.Key()).Reader().List(t.Context(), list)))
		require.Empty(t, calls.take(time.Hour))
	})
}

// TestHazardReasonOfAClusterGoesUnheard: each change of why a cluster is not
// connected calls the owners, also where its phase stays the same.
func TestHazardReasonOfAClusterGoesUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		cc := fleettest.Start(t, fleettest.Silent(d))
		calls := ownersOf(t, cc)
		reason := func() string {
			return clustercache.ReasonOf(cc.Cluster(fleettest.Key("a")).Serving(&corev1.ConfigMap{}))
		}
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		require.Equal(t, one, calls.take(time.Minute))
		require.Equal(t, "NoAccess", reason())
		require.True(t, clustercache.IsWaiting(cc.Cluster(fleettest.Key("a")).Serving()))

		d.Answer(fleettest.Key("a"), func() (resolver.Access, error) {
			return resolver.Access{}, &resolver.KubeconfigError{}
		})
		require.Equal(t, one, calls.take(time.Minute))
		require.Equal(t, "BadAccess", reason())

		api := fleettest.NewAPI(t, "uid")
		api.Die()
		d.Set(fleettest.Key("a"), api.Config())
		require.Equal(t, one, calls.take(time.Minute))
		require.Equal(t, "Unreachable", reason())
		require.Empty(t, calls.take(10*time.Minute), "no attempt changes anything")

		api.FailWith(http.StatusUnauthorized, "/")
		api.Live()
		require.Equal(t, one, calls.take(10*time.Minute), "the phase is the same")
		require.Equal(t, "Unauthorized", reason())

		api.Heal()
		require.Equal(t, one, calls.take(10*time.Minute))
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Serving(&corev1.ConfigMap{}))
		api.Die()
		require.Equal(t, one, calls.take(10*time.Minute))
		require.Equal(t, "Unreachable", reason())
	})
}

// TestHazardOwnerReadBeforeItDeclared: an owner that joins a watch is called
// once, since a change may have come between its read and its declaration.
func TestHazardOwnerReadBeforeItDeclared(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls := ownersOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Minute)
		fleettest.Declare(t, cc, fleettest.Owner("two"), fleettest.Target("a", "ConfigMap"))
		require.Equal(t, []string{"two"}, calls.take(time.Second))
		fleettest.Declare(t, cc, fleettest.Owner("two"), fleettest.Target("a", "ConfigMap"))
		require.Empty(t, calls.take(time.Second))
		require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap("new", "red")))
		require.Equal(t, []string{"one", "two"}, calls.take(time.Second))
	})
}

// TestHazardObjectThatIsRefusedGoesUnheard: an object that enters no cache is
// read from the server, so that each of its changes changes a read.
func TestHazardObjectThatIsRefusedGoesUnheard(t *testing.T) {
	o := clustercachetest.Options{}
	o.Cache.Informers.MaxObjectBytes = 2000
	fleettest.WithFakeCluster(t, o, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls := ownersOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"), fleettest.Target("a", "ConfigMap"))
		calls.take(time.Minute)
		large := fleettest.ColoredConfigMap("large", string(make([]byte, 3000)))
		require.NoError(t, c.Client().Create(t.Context(), large))
		require.Equal(t, one, calls.take(time.Second))
		large.Labels = map[string]string{"changed": "yes"}
		require.NoError(t, c.Client().Update(t.Context(), large))
		require.Equal(t, one, calls.take(time.Second))
		require.NoError(t, c.Client().Delete(t.Context(), large))
		require.Equal(t, one, calls.take(time.Second))
	})
}

// TestWatchOverBudgetSaysSo: its reason is one word.
func TestWatchOverBudgetSaysSo(t *testing.T) {
	o := clustercachetest.Options{}
	o.Cache.Informers.MaxObjects = 1
	fleettest.WithFakeCluster(t, o, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		calls, watches := ownersOf(t, cc), watchesOf(t, cc)
		fleettest.Declare(t, cc, fleettest.Owner("one"),
			fleettest.Target("a", "ConfigMap", client.InNamespace("default")))
		calls.take(time.Minute)
		for _, name := range []string{"a", "b"} {
			require.NoError(t, c.Client().Create(t.Context(), fleettest.ColoredConfigMap(name, "red")))
		}
		require.Equal(t, one, calls.take(time.Minute))
		require.ErrorIs(t, watches.last("ConfigMap").Err, clustercache.ErrBudget)
		require.Equal(t, "OverBudget", watches.last("ConfigMap").Reason)
	})
}

// TestEndedWatchSaysSo: the last release is an event, too, and the states of
// all watches are the first events of a subscription.
func TestEndedWatchSaysSo(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		synctest.Wait()
		watches := watchesOf(t, cc)
		e := watches.last("ConfigMap")
		require.True(t, e.Initial && e.Synced && !e.Ended)
		w.Release()
		require.True(t, watches.last("ConfigMap").Ended)
	})
}

// TestServingNamesWhatIsMissing: a cluster that is connected, and a kind that
// is watched and synced, serve.
func TestServingNamesWhatIsMissing(t *testing.T) {
	fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
		c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
	) {
		require.ErrorIs(t, cc.Cluster(fleettest.Key("other")).Serving(), clustercache.ErrUnknownCluster)
		require.NoError(t, cc.Cluster(c.Key()).Serving())
		err := cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{}, &corev1.Secret{})
		require.ErrorIs(t, err, clustercache.ErrNotWatched)
		require.Equal(t, "NotWatched", clustercache.ReasonOf(err))
		require.ErrorContains(t, err, "v1 Secret in cluster fleet/a")
		c.Disconnect()
		time.Sleep(time.Minute)
		require.ErrorIs(t, cc.Cluster(c.Key()).Serving(), clustercache.ErrNotConnected)
		require.True(t, clustercache.IsWaiting(cc.Cluster(c.Key()).Serving()))
	})
}

// TestHazardKindThatIsWatchedInPartServes: reads of the rest go to the server.
func TestHazardKindThatIsWatchedInPartServes(t *testing.T) {
	for name, part := range map[string]client.ListOption{
		"a namespace": client.InNamespace("default"),
		"a label":     client.MatchingLabels{"color": "red"},
		"a field":     client.MatchingFields{"metadata.name": "one"},
	} {
		t.Run(name, func(t *testing.T) {
			fleettest.WithFakeCluster(t, clustercachetest.Options{}, func(t *testing.T, _ *clustercachetest.Fleet,
				c *clustercachetest.Cluster, cc *clustercache.ClusterCache,
			) {
				owner := fleettest.Owner("one")
				fleettest.Declare(t, cc, owner, fleettest.Target("a", "ConfigMap", part))
				require.NoError(t, cc.WaitForSync(t.Context(), owner))
				list := &corev1.ConfigMapList{}
				require.ErrorIs(t, cc.Cluster(c.Key()).Reader().List(t.Context(), list, clustercache.CacheOnly),
					clustercache.ErrNotWatched)
				err := cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{})
				require.ErrorIs(t, err, clustercache.ErrNotWatched)
				require.Equal(t, "NotWatched", clustercache.ReasonOf(err))
				fleettest.Declare(t, cc, owner, fleettest.Target("a", "ConfigMap", part),
					fleettest.Target("a", "ConfigMap"), fleettest.Target("a", "Node", client.InNamespace("any")))
				require.NoError(t, cc.WaitForSync(t.Context(), owner))
				require.NoError(t, cc.Cluster(c.Key()).Serving(&corev1.ConfigMap{}))
				require.NoError(t, cc.Cluster(c.Key()).Serving(&corev1.Node{}), "a kind without namespaces")
			})
		})
	}
}

// TestReasonsAreOneWord: for each error of the library, however it is wrapped.
func TestReasonsAreOneWord(t *testing.T) {
	configMap := schema.GroupResource{Resource: "configmaps"}
	for reason, err := range map[string]error{
		"":           nil,
		"Connecting": clustercache.ErrConnecting, "NotStarted": clustercache.ErrNotStarted,
		"NotConnected": clustercache.ErrNotConnected, "UnknownCluster": clustercache.ErrUnknownCluster,
		"NotSynced": clustercache.ErrNotSynced, "NotWatched": clustercache.ErrNotWatched,
		"NotWatchable": clustercache.ErrNotWatchable, "OverBudget": clustercache.ErrBudget,
		"Stale": clustercache.ErrStale, "Closed": clustercache.ErrClosed, "Released": clustercache.ErrReleased,
		"NoAccess":      resolver.ErrNoAccess,
		"NotServed":     &meta.NoKindMatchError{},
		"NotFound":      apierrors.NewNotFound(configMap, "x"),
		"Conflict":      apierrors.NewConflict(configMap, "x", nil),
		"Forbidden":     apierrors.NewForbidden(configMap, "x", nil),
		"Throttled":     fakeapi.TooMany(),
		"AlreadyExists": apierrors.NewAlreadyExists(configMap, "x"),
		"Unknown":       errors.New("any"),
	} {
		require.Equal(t, reason, clustercache.ReasonOf(err), "%v", err)
		if err != nil {
			require.Equal(t, reason, clustercache.ReasonOf(&clustercache.ClusterError{Err: err}))
		}
	}
	require.False(t, clustercache.IsWaiting(nil))
}
