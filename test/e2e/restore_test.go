// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestRestores restores etcd in three ways under synced informers.
func TestRestores(t *testing.T) {
	t.Parallel()
	c := testenv.Start(t, 1, testenv.WithCRDs(partsAndSites()...))[0]
	t.Run("as documented, with higher versions", func(t *testing.T) { documentedRestore(t, c) })
	t.Run("by copying, with lower versions", func(t *testing.T) { copiedRestore(t, c) })
	t.Run("by copying, and overtaken by new writes", func(t *testing.T) { overtakenRestore(t, c) })
}

// diverge makes changes between a backup and its restoration. The restoration
// undoes all of them.
func diverge(t *testing.T, o oracle) {
	t.Helper()
	o.put(t, "changed", "late")
	o.remove(t, "gone")
	o.remove(t, "again")
	o.put(t, "again", "early")
	o.put(t, "late", "late")
}

func settle(t *testing.T, o oracle) {
	t.Helper()
	for _, name := range []string{"stays", "changed", "gone", "again"} {
		o.put(t, name, "early")
	}
}

func one(config *rest.Config) map[client.ObjectKey]*rest.Config {
	return map[client.ObjectKey]*rest.Config{cluster: config}
}

func documentedRestore(t *testing.T, c *testenv.Cluster) {
	o := newOracle(t, c.Config())
	settle(t, o)
	s := watching(t, one(c.Config()), nil)
	other, all := clientGo(t, c), newWitnesses(t, c)
	s.equals(cluster, o, patience)
	backup, err := c.Backup(t.Context())
	require.NoError(t, err)
	diverge(t, o)
	all.diverge(t)
	s.equals(cluster, o, patience)
	before, err := s.cached(cluster)
	require.NoError(t, err)

	require.NoError(t, c.Restore(t.Context(), backup))
	began := time.Now()
	s.ready(cluster)
	took := s.equals(cluster, o, healed)
	all.agree(t, healed)
	require.Positive(t, s.deletes(cluster)["late"], "what was created after the backup is told as deleted")
	after, err := s.cached(cluster)
	require.NoError(t, err)
	require.NotEqual(t, before["again"], after["again"], "another uid")
	require.Contains(t, after, "gone")
	o.put(t, "after", "the restoration")
	s.equals(cluster, o, healed)
	other.equals(t, o)
	t.Logf("equal %s after the first contact; client-go's informer %s after the server was back",
		took, time.Since(began).Round(time.Millisecond))
}

func copiedRestore(t *testing.T, c *testenv.Cluster) {
	o := newOracle(t, c.Config())
	settle(t, o)
	s := watching(t, one(c.Config()), nil)
	all := newWitnesses(t, c)
	s.equals(cluster, o, patience)
	snapshot, err := c.Snapshot(t.Context())
	require.NoError(t, err)
	grow(t, o, 300)
	diverge(t, o)
	all.diverge(t)
	s.equals(cluster, o, patience)

	require.NoError(t, c.Rollback(t.Context(), snapshot))
	s.ready(cluster)
	t.Logf("equal %s after the first contact", s.equals(cluster, o, healed))
	all.agree(t, healed)
	require.Positive(t, s.deletes(cluster)["late"])
	o.put(t, "after", "the restoration")
	s.equals(cluster, o, healed)
}

// grow makes the history longer than what a server writes on its own when it
// starts.
func grow(t *testing.T, o oracle, by int) {
	t.Helper()
	for i := range by {
		o.put(t, "grows", strconv.Itoa(i))
	}
}

// peer is client-go's informer in the same situation.
type peer struct{ store cache.Store }

func clientGo(t *testing.T, c *testenv.Cluster) peer {
	t.Helper()
	config := c.Config()
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	set, err := kubernetes.NewForConfigAndClient(config, httpClient)
	require.NoError(t, err)
	informer := cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(set.CoreV1().RESTClient(), "configmaps", namespace, fields.Everything()),
		&corev1.ConfigMap{}, 0, nil)
	require.NoError(t, informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); informer.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-done; httpClient.CloseIdleConnections() })
	return peer{store: informer.GetStore()}
}

func (p peer) equals(t *testing.T, o oracle) {
	t.Helper()
	require.Eventually(t, func() bool {
		want, err := o.quorum(t.Context())
		if err != nil {
			return false
		}
		var have []corev1.ConfigMap
		for _, item := range p.store.List() {
			have = append(have, *item.(runtime.Object).(*corev1.ConfigMap))
		}
		return fmt.Sprint(stateOf(have)) == fmt.Sprint(want)
	}, patience, 100*time.Millisecond, "client-go's informer")
}
