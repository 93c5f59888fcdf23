// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// TestHazardReadyClusterWhoseWatchIsRefused: in a fleet of 300 Ready clusters,
// the API servers of five refuse a watch, one of them some time after the first
// list, and four do not serve a kind that is watched. Status, the page with its
// search and groups, and the metric name all nine, with the cause of each.
func TestHazardReadyClusterWhoseWatchIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		fleet := clustercachetest.New(t, clustercachetest.Options{
			Cache: clustercache.Options{MetricsRegisterer: registry, Name: "fleet"},
		})
		widget := clustercache.Kind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
		cc := fleet.ClusterCache()
		forbid := func(c *clustercachetest.Cluster) {
			c.Fail(clustercachetest.Status(http.StatusForbidden), clustercachetest.Resource("configmaps"))
		}
		wrong := map[string]string{}
		var late *clustercachetest.Cluster
		for i := range 300 {
			name := fmt.Sprintf("fleet/c-%03d", i)
			c := fleet.Add(name)
			kinds := []client.Object{&corev1.ConfigMap{}}
			switch {
			case i == 150:
				late, wrong[name] = c, "Forbidden"
			case i%70 == 5 && i < 280:
				forbid(c)
				wrong[name] = "Forbidden"
				if len(wrong) == 2 {
					kinds = append(kinds, &corev1.Secret{}) // which is well
				}
			case i%90 == 7:
				kinds = append(kinds, widget)
				wrong[name] = "NotServed"
			}
			for _, kind := range kinds {
				_, err := cc.Cluster(c.Key()).Watch(t.Context(), kind)
				require.NoError(t, err)
			}
		}
		time.Sleep(time.Minute)
		forbid(late)
		late.Reset() // its streams end
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, wrong, 9)

		for _, s := range cc.Statuses() {
			name := s.Cluster.String()
			require.Equal(t, status.PhaseReady, s.Phase, name)
			require.Equal(t, wrong[name], s.Reason, name)
			if wrong[name] == "" {
				require.NoError(t, s.LastError, name)
				require.Zero(t, s.Failing, name)
				continue
			}
			require.Error(t, s.LastError, name)
			require.Equal(t, 1, s.Failing, name)
			require.Less(t, s.Synced, s.Watches, name)
			require.Equal(t, wrong[name], clustercache.ReasonOf(s.LastError), name)
			kind := map[string]string{"Forbidden": "configmaps", "NotServed": "Widget"}[wrong[name]]
			require.Contains(t, s.LastError.Error(), kind, name)
		}

		page := cc.DebugHandler()
		rows := func(query string) (found []string) {
			text := browse(t, page, query, http.StatusOK)
			for i := range 300 {
				if name := fmt.Sprintf("fleet/c-%03d", i); strings.Contains(text, ">"+name+"<") {
					found = append(found, name)
				}
			}
			return found
		}
		all := browse(t, page, "group=reason", http.StatusOK)
		require.Equal(t, 9, strings.Count(all, `<td class="state impaired">Ready</td>`), "the others are green")
		for _, part := range []string{"Forbidden 5", "NotServed 4", "The API server knows us and does not allow this.",
			"The cluster does not serve the kind."} {
			require.Contains(t, all, part)
		}
		require.Len(t, rows("q=forbidden"), 5)
		require.Len(t, rows("reason=NotServed"), 4)
		require.Len(t, rows("q=widget"), 4)
		first := browse(t, page, "", http.StatusOK)
		require.Less(t, strings.Index(first, ">fleet/c-150<"), strings.Index(first, ">fleet/c-000<"),
			"trouble is first")

		families, err := registry.Gather()
		require.NoError(t, err)
		reported := map[string]string{}
		for _, family := range families {
			if family.GetName() != "fleetcache_cluster_reason" {
				continue
			}
			for _, m := range family.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				reported[labels["cluster"]] = labels["reason"]
			}
		}
		require.Equal(t, wrong, reported)
	})
}
