// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var gadget = schema.GroupVersionKind{Group: "memory.example.org", Version: "v1", Kind: "Gadget"}

// gadgets is the path of all Gadgets.
const gadgets = "/apis/memory.example.org/v1/gadgets"

// aggregation is a fake API server with an aggregated API: a server of Gadgets
// that keeps them in memory, with a history of its own.
type aggregation struct {
	*fleettest.API

	memory    *fleettest.API
	starts    int
	withdrawn atomic.Bool // its APIService was deleted
}

// withdraw deletes the APIService, or makes it again.
func (a *aggregation) withdraw(withdrawn bool) {
	a.withdrawn.Store(withdrawn)
	if withdrawn {
		a.Fake.Unregister(gadget.GroupKind())
		a.memory.Fake.Cut(func(*fakeapi.Request) bool { return true })
		return
	}
	a.Fake.Register(fakeapi.Kind{Group: gadget.Group, Kind: gadget.Kind, Aggregated: true})
}

func newAggregation(t *testing.T) *aggregation {
	t.Helper()
	a := &aggregation{API: fleettest.NewAPI(t, "uid-a"), memory: fleettest.NewAPI(t, "memory")}
	a.Fake.Register(fakeapi.Kind{Group: gadget.Group, Kind: gadget.Kind, Aggregated: true}) // for discovery
	a.Handler = a
	a.restart(t)
	return a
}

// restart starts a new history, and ends the watches of the old one.
func (a *aggregation) restart(t *testing.T, names ...string) {
	t.Helper()
	a.starts++
	a.memory.Restart(fmt.Sprint("memory-", a.starts))
	a.memory.Fake.Register(fakeapi.Kind{Group: gadget.Group, Kind: gadget.Kind})
	for _, name := range names {
		a.put(t, name, "")
	}
}

// put creates or updates a Gadget.
func (a *aggregation) put(t *testing.T, name, value string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"value": value}}
	o.SetGroupVersionKind(gadget)
	o.SetNamespace("default")
	o.SetName(name)
	require.NoError(t, a.memory.Fake.Seed(o))
}

// ServeHTTP implements http.Handler.
func (a *aggregation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/apis/memory.example.org/v1/") && !a.withdrawn.Load() {
		a.memory.ServeHTTP(w, r)
		return
	}
	a.API.ServeHTTP(w, r)
}

// state is the state of the objects in memory.
func (a *aggregation) state() fleettest.Replica {
	objects, _ := a.memory.Fake.Objects(gadget)
	out := fleettest.Replica{}
	for _, o := range objects {
		out[fleettest.IdentityOf(gadget.Kind, o)] = o.GetResourceVersion()
	}
	return out
}

// TestHazardRestartOfAnAggregatedAPIDisturbsItsCluster: each restart starts a
// new history for the aggregated API alone. All other kinds stay readable
// without a new list; the aggregated API's own objects are those that it has
// now.
func TestHazardRestartOfAnAggregatedAPIDisturbsItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := newAggregation(t), fleettest.NewDirectory()
		a.Put("one", "1", nil)
		a.restart(t, "both", "old", "older", "oldest")
		d.Set(fleettest.Key("a"), a.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		clusters := fleettest.Follow(t, cc)
		objects := fleettest.FollowObjects(t, cc, events.Selection{})
		ours := &unstructured.Unstructured{}
		ours.SetGroupVersionKind(gadget)
		theirs, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), ours)
		require.NoError(t, err)
		require.NoError(t, theirs.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		clusters.Wait(fleettest.Key("a"), events.Connected)
		before := fleettest.Status(t, cc)
		core, memory := readOrigin(t, cc, &corev1.ConfigMap{}, "one"), readOrigin(t, cc, ours, "both")
		requests := a.listsOf("/api/v1/configmaps")
		known := fleettest.Replica{}

		for i := range 4 {
			for n := range 5 {
				a.put(t, "changes", fmt.Sprint(n))
			}
			synctest.Wait()
			requireDelivered(t, known, objects, a.state())
			a.memory.FailWith(http.StatusServiceUnavailable, "/") // while it starts
			a.restart(t, "both", fmt.Sprint("new", i))
			for range 20 {
				time.Sleep(time.Second)
				require.Equal(t, core, readOrigin(t, cc, &corev1.ConfigMap{}, "one"))
			}
			a.memory.Heal()
			time.Sleep(30 * time.Second)
			require.Equal(t, core, readOrigin(t, cc, &corev1.ConfigMap{}, "one"))
			now := readOrigin(t, cc, ours, "both")
			require.NotEqual(t, memory.Epoch, now.Epoch, "a history of its own")
			memory = now
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gadget)
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), list, clustercache.CacheOnly))
			listed := fleettest.Replica{}
			for _, o := range list.Items {
				listed[fleettest.IdentityOf(gadget.Kind, &o)] = o.GetResourceVersion()
			}
			require.Equal(t, a.state(), listed)
		}
		requireDelivered(t, known, objects, a.state())
		require.Equal(t, requests, a.listsOf("/api/v1/configmaps"), "lists of another group")
		after := fleettest.Status(t, cc)
		require.Equal(t, before.Epoch, after.Epoch)
		require.Zero(t, after.HistoryResets)
		require.Equal(t, 1, after.Connects)
		require.Empty(t, clusters.Events)
	})
}

