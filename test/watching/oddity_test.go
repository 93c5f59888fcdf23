// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fakeapi"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// gauge is a kind of a second group of the aggregated API.
var gauge = schema.GroupVersionKind{Group: "custom.metrics.k8s.io", Version: "v1", Kind: "Gauge"}

// served are the prefixes of the aggregated API's paths.
var served = []string{"/apis/memory.example.org/v1/", "/apis/custom.metrics.k8s.io/v1/"}

// oddAPI is an aggregated API of two groups that is odd in one respect.
type oddAPI struct {
	*aggregation

	odd func(w http.ResponseWriter, r *http.Request)
}

func (a *oddAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, prefix := range served {
		if strings.HasPrefix(r.URL.Path, prefix) {
			a.odd(w, r)
			return
		}
	}
	a.API.ServeHTTP(w, r)
}

// lists returns the number of lists of the aggregated API's kinds.
func (a *oddAPI) lists() int {
	gauges := served[1] + "gauges"
	return a.memory.Count("stream "+gadgets) + a.memory.Count("get "+gadgets) +
		a.memory.Count("stream "+gauges) + a.memory.Count("get "+gauges)
}

// serve serves the kinds of the aggregated API anew, with three objects of
// each.
func (a *oddAPI) serve(t *testing.T) {
	t.Helper()
	a.restart(t)
	a.memory.Fake.Register(fakeapi.Kind{Group: gauge.Group, Kind: gauge.Kind})
	for i := range 3 {
		a.seed(t, fmt.Sprint("o", i), "")
	}
}

// seed creates or updates an object of each kind.
func (a *oddAPI) seed(t *testing.T, name, value string) {
	t.Helper()
	for _, kind := range []schema.GroupVersionKind{gadget, gauge} {
		o := &unstructured.Unstructured{Object: map[string]any{"value": value}}
		o.SetGroupVersionKind(kind)
		o.SetNamespace("default")
		o.SetName(name)
		require.NoError(t, a.memory.Fake.Seed(o))
	}
}

// TestHazardOddAggregatedAPIDisturbsItsCluster: whatever is odd about the
// histories of an aggregated API costs its own kinds. The other kinds of the
// cluster have no list, no event and no new epoch for it (two of its groups that
// begin anew together: one an hour), and the log has a bounded number of lines.
func TestHazardOddAggregatedAPIDisturbsItsCluster(t *testing.T) {
	for name, row := range map[string]struct {
		odd   func(a *oddAPI, w http.ResponseWriter, r *http.Request)
		happy bool                          // the kinds themselves stay readable, too
		hours int                           // in so many of them it is taken for the cluster's history
		tick  func(t *testing.T, a *oddAPI) // every 20 s
	}{
		"watches begin with what exists": {happy: true, odd: func(a *oddAPI, w http.ResponseWriter, r *http.Request) {
			if q := r.URL.Query(); q.Get("watch") == "true" && q.Get("sendInitialEvents") == "" {
				q.Del("resourceVersion")
				r = r.Clone(r.Context())
				r.URL.RawQuery = q.Encode()
			}
			a.memory.ServeHTTP(w, r)
		}},
		"both groups begin anew together": {
			hours: 2, // begun, each with 180 ticks
			odd:   func(a *oddAPI, w http.ResponseWriter, r *http.Request) { a.memory.ServeHTTP(w, r) },
			tick: func(t *testing.T, a *oddAPI) {
				t.Helper()
				for i := range 10 {
					a.seed(t, "changes", fmt.Sprint(i))
				}
				time.Sleep(time.Second)
				a.serve(t)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, d := &oddAPI{aggregation: newAggregation(t)}, fleettest.NewDirectory()
				a.odd = func(w http.ResponseWriter, r *http.Request) { row.odd(a, w, r) }
				a.Fake.Register(fakeapi.Kind{Group: gauge.Group, Kind: gauge.Kind}) // for discovery
				a.Handler = a
				a.serve(t)
				testOddAPI(t, a, d, row.happy, row.hours, row.tick)
			})
		})
	}
}

func testOddAPI(t *testing.T, a *oddAPI, d *fleettest.Directory, happy bool, hours int,
	tick func(*testing.T, *oddAPI)) {
	t.Helper()
	a.Put("one", "1", nil)
	d.Set(fleettest.Key("a"), a.Config())
	log := &fleettest.Logbook{}
	options := fleettest.Silent(d)
	options.Logger = log.Logger()
	cc := fleettest.Start(t, options)
	clusters := fleettest.Follow(t, cc)
	ours := map[schema.GroupVersionKind]*unstructured.Unstructured{gadget: {}, gauge: {}}
	for kind, o := range ours {
		o.SetGroupVersionKind(kind)
		w, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), o)
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	}
	require.NoError(t, fleettest.Watch(t, cc).WaitForSync(t.Context()))
	clusters.Wait(fleettest.Key("a"), events.Connected)
	objects := fleettest.FollowObjects(t, cc, events.Selection{})
	synctest.Wait()
	before, core := fleettest.Status(t, cc), readOrigin(t, cc, &corev1.ConfigMap{}, "one")
	theirs, own, lines := a.listsOf("/api/v1/configmaps"), a.lists(), len(log.Lines)

	for range 180 {
		time.Sleep(20 * time.Second)
		if tick != nil {
			tick(t, a)
		}
		if hours == 0 {
			require.Equal(t, core, readOrigin(t, cc, &corev1.ConfigMap{}, "one"))
		}
		if happy {
			readOrigin(t, cc, ours[gadget], "o0")
			readOrigin(t, cc, ours[gauge], "o0")
		}
	}

	after := fleettest.Status(t, cc)
	require.Equal(t, hours == 0, before.Epoch == after.Epoch)
	require.LessOrEqual(t, after.HistoryResets, hours)
	require.LessOrEqual(t, len(clusters.Events), hours)
	require.LessOrEqual(t, a.listsOf("/api/v1/configmaps")-theirs, hours, "lists of another group")
	require.LessOrEqual(t, len(log.Lines)-lines, 2*10, "ten for each kind: %v", log.Lines)
	require.LessOrEqual(t, a.lists()-own, 2*30)
	if happy {
		require.LessOrEqual(t, a.lists()-own, 2)
	}
	for len(objects.Events) > 0 {
		if e := <-objects.Events; e.GVK.Kind == fleettest.ConfigMap.Kind {
			require.True(t, e.Initial, "an event of another group")
		}
	}
}
