// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package scenarios_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
)

// TestOneHungAmongHundredDelaysNoOther: cached reads and watches of 99 clusters
// take no time while one cluster hangs, from its first silence until long after
// it is disconnected. Time is virtual, so a wait of any length would show.
func TestOneHungAmongHundredDelaysNoOther(t *testing.T) {
	synctest.Test(t, oneHungAmongHundred)
}

func oneHungAmongHundred(t *testing.T) {
	const grace = 100 * time.Millisecond // for a cluster that the resolver no longer knows
	fleet := clustercachetest.New(t, clustercachetest.Options{Cache: clustercache.Options{
		Logger: funcr.New(func(string, string) {}, funcr.Options{}), MetricsRegisterer: prometheus.NewRegistry(),
		Grace: grace,
	}})
	cc := fleet.ClusterCache()
	var others []client.ObjectKey
	var held *clustercache.Watch // a watch of the cluster that hangs
	for i := range 100 {
		c := fleet.Add(fmt.Sprintf("fleet/c%d", i), configMap("default", "one", ""))
		w, err := cc.Cluster(c.Key()).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		if i == 0 {
			held = w
		} else {
			others = append(others, c.Key())
		}
	}
	hung := fleet.Cluster(key("c0"))
	hung.Hang()
	for range 100 {
		requireNoWait(t, cc, others)
		time.Sleep(time.Second)
	}
	status, err := cc.Cluster(hung.Key()).Status()
	require.NoError(t, err)
	require.False(t, status.Connected)

	begin := time.Now()
	hung.Remove()
	held.Release()
	eventually(t, "it is removed", func() bool {
		_, err := cc.Cluster(hung.Key()).Status()
		return errors.Is(err, clustercache.ErrUnknownCluster)
	})
	require.Less(t, time.Since(begin), 10*time.Second)
}

// requireNoWait reads and watches each cluster.
func requireNoWait(t *testing.T, cc *clustercache.ClusterCache, clusters []client.ObjectKey) {
	t.Helper()
	begin := time.Now()
	for _, k := range clusters {
		_, err := readCached(t, cc, k, "default", "one")
		require.NoError(t, err)
		w, err := cc.Cluster(k).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.Zero(t, time.Since(begin), "%s", k)
		w.Release()
	}
}
