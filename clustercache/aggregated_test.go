// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

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
)

var gadget = schema.GroupVersionKind{Group: "memory.example.org", Version: "v1", Kind: "Gadget"}

// aggregation is a fake API server with an aggregated API: a server of Gadgets
// that keeps them in memory, with a history of its own.
type aggregation struct {
	*fakeAPI

	memory *fakeAPI // serves them as ConfigMaps, which are renamed in transit
	ctx    context.Context
	mu     sync.Mutex // protects the fields below
	life   context.Context
	end    context.CancelFunc
	starts int
}

func newAggregation(t *testing.T) *aggregation {
	t.Helper()
	a := &aggregation{fakeAPI: newFakeAPI(t, "uid-a"), memory: newFakeAPI(t, "memory"), ctx: t.Context()}
	a.server.Handler = a
	a.restart()
	return a
}

// restart starts a new history, and ends the watches of the old one.
func (a *aggregation) restart(names ...string) {
	a.mu.Lock()
	end := a.end
	a.starts++
	a.life, a.end = context.WithCancel(a.ctx)
	a.memory.restart(fmt.Sprint("memory-", a.starts))
	a.mu.Unlock()
	for _, name := range names {
		a.memory.put(name, "", nil)
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
		answer(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{map[string]any{
			"name": gadget.Group, "versions": []any{version}, "preferredVersion": version,
		}}})
	case r.URL.Path == group:
		answer(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "memory.example.org/v1", "resources": []any{
			map[string]any{"name": "gadgets", "singularName": "gadget", "namespaced": true, "kind": "Gadget", "verbs": []string{"get", "list", "watch"}},
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
		a.fakeAPI.ServeHTTP(w, r)
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
func (a *aggregation) state() heard {
	out := heard{}
	for _, o := range a.memory.stored() {
		u := &unstructured.Unstructured{Object: o}
		out[identityOf(gadget.Kind, u)] = u.GetResourceVersion()
	}
	return out
}

// TestHazardRestartOfAnAggregatedAPIDisturbsItsCluster: each restart starts a
// new history for the aggregated API alone. All other kinds stay readable
// without a new list; the aggregated API's own objects are those that it has
// now.
func TestHazardRestartOfAnAggregatedAPIDisturbsItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, d := newAggregation(t), newDirectory()
		a.put("one", "1", nil)
		a.restart("both", "old", "older", "oldest")
		d.set(key("a"), a.config())
		cc := start(t, silent(d))
		clusters := follow(t, cc)
		objects := followObjects(t, cc, clustercache.ObjectFeed{})
		ours := &unstructured.Unstructured{}
		ours.SetGroupVersionKind(gadget)
		theirs, err := cc.Watch(t.Context(), key("a"), ours)
		require.NoError(t, err)
		require.NoError(t, theirs.WaitForSync(t.Context()))
		require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
		clusters.wait(key("a"), clustercache.Connected)
		before := status(t, cc)
		core, memory := readOrigin(t, cc, &corev1.ConfigMap{}, "one"), readOrigin(t, cc, ours, "both")
		requests := a.listsOf("/api/v1/configmaps")
		known := heard{}

		for i := range 4 {
			for n := range 5 {
				a.memory.put("changes", fmt.Sprint(n), nil)
			}
			synctest.Wait()
			requireDelivered(t, known, objects, a.state())
			a.memory.failWith(http.StatusServiceUnavailable, "/") // while it starts
			a.restart("both", fmt.Sprint("new", i))
			for range 20 {
				time.Sleep(time.Second)
				require.Equal(t, core, readOrigin(t, cc, &corev1.ConfigMap{}, "one"))
			}
			a.memory.heal()
			time.Sleep(30 * time.Second)
			require.Equal(t, core, readOrigin(t, cc, &corev1.ConfigMap{}, "one"))
			now := readOrigin(t, cc, ours, "both")
			require.NotEqual(t, memory.Epoch, now.Epoch, "a history of its own")
			memory = now
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gadget)
			require.NoError(t, cc.Reader(key("a")).List(t.Context(), list, clustercache.CacheOnly))
			listed := heard{}
			for _, o := range list.Items {
				listed[identityOf(gadget.Kind, &o)] = o.GetResourceVersion()
			}
			require.Equal(t, a.state(), listed)
		}
		requireDelivered(t, known, objects, a.state())
		require.Equal(t, requests, a.listsOf("/api/v1/configmaps"), "lists of another group")
		after := status(t, cc)
		require.Equal(t, before.Epoch, after.Epoch)
		require.Zero(t, after.HistoryResets)
		require.Equal(t, 1, after.Connects)
		require.Empty(t, clusters.events)
	})
}

