// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watching_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestChurnLeavesNothing: many callers engage, watch, read, release and
// disengage clusters that are added and removed.
func TestChurnLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fleettest.NewDirectory()
		apis := []*fleettest.API{}
		for i := range 4 {
			api := fleettest.NewAPI(t, fmt.Sprintf("uid-%d", i))
			api.Put("one", "1", nil)
			apis = append(apis, api)
			d.Set(fleettest.Key(fmt.Sprint(i)), api.Config())
		}
		cc := fleettest.Start(t, fleettest.Silent(d))
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 60 {
					cluster := fleettest.Key(fmt.Sprint(rand.IntN(len(apis))))
					api := apis[rand.IntN(len(apis))]
					switch rand.IntN(6) {
					case 0:
						cc.Cluster(cluster).Disengage()
					case 1:
						api.Die()
					case 2:
						api.Live()
					case 3:
						d.Set(cluster, api.Config()) // another cluster of the same name
					default:
						w, err := cc.Cluster(cluster).Watch(t.Context(), &corev1.ConfigMap{})
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(rand.N(3 * time.Second))
						list := &corev1.ConfigMapList{}
						if err := cc.Cluster(cluster).Reader().List(t.Context(), list,
							clustercache.CacheOnly); err == nil &&
							len(list.Items) > 1 {
							t.Errorf("mixed: %v", list.Items)
						}
						w.Release()
					}
					time.Sleep(rand.N(time.Second))
				}
			})
		}
		callers.Wait()
		for i, api := range apis {
			api.Live()
			d.Set(fleettest.Key(fmt.Sprint(i)), api.Config())
		}
		time.Sleep(2 * time.Minute)
		for _, s := range cc.Statuses() {
			require.Zero(t, s.Watches)
			require.Zero(t, s.Informers)
			cc.Cluster(s.Cluster).Disengage()
		}
		synctest.Wait()
		require.Empty(t, cc.Statuses())

		// It works like a new one.
		w, err := cc.Cluster(fleettest.Key("0")).Watch(t.Context(), &corev1.ConfigMap{})
		require.NoError(t, err)
		require.NoError(t, w.WaitForSync(t.Context()))
	})
}
