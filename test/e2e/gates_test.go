// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestFeatureGates enables and disables streamed lists under synced informers.
func TestFeatureGates(t *testing.T) {
	t.Parallel()
	flippedGates(t, testenv.Start(t, 1)[0])
}

// flippedGates: a synced informer resumes and lists on a server that has
// started or stopped streaming lists.
func flippedGates(t *testing.T, c *testenv.Cluster) {
	o := newOracle(t, c.Config())
	settle(t, o)
	s := watching(t, one(c.Config()), nil)
	s.equals(cluster, o, patience)
	deletes := s.deletes(cluster)
	for _, gate := range []string{"false", "true"} {
		require.NoError(t, c.RestartAs(t.Context(), testenv.Args("--feature-gates=WatchList="+gate)))
		streams, err := c.StreamsLists(t.Context())
		require.NoError(t, err)
		require.Equal(t, gate == "true", streams)
		s.ready(cluster)
		o.put(t, "changed", "with WatchList="+gate)
		t.Logf("WatchList=%s: equal after %s", gate, s.equals(cluster, o, healed))
		fresh(t, s)
	}
	require.Equal(t, deletes, s.deletes(cluster), "nothing was deleted")
	o.remove(t, "gone")
	s.equals(cluster, o, healed)
}

// fresh requires that a kind that has not been watched before syncs.
func fresh(t *testing.T, s *subject) {
	t.Helper()
	w, err := s.Cluster(cluster).Watch(t.Context(), &corev1.Secret{}, client.InNamespace(namespace))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), healed)
	defer cancel()
	require.NoError(t, w.WaitForSync(ctx))
	require.NoError(t, w.Close(t.Context()))
}
