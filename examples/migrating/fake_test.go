// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/examples/migrating"
)

func TestNodesAreCountedAgainOnceTheClusterIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clustercachetest.New(t, clustercachetest.Options{})
		east := fleet.Add("fleet/east", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
		hub := fake.NewClientBuilder().Build()
		counter := &migrating.NodeCounter{Hub: hub, Clusters: fleet.ClusterCache()}
		fleet.WaitSynced()

		request, count := reconcile.Request{NamespacedName: east.Key()}, &corev1.ConfigMap{}
		east.Disconnect()
		east.WaitPhase(status.PhaseDisconnected)
		_, err := counter.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.Error(t, hub.Get(t.Context(), east.Key(), count), "nothing is known of an unreachable cluster")

		east.Connect()
		fleet.WaitSynced()
		_, err = counter.Reconcile(t.Context(), request)
		require.NoError(t, err)
		require.NoError(t, hub.Get(t.Context(), east.Key(), count))
		require.Equal(t, "1", count.Data["nodes"])
	})
}
