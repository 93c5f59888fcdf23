// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fleetcontroller "github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestSlowClusterLeavesWorkersToTheOthers: each reconcile of one cluster takes
// an hour.
func TestSlowClusterLeavesWorkersToTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick, d := fleettest.NewAPI(t, "uid-slow"), fleettest.NewAPI(t, "uid-quick"), fleettest.NewDirectory()
		d.Set(fleettest.Key("slow"), slow.Config())
		d.Set(fleettest.Key("quick"), quick.Config())
		for i := range 20 {
			slow.Put(fmt.Sprint("object-", i), "1", nil)
		}
		quick.Put("one", "1", nil)
		o := fleettest.Silent(d)
		o.Discover = true
		cc := fleettest.Start(t, o)
		mgr := fleettest.NewManager()

		var mu sync.Mutex
		began := map[string]int{}
		_, err := fleetcontroller.NewControllerManagedBy(mgr, cc).
			For(&corev1.ConfigMap{}).
			WithOptions(controller.TypedOptions[fleetcontroller.Request]{
				MaxConcurrentReconciles: 4,
				NewQueue:                fleetcontroller.FairQueue(2),
			}).
			Build(reconcile.TypedFunc[fleetcontroller.Request](
				func(ctx context.Context, r fleetcontroller.Request) (reconcile.Result, error) {
					mu.Lock()
					began[r.Cluster.Name]++
					mu.Unlock()

					if r.Cluster.Name == "slow" {
						select {
						case <-time.After(time.Hour):
						case <-ctx.Done():
						}
					}
					return reconcile.Result{}, client.IgnoreNotFound(ctx.Err())
				}))
		require.NoError(t, err)
		stop := fleettest.Run(t, mgr.Added[0])
		for i := range 5 {
			time.Sleep(time.Minute)
			quick.Put("one", fmt.Sprint(i), nil)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		require.Equal(t, 2, began["slow"])
		require.Equal(t, 6, began["quick"])
		mu.Unlock()

		time.Sleep(20 * time.Hour)
		mu.Lock()
		require.Equal(t, 20, began["slow"])
		mu.Unlock()

		stop()
	})
}

// TestFairQueueOfAnyRequest: here a request is an object of the hub with the
// name of a cluster.
func TestFairQueueOfAnyRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newQueue := fleetcontroller.FairQueueOf(1, func(r reconcile.Request) client.ObjectKey {
			return client.ObjectKey{Name: r.Namespace}
		})
		q := newQueue("test", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		request := func(cluster, name string) reconcile.Request {
			return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: cluster, Name: name}}
		}
		for i := range 10 {
			q.Add(request("slow", fmt.Sprint(i)))
		}
		q.Add(request("quick", "one"))
		synctest.Wait()
		first, _ := q.Get()
		require.Equal(t, "slow", first.Namespace)
		second, _ := q.Get()
		require.Equal(t, request("quick", "one"), second, "its turn, while the slow one is at work")
		q.Done(second)
		q.Done(first)
		third, _ := q.Get()
		require.Equal(t, "slow", third.Namespace)
		q.Done(third)
	})
	require.PanicsWithValue(t, "controller: FairQueueOf: required: cluster",
		func() { fleetcontroller.FairQueueOf[reconcile.Request](1, nil) })
}