// TestHazardAggregatedAPIComesBackAhead: a new history has reached or passed
// the old version when the API answers again, so a resume is accepted, and
// nothing in the stream reveals the new history. The aggregator's 503 did.
func TestHazardAggregatedAPIComesBackAhead(t *testing.T) {
	for name, ahead := range map[string]int{"reached": 0, "passed": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, d := newAggregation(t), fleettest.NewDirectory()
				a.Put("one", "1", nil)
				a.restart(t, "both", "old", "older", "oldest")
				d.Set(fleettest.Key("a"), a.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				objects := fleettest.FollowObjects(t, cc, events.Selection{})
				ours := &unstructured.Unstructured{}
				ours.SetGroupVersionKind(gadget)
				theirs, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), ours)
				require.NoError(t, err)
				require.NoError(t, theirs.WaitForSync(t.Context()))
				require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
				known := fleettest.Replica{}
				time.Sleep(time.Minute)
				requests := a.listsOf("/api/v1/configmaps")

				for i := range 4 {
					requireDelivered(t, known, objects, a.state())
					reached := a.memory.Version()
					a.memory.FailWith(http.StatusServiceUnavailable, "/")
					a.restart(t, "both", fmt.Sprint("new", i))
					time.Sleep(5 * time.Second)
					for n := 0; a.memory.Version() < reached+ahead; n++ {
						a.put(t, "changes", fmt.Sprint(n))
					}
					a.memory.Heal()
					time.Sleep(30 * time.Second)
					requireDelivered(t, known, objects, a.state())
				}
				require.Equal(t, requests, a.listsOf("/api/v1/configmaps"), "lists of another group")
			})
		})
	}
}

// TestHazardDeletedAPIServiceDeletesItsObjects: the aggregated API is not
// served for a while, and its objects, which still exist, are neither read nor
// reported as deleted. No other kind notices.
func TestHazardDeletedAPIServiceDeletesItsObjects(t *testing.T) {
	for _, away := range []time.Duration{5 * time.Second, 30 * time.Second, 20 * time.Minute} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, d := newAggregation(t), fleettest.NewDirectory()
				a.Put("one", "1", nil)
				a.restart(t, "both", "old")
				d.Set(fleettest.Key("a"), a.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				objects := fleettest.FollowObjects(t, cc, events.Selection{})
				ours := &unstructured.Unstructured{}
				ours.SetGroupVersionKind(gadget)
				theirs, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), ours)
				require.NoError(t, err)
				require.NoError(t, theirs.WaitForSync(t.Context()))
				require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
				core := readOrigin(t, cc, &corev1.ConfigMap{}, "one")
				known := fleettest.Replica{}
				for range 2 {
					time.Sleep(time.Minute)
					requireDelivered(t, known, objects, a.state())
					before := readOrigin(t, cc, ours, "both")
					a.withdraw(true)
					time.Sleep(away)
					require.Empty(t, objects.Events)
					require.Equal(t, "NotServed", clustercache.ReasonOf(theirs.Status().LastError))
					key := client.ObjectKey{Namespace: "default", Name: "both"}
					err = cc.Cluster(keyOfA).Reader().Get(t.Context(), key, ours, clustercache.CacheOnly)
					require.ErrorIs(t, err, clustercache.ErrStale)
					require.Error(t, cc.Cluster(keyOfA).Reader().Get(t.Context(), key, ours),
						"the server does not know it")
					require.Equal(t, core, readOrigin(t, cc, &corev1.ConfigMap{}, "one"))
					a.withdraw(false)
					time.Sleep(time.Minute)
					require.Empty(t, objects.Events, "the uids are the same")
					require.Equal(t, before, readOrigin(t, cc, ours, "both"))
					require.Empty(t, clustercache.ReasonOf(theirs.Status().LastError))
				}
			})
		})
	}
}

// TestShortOutageOfAClusterCausesNoAuditAtOnce: requests for every kind are
// answered with 503, which is no sign that an aggregated API restarted.
func TestShortOutageOfAClusterCausesNoAuditAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := newAggregation(t), fleettest.NewDirectory()
		a.restart(t, "both", "old")
		d.Set(fleettest.Key("a"), a.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		ours := &unstructured.Unstructured{}
		ours.SetGroupVersionKind(gadget)
		theirs, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), ours)
		require.NoError(t, err)
		require.NoError(t, theirs.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		time.Sleep(time.Minute)
		lists := func() int { return a.memory.Count("get " + gadgets) }
		before, resumes := lists(), a.memory.Count("watch "+gadgets)

		a.memory.FailWith(http.StatusServiceUnavailable, "/")
		a.FailWith(http.StatusServiceUnavailable, "/")
		a.Cut()
		time.Sleep(3 * time.Second)
		a.Heal()
		a.memory.Heal()
		time.Sleep(time.Minute)
		require.Greater(t, a.memory.Count("watch "+gadgets), resumes)
		require.Equal(t, before, lists())
		time.Sleep(5 * time.Minute)
		require.Equal(t, before+1, lists(), "one audit")
	})
}

func (a *aggregation) listsOf(path string) int { return a.Count("stream "+path) + a.Count("get "+path) }

// readOrigin reads an object of the namespace default from the cache.
func readOrigin(t *testing.T, cc *clustercache.ClusterCache, o client.Object,
	name string) (origin clustercache.Origin) {
	t.Helper()
	key := client.ObjectKey{Namespace: "default", Name: name}
	require.NoError(t, cc.Cluster(keyOfA).Reader().Get(t.Context(), key, o, clustercache.CacheOnly, &origin))
	return clustercache.Origin{Cached: origin.Cached, Epoch: origin.Epoch}
}

var keyOfA = fleettest.Key("a")

// requireDelivered applies the events of Gadgets that were delivered, and
// compares the result.
func requireDelivered(t *testing.T, known fleettest.Replica, objects *fleettest.ObjectLog, want fleettest.Replica) {
	t.Helper()
	for len(objects.Events) > 0 {
		if e := <-objects.Events; e.GVK.Kind == gadget.Kind {
			known.Apply(t, e)
		}
	}
	require.Equal(t, want, known)
}
