// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

var gadget = schema.GroupVersionKind{Group: "memory.example.org", Version: "v1", Kind: "Gadget"}

// aggregation is a fake API server with an aggregated API: a server of Gadgets
// that keeps them in memory, with a history of its own.
type aggregation struct {
	*fleettest.API

	memory *fleettest.API // serves them as ConfigMaps, which are renamed in transit
	ctx    context.Context
	mu     sync.Mutex // protects the fields below
	life   context.Context
	end    context.CancelFunc
	starts int
}

func newAggregation(t *testing.T) *aggregation {
	t.Helper()
	a := &aggregation{API: fleettest.NewAPI(t, "uid-a"), memory: fleettest.NewAPI(t, "memory"), ctx: t.Context()}
	a.Server.Handler = a
	a.restart()
	return a
}

// restart starts a new history, and ends the watches of the old one.
func (a *aggregation) restart(names ...string) {
	a.mu.Lock()
	end := a.end
	a.starts++
	a.life, a.end = context.WithCancel(a.ctx)
	a.memory.Restart(fmt.Sprint("memory-", a.starts))
	a.mu.Unlock()
	for _, name := range names {
		a.memory.Put(name, "", nil)
	}
	if end != nil {
		end()
	}
}

// ServeHTTP implements http.Handler.
func (a *aggregation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const group = "/apis/memory.example.org/v1"
	switch path, served := strings.CutPrefix(r.URL.Path, group); {
	case r.URL.Path == "/apis":
		version := map[string]any{"groupVersion": "memory.example.org/v1", "version": "v1"}
		fleettest.Answer(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{
			"name": gadget.Group, "versions": []any{version}, "preferredVersion": version,
		}}})
	case r.URL.Path == group:
		fleettest.Answer(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "memory.example.org/v1", "resources": []any{
			map[string]any{"name": "gadgets", "singularName": "gadget", "namespaced": true, "kind": "Gadget",
				"verbs": []string{"get", "list", "watch"}},
		}})
	case served:
		a.mu.Lock()
		life := a.life
		a.mu.Unlock()
		ctx, cancel := context.WithCancel(r.Context())
		defer context.AfterFunc(life, cancel)()
		defer cancel()
		r = r.Clone(ctx)
		r.URL.Path = "/api/v1" + strings.Replace(path, "gadgets", "configmaps", 1)
		a.memory.ServeHTTP(gadgets{w}, r)
	default:
		a.API.ServeHTTP(w, r)
	}
}

// gadgets rewrites ConfigMaps to Gadgets.
type gadgets struct{ http.ResponseWriter }

// Write implements http.ResponseWriter.
func (g gadgets) Write(b []byte) (int, error) {
	renamed := bytes.ReplaceAll(b, []byte("ConfigMap"), []byte("Gadget"))
	renamed = bytes.ReplaceAll(renamed, []byte(`"apiVersion":"v1"`), []byte(`"apiVersion":"memory.example.org/v1"`))
	if _, err := g.ResponseWriter.Write(renamed); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Flush implements http.Flusher.
func (g gadgets) Flush() { g.ResponseWriter.(http.Flusher).Flush() }

// state is the state of the objects in memory.
func (a *aggregation) state() fleettest.Replica {
	out := fleettest.Replica{}
	for _, o := range a.memory.Stored() {
		u := &unstructured.Unstructured{Object: o}
		out[fleettest.IdentityOf(gadget.Kind, u)] = u.GetResourceVersion()
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
		a.restart("both", "old", "older", "oldest")
		d.Set(fleettest.Key("a"), a.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		clusters := fleettest.Follow(t, cc)
		objects := fleettest.FollowObjects(t, cc, clustercache.ObjectSelection{})
		ours := &unstructured.Unstructured{}
		ours.SetGroupVersionKind(gadget)
		theirs, err := cc.Watch(t.Context(), fleettest.Key("a"), ours)
		require.NoError(t, err)
		require.NoError(t, theirs.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		clusters.Wait(fleettest.Key("a"), clustercache.Connected)
		before := fleettest.Status(t, cc)
		core, memory := readOrigin(t, cc, &corev1.ConfigMap{}, "one"), readOrigin(t, cc, ours, "both")
		requests := a.listsOf("/api/v1/configmaps")
		known := fleettest.Replica{}

		for i := range 4 {
			for n := range 5 {
				a.memory.Put("changes", fmt.Sprint(n), nil)
			}
			synctest.Wait()
			requireDelivered(t, known, objects, a.state())
			a.memory.FailWith(http.StatusServiceUnavailable, "/") // while it starts
			a.restart("both", fmt.Sprint("new", i))
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
			require.NoError(t, cc.Reader(fleettest.Key("a")).List(t.Context(), list, clustercache.CacheOnly))
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
				a.restart("both", "old", "older", "oldest")
				d.Set(fleettest.Key("a"), a.Config())
				cc := fleettest.Start(t, fleettest.Silent(d))
				objects := fleettest.FollowObjects(t, cc, clustercache.ObjectSelection{})
				ours := &unstructured.Unstructured{}
				ours.SetGroupVersionKind(gadget)
				theirs, err := cc.Watch(t.Context(), fleettest.Key("a"), ours)
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
					a.restart("both", fmt.Sprint("new", i))
					time.Sleep(5 * time.Second)
					for n := 0; a.memory.Version() < reached+ahead; n++ {
						a.memory.Put("changes", fmt.Sprint(n), nil)
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

// TestShortOutageOfAClusterCausesNoAuditAtOnce: requests for every kind are
// answered with 503, which is no sign that an aggregated API restarted.
func TestShortOutageOfAClusterCausesNoAuditAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := newAggregation(t), fleettest.NewDirectory()
		a.restart("both", "old")
		d.Set(fleettest.Key("a"), a.Config())
		cc := fleettest.Start(t, fleettest.Silent(d))
		ours := &unstructured.Unstructured{}
		ours.SetGroupVersionKind(gadget)
		theirs, err := cc.Watch(t.Context(), fleettest.Key("a"), ours)
		require.NoError(t, err)
		require.NoError(t, theirs.WaitForSync(t.Context()))
		require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
		time.Sleep(time.Minute)
		lists := func() int { return a.memory.Count("get /api/v1/configmaps") }
		before, resumes := lists(), a.memory.Count("watch /api/v1/configmaps")

		a.memory.FailWith(http.StatusServiceUnavailable, "/")
		a.FailWith(http.StatusServiceUnavailable, "/")
		a.Cut()
		time.Sleep(3 * time.Second)
		a.Heal()
		a.memory.Heal()
		time.Sleep(time.Minute)
		require.Greater(t, a.memory.Count("watch /api/v1/configmaps"), resumes)
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
	require.NoError(t, cc.Reader(keyOfA).Get(t.Context(), key, o, clustercache.CacheOnly, &origin))
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
