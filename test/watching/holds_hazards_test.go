// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardReadsOfOneKindKeepTheInformerOfAnother: each read postponed the
// timer of all idle informers.
func TestHazardReadsOfOneKindKeepTheInformerOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, _ := fleettest.OneCluster(t)
		require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.SecretList{},
			clustercache.AutoWatch))
		for range 30 {
			require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{},
				clustercache.AutoWatch))
			time.Sleep(time.Minute)
		}
		require.Equal(t, 1, fleettest.Status(t, cc).Watches)
	})
}

// TestHazardIdleReadsKeepAClusterThatWasRemoved: they kept it until the last of
// them was forgotten.
func TestHazardIdleReadsKeepAClusterThatWasRemoved(t *testing.T) {
	for name, remove := range map[string]func(*clustercache.ClusterCache, *fleettest.Directory){
		"disengaged": func(cc *clustercache.ClusterCache, _ *fleettest.Directory) {
			cc.Cluster(fleettest.Key("a")).Disengage()
		},
		"gone": func(_ *clustercache.ClusterCache, d *fleettest.Directory) {
			d.Fail(fleettest.Key("a"), resolver.ErrClusterNotFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc, _, d := fleettest.OneCluster(t)
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Engage())
				require.NoError(t, cc.Cluster(fleettest.Key("a")).Reader().List(t.Context(), &corev1.ConfigMapList{},
					clustercache.AutoWatch))
				time.Sleep(time.Second)
				if name == "gone" {
					cc.Cluster(fleettest.Key("a")).Disengage() // pinned clusters stay, in phase Gone
				}
				remove(cc, d)
				time.Sleep(31 * time.Second)
				_, err := cc.Cluster(fleettest.Key("a")).Status()
				require.ErrorIs(t, err, clustercache.ErrUnknownCluster)
			})
		})
	}
}

// TestHazardCloseOfAWatchDoesNotWaitForItsHandler: Close returned while a
// handler was running. A Close called by the handler itself does not wait.
func TestHazardCloseOfAWatchDoesNotWaitForItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, _, _ := fleettest.OneCluster(t)
		w := fleettest.Watch(t, cc)
		other := fleettest.Watch(t, cc) // the informer continues
		defer other.Release()
		var running atomic.Int64
		_, err := w.AddEventHandler(informerpool.HandlerFunc(func(informerpool.Event) {
			running.Add(1)
			time.Sleep(time.Minute)
			running.Add(-1)
		}))
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
		synctest.Wait()
		require.EqualValues(t, 1, running.Load())
		require.NoError(t, w.Close(t.Context()))
		require.Zero(t, running.Load())

		own, done := fleettest.Watch(t, cc), make(chan error, 10)
		_, err = own.AddEventHandler(informerpool.HandlerFunc(
			func(informerpool.Event) { done <- own.Close(context.Background()) }))
		require.NoError(t, err)
		require.NoError(t, <-done)
	})
}