// TestHazardAggregatedAPIComesBackAhead: a new history has reached or passed
// the old version when the API answers again, so a resume is accepted, and
// nothing in the stream reveals the new history. The aggregator's 503 did.
func TestHazardAggregatedAPIComesBackAhead(t *testing.T) {
	for name, ahead := range map[string]int{"reached": 0, "passed": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, d := newAggregation(t), newDirectory()
				a.put("one", "1", nil)
				a.restart("both", "old", "older", "oldest")
				d.set(key("a"), a.config())
				cc := start(t, silent(d))
				objects := followObjects(t, cc, clustercache.ObjectFeed{})
				ours := &unstructured.Unstructured{}
				ours.SetGroupVersionKind(gadget)
				theirs, err := cc.Watch(t.Context(), key("a"), ours)
				require.NoError(t, err)
				require.NoError(t, theirs.WaitForSync(t.Context()))
				require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
				known := heard{}
				time.Sleep(time.Minute)
				requests := a.listsOf("/api/v1/configmaps")

				for i := range 4 {
					requireDelivered(t, known, objects, a.state())
					reached := a.memory.version()
					a.memory.failWith(http.StatusServiceUnavailable, "/")
					a.restart("both", fmt.Sprint("new", i))
					time.Sleep(5 * time.Second)
					for n := 0; a.memory.version() < reached+ahead; n++ {
						a.memory.put("changes", fmt.Sprint(n), nil)
					}
					a.memory.heal()
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
		a, d := newAggregation(t), newDirectory()
		a.restart("both", "old")
		d.set(key("a"), a.config())
		cc := start(t, silent(d))
		ours := &unstructured.Unstructured{}
		ours.SetGroupVersionKind(gadget)
		theirs, err := cc.Watch(t.Context(), key("a"), ours)
		require.NoError(t, err)
		require.NoError(t, theirs.WaitForSync(t.Context()))
		require.NoError(t, watch(t, cc).WaitForSync(t.Context()))
		time.Sleep(time.Minute)
		lists := func() int { return a.memory.count("get /api/v1/configmaps") }
		before, resumes := lists(), a.memory.count("watch /api/v1/configmaps")

		a.memory.failWith(http.StatusServiceUnavailable, "/")
		a.failWith(http.StatusServiceUnavailable, "/")
		a.cut()
		time.Sleep(3 * time.Second)
		a.heal()
		a.memory.heal()
		time.Sleep(time.Minute)
		require.Greater(t, a.memory.count("watch /api/v1/configmaps"), resumes)
		require.Equal(t, before, lists())
		time.Sleep(5 * time.Minute)
		require.Equal(t, before+1, lists(), "one audit")
	})
}

func (a *aggregation) listsOf(path string) int { return a.count("stream "+path) + a.count("get "+path) }

// readOrigin reads an object of the namespace default from the cache.
func readOrigin(t *testing.T, cc *clustercache.ClusterCache, o client.Object, name string) (origin clustercache.Origin) {
	t.Helper()
	key := client.ObjectKey{Namespace: "default", Name: name}
	require.NoError(t, cc.Reader(keyOfA).Get(t.Context(), key, o, clustercache.CacheOnly, &origin))
	return clustercache.Origin{Cached: origin.Cached, Epoch: origin.Epoch}
}

var keyOfA = key("a")

// requireDelivered applies the events of Gadgets that were delivered, and compares
// the result.
func requireDelivered(t *testing.T, known heard, objects *objectFeed, want heard) {
	t.Helper()
	for len(objects.events) > 0 {
		if e := <-objects.events; e.GVK.Kind == gadget.Kind {
			known.apply(t, e)
		}
	}
	require.Equal(t, want, known)
}
