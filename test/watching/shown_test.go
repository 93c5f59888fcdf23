// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// cachedReads are reads that an informer that covers the object "two" answers.
var cachedReads = map[string]func(ctx context.Context, r client.Reader, opts ...client.ListOption) error{
	"get": func(ctx context.Context, r client.Reader, _ ...client.ListOption) error {
		return r.Get(ctx, client.ObjectKey{Namespace: "default", Name: "two"}, &corev1.ConfigMap{},
			clustercache.CacheOnly)
	},
	"metadata": func(ctx context.Context, r client.Reader, _ ...client.ListOption) error {
		return r.Get(ctx, client.ObjectKey{Namespace: "default", Name: "two"}, clustercache.Kind(fleettest.ConfigMap),
			clustercache.CacheOnly)
	},
	"list": func(ctx context.Context, r client.Reader, opts ...client.ListOption) error {
		return r.List(ctx, &corev1.ConfigMapList{}, append(opts, clustercache.CacheOnly)...)
	},
	"list by a field": func(ctx context.Context, r client.Reader, opts ...client.ListOption) error {
		return r.List(ctx, &corev1.ConfigMapList{},
			append(opts, client.MatchingFields{"app": "y"}, clustercache.CacheOnly)...)
	},
}

// TestHazardCachedAnswerIsNotHeardOfByAWatchThatHasNotSynced: one informer
// shows an object, which is gone before the first list of another informer that
// covers it. The handlers of that informer never received it.
func TestHazardCachedAnswerIsNotHeardOfByAWatchThatHasNotSynced(t *testing.T) {
	namespace := []client.ListOption{client.InNamespace("default")}
	for name, c := range map[string]struct {
		synced, late []client.ListOption
		path         string // part of the path of the late one's requests
	}{
		"narrow": {late: namespace, path: "/namespaces/default/configmaps"},
		"wide":   {synced: namespace, path: "/v1/configmaps"},
	} {
		for how, read := range cachedReads {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cc, api, _ := fleettest.OneCluster(t)
					api.FailWith(http.StatusInternalServerError, c.path)
					late := fleettest.Watch(t, cc, c.late...)
					h := &fleettest.Recorder{}
					_, err := late.AddEventHandler(h)
					require.NoError(t, err)
					time.Sleep(time.Second)
					first := fleettest.Watch(t, cc, c.synced...)
					require.NoError(t, first.WaitForSync(t.Context()))
					require.False(t, late.HasSynced())

					require.NoError(t, read(t.Context(), cc.Cluster(fleettest.Key("a")).Reader(), c.synced...))
					api.Delete("two")
					time.Sleep(time.Second)
					api.Heal()
					time.Sleep(time.Minute)
					require.True(t, late.HasSynced())
					require.ElementsMatch(t, []string{"Added one", "Deleted two"}, h.Take())
					late.Release()
					first.Release()
				})
			})
		}
	}
}

// TestHazardCachedAnswerIsNotHeardOfByAWatchOfAKindThatIsLookedUp: the same
// where the late watch waits for discovery.
func TestHazardCachedAnswerIsNotHeardOfByAWatchOfAKindThatIsLookedUp(t *testing.T) {
	for how, read := range cachedReads {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, api, d := fleettest.OneCluster(t)
				first := fleettest.Watch(t, cc)
				require.NoError(t, first.WaitForSync(t.Context()))
				// Another history: the known kinds are forgotten.
				api.Respond(func(r *http.Request) int {
					switch {
					case r.URL.Path == "/api":
						return http.StatusOK // no document, so that nothing is presumed either
					case strings.Contains(r.URL.Path, "/namespaces/default/configmaps"):
						return http.StatusInternalServerError
					}
					return 0
				})
				api.Become("uid-b")
				d.Set(fleettest.Key("a"), api.Config())
				time.Sleep(2 * time.Minute)
				require.True(t, first.HasSynced())
				late := fleettest.Watch(t, cc, client.InNamespace("default"))
				h := &fleettest.Recorder{}
				_, err := late.AddEventHandler(h)
				require.NoError(t, err)
				synctest.Wait()
				require.False(t, late.Status().Mapped)

				for range 5000 {
					require.NoError(t, read(t.Context(), cc.Cluster(fleettest.Key("a")).Reader()))
				}
				api.Delete("two")
				time.Sleep(time.Second)
				api.Heal()
				time.Sleep(10 * time.Minute)
				require.True(t, late.HasSynced())
				require.ElementsMatch(t, []string{"Added one", "Deleted two"}, h.Take())
				late.Release()
				first.Release()
			})
		})
	}
}
