// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
)

// TestAClusterIsReportedWhenWhatResolveReadsHasChanged and at no other change.
func TestAClusterIsReportedWhenWhatResolveReadsHasChanged(t *testing.T) {
	wanted := true
	h := &hubClusters{
		watchFilter: "ours",
		filter:      func(*clusterv1.Cluster) bool { return wanted },
	}
	reports := 0
	handler := h.handler(func(key resolver.Cluster) {
		require.Equal(t, resolver.Cluster{Namespace: "fleet", Name: "east"}, key)
		reports++
	})
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet",
		Name:      "east",
		Labels:    map[string]string{clusterv1.WatchLabel: "ours"},
	}}
	update := func(change func(*clusterv1.Cluster)) int {
		before := reports
		old := object
		object = object.DeepCopy()
		change(object)
		handler.OnUpdate(old, object)
		return reports - before
	}
	handler.OnAdd(object, true)
	require.Equal(t, 1, reports, "it is known from now on")
	handler.OnAdd(object, false)
	require.Equal(t, 1, reports, "the informer has listed again")

	require.Zero(t, update(func(c *clusterv1.Cluster) { c.Annotations = map[string]string{"a": "b"} }))
	require.Zero(t, update(func(c *clusterv1.Cluster) { c.Labels["other"] = "label" }))
	require.Zero(t, update(func(c *clusterv1.Cluster) {
		c.Status.Initialization.ControlPlaneInitialized = new(true)
	}))
	require.Zero(t, update(func(c *clusterv1.Cluster) { c.DeletionTimestamp = &metav1.Time{} }))
	require.Equal(t, 1, update(func(c *clusterv1.Cluster) {
		c.Status.Initialization.InfrastructureProvisioned = new(true)
	}))
	require.Equal(t, 1, update(func(c *clusterv1.Cluster) { c.Labels[clusterv1.WatchLabel] = "theirs" }))
	require.Equal(t, 1, update(func(c *clusterv1.Cluster) { c.Labels[clusterv1.WatchLabel] = "ours" }))
	wanted = false // a filter may know more than the object
	require.Equal(t, 1, update(func(*clusterv1.Cluster) {}))

	before := reports
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "fleet/east", Obj: object})
	handler.OnAdd(object, false)
	require.Equal(t, 2, reports-before)
}
