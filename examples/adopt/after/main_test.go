// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetcache/fleetcache/examples/adopt/adopttest"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m, testenv.VerifyNoLeaks()) }

func TestNamespacesOfAllClustersAreIsolated(t *testing.T) {
	clusters := testenv.Start(t, 3, testenv.WithNames("hub", "east", "west"))
	hub, east, west := clusters[0], clusters[1], clusters[2]
	known(t, hub, east)
	adopttest.Run(t, hub.Config(), setup)
	adopttest.Isolates(t, east.Client(), "shop")

	known(t, hub, west) // a cluster that is added later
	adopttest.Isolates(t, west.Client(), "shop")

	require.NoError(t, east.Restart(t.Context()))
	adopttest.Isolates(t, east.Client(), "after-the-restart")
	adopttest.Isolates(t, west.Client(), "meanwhile")
}

// known makes a cluster known to Cluster API in the hub.
func known(t *testing.T, hub, remote *testenv.Cluster) {
	t.Helper()
	require.NoError(t, hub.Client().Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: remote.Name() + "-kubeconfig",
			Labels: map[string]string{"cluster.x-k8s.io/cluster-name": remote.Name()},
		},
		Data: map[string][]byte{"value": remote.Kubeconfig()},
	}))
}
