// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache/clusterapi"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
)

// noWatch starts no source.
type noWatch struct{ watches int }

func (w *noWatch) Watch(source.TypedSource[ctrl.Request]) error {
	w.watches++
	return nil
}

// TestNodesAreReportedWhileTheClusterIsConnected on a fake cluster.
func TestNodesAreReportedWhileTheClusterIsConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("fleet/east", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
		clusters, err := clusterapi.New(fleet.ClusterCache(), clusterapi.Options{})
		require.NoError(t, err)
		fleet.WaitSynced()
		hub, watcher := fake.NewClientBuilder().Build(), &noWatch{}
		reporter := &NodeReporter{Hub: hub, ClusterCache: clusters, watcher: watcher}
		request := ctrl.Request{NamespacedName: east.Key()}
		for range 2 {
			_, err = reporter.Reconcile(t.Context(), request)
			require.NoError(t, err)
		}
		report := &corev1.ConfigMap{}
		require.NoError(t, hub.Get(t.Context(), east.Key(), report))
		require.Equal(t, "1", report.Data["nodes"])
		require.Equal(t, 1, watcher.watches)

		east.Disconnect()
		fleet.WaitSynced()
		require.NoError(t, hub.Delete(t.Context(), report))
		_, err = reporter.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.Error(t, hub.Get(t.Context(), east.Key(), report), "nothing is reported")
	})
}
