// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/fleet"
	"github.com/fleetcache/fleetcache/internal/fleettest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRealFleetIsReadThroughAnOutage reads two real API servers, of which one
// is watched, and compares the result with what was written; then the other
// one stops.
func TestRealFleetIsReadThroughAnOutage(t *testing.T) {
	servers := testenv.Start(t, 2)
	d := fleettest.NewDirectory()
	var want []string
	for i, name := range []string{"a", "b"} {
		d.Set(fleettest.Key(name), servers[i].Config())
		for j := range 600 { // more than one page
			require.NoError(t, servers[i].Client().Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default",
					Name:      fmt.Sprintf("made-%03d", j),
					Labels:    map[string]string{"of": name},
				},
				Data: map[string]string{"in": name},
			}))
			want = append(want, fmt.Sprintf("%s/made-%03d", name, j))
		}
	}
	cc := fleettest.Start(t, fleettest.Quick(d))
	for _, name := range []string{"a", "b"} {
		require.NoError(t, cc.Cluster(fleettest.Key(name)).Engage())
		require.NoError(t, cc.Cluster(fleettest.Key(name)).WaitConnected(t.Context()))
	}
	watch, err := cc.Cluster(fleettest.Key("a")).Watch(t.Context(), &corev1.ConfigMap{})
	require.NoError(t, err)
	require.NoError(t, watch.WaitForSync(t.Context()))
	list := func(opts ...client.ListOption) []string {
		return lines(fleet.List(t.Context(), cc, &corev1.ConfigMap{},
			append(opts, client.HasLabels{"of"}, fleet.Options{Sorted: true})...))
	}

	var total fleet.Total
	require.Equal(t, want, list(&total))
	require.Equal(t, []int{2, 2, 1, 1200}, []int{total.Clusters, total.Answered, total.Cached, total.Objects})
	require.Equal(t, append(slices.Clone(want[:600]), "b: NotWatched"), list(clustercache.CacheOnly))
	for item, err := range fleet.List(t.Context(), cc, &corev1.ConfigMap{}, client.HasLabels{"of"}) {
		require.NoError(t, err)
		o, err := item.Object()
		require.NoError(t, err)
		require.Equal(t, map[string]string{"in": item.Cluster.Name}, o.Data)
		of, _ := item.Label("of")
		require.Equal(t, item.Cluster.Name, of)
	}
	for item, err := range fleet.List(t.Context(), cc, clustercache.Kind(fleettest.ConfigMap), client.HasLabels{"of"}) {
		require.NoError(t, err)
		o, err := item.Object()
		require.NoError(t, err)
		require.Equal(t, fleettest.ConfigMap, o.GroupVersionKind())
		require.NotEmpty(t, o.UID)
		require.NotZero(t, o.CreationTimestamp)
	}

	require.NoError(t, servers[1].Stop())
	require.Eventually(t, func() bool {
		s, err := cc.Cluster(fleettest.Key("b")).Status()
		return err == nil && !s.Connected
	}, fleettest.Patience, 50*time.Millisecond)
	require.Equal(t, append(slices.Clone(want[:600]), "b: Unreachable"), list(&total))
	require.Equal(t, map[string]int{"Unreachable": 1}, total.Reasons)
}
