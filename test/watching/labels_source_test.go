// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// newLabelledSource returns a source of the clusters with env=prod, and a
// function that returns the types of the events since its last call.
func newLabelledSource(
	t *testing.T, cc *clustercache.ClusterCache, types ...events.ClusterType,
) (take func() []string) {
	t.Helper()
	q := fleettest.QueueOf[string](t)
	s := controller.ClusterSource(cc, func(_ context.Context, e events.Cluster) []string {
		return []string{string(e.Type)}
	}, controller.ClusterSourceOptions{ClusterSelector: prod, Types: types})
	require.NoError(t, s.Start(t.Context(), q))
	t.Cleanup(s.Stop)
	return func() (types []string) {
		for synctest.Wait(); q.Len() > 0; {
			r, _ := q.Get()
			types = append(types, r)
			q.Done(r)
		}
		return types
	}
}

// TestClusterSourceDeliversThatAClusterEntersAndLeaves: its state when the
// labels begin to match, and the event with which they cease to, which is the
// last one.
func TestClusterSourceDeliversThatAClusterEntersAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		api := fleettest.NewAPI(t, "uid-a")
		take := newLabelledSource(t, cc)

		l.set("a", api, "dev")
		time.Sleep(time.Second)
		require.Empty(t, take())
		l.set("a", api, "prod")
		require.Equal(t, []string{"Relabeled", "Connected"}, take())
		api.Die()
		time.Sleep(time.Minute)
		require.Contains(t, take(), "Disconnected")
		l.set("a", api, "dev")
		require.Equal(t, []string{"Relabeled"}, take())
		api.Live()
		time.Sleep(time.Minute)
		require.Empty(t, take())
		l.set("a", api, "prod")
		require.Equal(t, []string{"Relabeled", "Connected"}, take())
		l.set("a", api, "dev")
		require.Equal(t, []string{"Relabeled"}, take())
		l.set("a", api, "prod")
		require.Equal(t, []string{"Relabeled", "Connected"}, take(), "though nothing happened meanwhile")
		l.Delete(fleettest.Key("a"))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Disconnected", "Removed"}, take())

		l.set("a", api, "prod")
		time.Sleep(time.Minute)
		require.Contains(t, take(), "Connected")
		l.Delete(fleettest.Key("a"))
		time.Sleep(time.Minute)
		l.set("a", api, "dev")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Disconnected", "Removed"}, take(), "another cluster of that name is not selected")
	})
}

// TestHazardClusterEntersByAnEventThatNoTypeSelects: a controller that handles
// Connected alone learns of a cluster that has been connected for long. One that
// matches from the beginning is delivered once.
func TestHazardClusterEntersByAnEventThatNoTypeSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		take := newLabelledSource(t, cc, events.Connected)
		l.set("a", fleettest.NewAPI(t, "uid-a"), "dev")
		l.set("b", fleettest.NewAPI(t, "uid-b"), "prod")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Connected"}, take(), "b")
		l.set("a", fleettest.NewAPI(t, "uid-a"), "prod")
		time.Sleep(time.Minute)
		require.Contains(t, take(), "Connected")
	})
}

// TestHazardClustersThatWereNeverReachableAreForgotten: they end without an
// event, and a source must not remember each of them.
func TestHazardClustersThatWereNeverReachableAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		api := fleettest.NewAPI(t, "uid-a")
		api.Die()
		take := newLabelledSource(t, cc)
		l.set("kept", api, "prod")
		time.Sleep(time.Minute)
		for i := range 300 {
			name := strconv.Itoa(i)
			l.set(name, api, "dev")
			time.Sleep(time.Second)
			l.Delete(fleettest.Key(name))
		}
		take()
		l.set("kept", api, "dev")
		require.Equal(t, []string{"Relabeled"}, take(), "it was selected, and has not been forgotten")
	})
}

// TestBuilderReconcilesClustersThatMatch also shows the labels on the debug
// page.
func TestBuilderReconcilesClustersThatMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, cc := newLabelled(t)
		for _, name := range []string{"a", "b"} {
			api := fleettest.NewAPI(t, "uid-"+name)
			api.Put(name, "1", nil)
			l.set(name, api, map[string]string{"a": "<prod>", "b": "prod"}[name])
		}
		mgr := fleettest.NewManager()
		reconciled := make(chan string, 10)
		_, err := controller.NewControllerManagedBy(mgr, cc).For(&corev1.ConfigMap{}).InClustersMatching(prod).Build(
			reconcile.TypedFunc[controller.Request](
				func(_ context.Context, r controller.Request) (reconcile.Result, error) {
					reconciled <- r.Cluster.Name + " " + r.Name
					return reconcile.Result{}, nil
				}))
		require.NoError(t, err)
		stop := fleettest.Run(t, mgr.Added[0])
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, reconciled, 1)
		require.Equal(t, "b b", <-reconciled)

		page := httptest.NewRecorder()
		cc.DebugHandler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/?cluster=fleet/a", nil))
		require.Contains(t, page.Body.String(), "<dd>env=&lt;prod&gt;</dd>")
		stop()
	})
}
