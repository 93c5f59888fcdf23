// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache/multicluster"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// records are the events delivered to a serial controller's handlers, by
// cluster.
type records struct {
	mu sync.Mutex
	of map[clusterName]*record
}

func (r *records) get(name clusterName) *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[name] == nil {
		if r.of == nil {
			r.of = map[clusterName]*record{}
		}
		r.of[name] = &record{}
	}
	return r.of[name]
}

func (r *records) handler(name clusterName) toolscache.ResourceEventHandler {
	return r.get(name).handler()
}

// TestHazardUnreachableClusterBlocksTheFleet guards against one cluster
// blocking the others: a controller engages under one lock and waits for each
// cluster's cache. A controller that does not return at all may only delay its
// own cluster.
func TestHazardUnreachableClusterBlocksTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		f.add("bad").Disconnect()
		time.Sleep(time.Minute)
		told := &records{}
		c := newSerialController(&corev1.ConfigMap{}, told.handler)
		begin := time.Now()
		stop := engage(t, newProvider(f, multicluster.ProviderOptions{}), c)
		synctest.Wait()
		require.NotNil(t, c.find("fleet/bad"))
		require.Zero(t, time.Since(begin), "no time has passed")
		f.add("good")
		require.Equal(t, []string{"initial one", "initial two"}, told.get("fleet/good").take())
		require.Zero(t, time.Since(begin))
		f.apis["bad"].Connect()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"initial one", "initial two"}, told.get("fleet/bad").take(),
			"it is heard of when it comes")
		stop()
		c.tasks.Wait()

		entered := make(chan clusterName, 10)
		engage(t, newProvider(f, multicluster.ProviderOptions{}), awareFunc(func(ctx context.Context, name clusterName,
			_ cluster.Cluster) error {
			entered <- name
			if name == "fleet/bad" {
				<-ctx.Done()
			}
			return nil
		}))
		f.add("third")
		got := map[clusterName]bool{next(t, entered): true, next(t, entered): true, next(t, entered): true}
		require.Equal(t, map[clusterName]bool{"fleet/bad": true, "fleet/good": true, "fleet/third": true}, got)
		_, err := newProvider(f, multicluster.ProviderOptions{}).Get(t.Context(), "fleet/bad")
		require.NoError(t, err)
	})
}

// TestHazardTeardownOfTheOldClusterEndsItsReplacement guards against an old
// engagement that ends late and takes the new one with it.
func TestHazardTeardownOfTheOldClusterEndsItsReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		f.add("a")
		p := newProvider(f, multicluster.ProviderOptions{})
		made := make(chan call, 10)
		returned := make(chan call, 10)
		engage(t, p, awareFunc(func(ctx context.Context, name clusterName, cl cluster.Cluster) error {
			c := call{ctx: ctx, name: name, cl: cl}
			made <- c
			if len(returned) == 0 { // the first
				<-ctx.Done()
				time.Sleep(50 * time.Second)
			}
			returned <- c
			return nil
		}))
		first := next(t, made)
		f.d.set(key("a"), nil)
		next(t, first.ctx.Done())
		f.add("a")
		time.Sleep(time.Second) // a cluster that was just forgotten is found by the next list
		require.Empty(t, made, "calls for one name do not overlap: the late one would leave its ended context behind")
		replacement, err := p.Get(t.Context(), "fleet/a")
		require.NoError(t, err, "but it is found meanwhile")
		second := next(t, made)
		require.Same(t, first.cl, next(t, returned).cl)
		require.Same(t, replacement, second.cl)
		time.Sleep(time.Hour)
		require.NoError(t, second.ctx.Err())
		got, err := p.Get(t.Context(), "fleet/a")
		require.NoError(t, err)
		require.Same(t, replacement, got)
		in, err := read(t, got.GetClient())
		require.NoError(t, err)
		require.Equal(t, "uid-a1", in)
		i := informer(t, second.cl, &corev1.ConfigMap{})
		require.False(t, i.IsStopped())
	})
}

// TestHazardUnreachableClusterFailsTheStartOfAController runs a stock
// controller with stock sources of two clusters, one of which is down for far
// longer than the controller waits for sources.
func TestHazardUnreachableClusterFailsTheStartOfAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		f.add("bad").Disconnect()
		f.add("good")
		skip := true
		requests := make(chan fleetRequest, 100)
		c, err := controller.NewTypedUnmanaged("hazard", controller.TypedOptions[fleetRequest]{
			SkipNameValidation: &skip,
			Reconciler: reconcile.TypedFunc[fleetRequest](func(_ context.Context, r fleetRequest) (reconcile.Result,
				error) {
				requests <- r
				return reconcile.Result{}, nil
			}),
		})
		require.NoError(t, err)
		for _, name := range []string{"bad", "good"} {
			require.NoError(t, c.Watch(source.TypedKind(f.cluster(name).GetCache(), client.Object(&corev1.ConfigMap{}),
				handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []fleetRequest {
					return []fleetRequest{{Cluster: clusterName(name),
						Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}}}
				}))))
		}
		stop := fleettest.Run(t, c)
		for range 2 {
			require.Equal(t, clusterName("good"), next(t, requests).Cluster)
		}
		time.Sleep(10 * time.Minute) // the controller gives up after two
		f.apis["good"].put("more", "1")
		require.Equal(t, "more", next(t, requests).Name)
		f.apis["bad"].Connect()
		for range 2 {
			require.Equal(t, clusterName("bad"), next(t, requests).Cluster)
		}
		stop()
	})
}

// TestHazardEngagementsLeaveGoroutines adds and removes clusters, which
// elsewhere happens when credentials rotate.
func TestHazardEngagementsLeaveGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		told := &records{}
		c := newSerialController(&corev1.ConfigMap{}, told.handler)
		p := newProvider(f, multicluster.ProviderOptions{})
		require.NoError(t, p.IndexField(t.Context(), &corev1.ConfigMap{}, "value", byValue))
		engage(t, p, c)
		api := serve(f.servers, "uid")
		api.put("one", "1")
		round := func() {
			f.d.set(key("a"), api.Config())
			time.Sleep(5 * time.Second)
			require.NotNil(t, c.find("fleet/a"))
			require.NotEmpty(t, told.get("fleet/a").take())
			f.d.set(key("a"), nil)
			time.Sleep(5 * time.Minute)
			require.Nil(t, c.find("fleet/a"))
		}
		round()
		before := runtime.NumGoroutine()
		for range 200 {
			round()
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), before+5)
		_, err := f.cc.Cluster(key("a")).Status()
		require.Error(t, err, "nothing holds the cluster that was removed")
	})
}

// TestHazardEndOfOneEngagementEndsAnother checks that clusters engaged at the
// same time share no context.
func TestHazardEndOfOneEngagementEndsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		const n = 10
		for i := range n {
			f.add(fmt.Sprint("c", i))
		}
		synctest.Wait()
		told := &records{}
		c := newSerialController(&corev1.ConfigMap{}, told.handler)
		engage(t, newProvider(f, multicluster.ProviderOptions{}), c)
		synctest.Wait()
		for gone := range n {
			f.d.set(key(fmt.Sprint("c", gone)), nil)
			time.Sleep(time.Minute)
			for i := range n {
				name := clusterName(fmt.Sprint("fleet/c", i))
				told.get(name).take()
				f.apis[fmt.Sprint("c", i)].put("news", fmt.Sprint(gone))
				if i <= gone {
					require.Nil(t, c.find(name))
					require.Empty(t, told.get(name).take())
					continue
				}
				require.NotNil(t, c.find(name))
				require.NoError(t, c.find(name).ctx.Err())
				require.Len(t, told.get(name).take(), 1)
			}
		}
		c.tasks.Wait()
	})
}

// TestHazardDeleteOfWhatCameAndWentIsAwaited: controller-runtime's client with
// read-your-writes consistency waits for the event of each object that it
// deleted, and lets no List through until that has come. A handler written for
// client-go receives the delete of each object, even if it was busy all the
// time that the object existed.
func TestHazardDeleteOfWhatCameAndWentIsAwaited(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, _ *fleet, api *apiServer, cl cluster.Cluster) {
		busy, deleted := make(chan struct{}), map[types.UID]bool{}
		_, err := informer(t, cl, &corev1.ConfigMap{}).AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { <-busy },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				deleted[obj.(client.Object).GetUID()] = true
			},
		})
		require.NoError(t, err)
		synctest.Wait()
		want := map[types.UID]bool{}
		for i := range 3 {
			for _, name := range []string{"two", "brief"} {
				api.put(name, fmt.Sprint(i))
				o := &corev1.ConfigMap{}
				require.NoError(t, api.Client().Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, o))
				want[o.UID] = true
				synctest.Wait()
				api.remove(t, name)
				synctest.Wait()
			}
		}
		close(busy)
		synctest.Wait()
		require.Equal(t, want, deleted)
	})
}

// TestHazardEngagementEndsAClusterThatIsHeld: a controller of one cluster and a
// provider share the Clusters. The cluster is removed and created again, which
// ends the engagement alone; and the controller forgets it, which does not.
func TestHazardEngagementEndsAClusterThatIsHeld(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, f *fleet, api *apiServer, held cluster.Cluster) {
		to, made := calls()
		engage(t, newProvider(f, multicluster.ProviderOptions{}), to)
		told := &record{}
		_, err := informer(t, held, &corev1.ConfigMap{}).AddEventHandler(told.handler())
		require.NoError(t, err)
		require.Len(t, told.take(), 2)
		first := next(t, made)

		f.d.set(key("a"), nil)
		next(t, first.ctx.Done())
		f.d.set(key("a"), api.Config())
		second := next(t, made)
		require.NotSame(t, first.cl, second.cl)
		time.Sleep(time.Minute)
		told.take()
		api.put("three", "3")
		require.Equal(t, []string{"add three"}, told.take())
		require.False(t, informer(t, held, &corev1.ConfigMap{}).IsStopped())
		require.Same(t, held, f.cluster("a"))

		engaged := &record{}
		_, err = informer(t, second.cl, &corev1.ConfigMap{}).AddEventHandler(engaged.handler())
		require.NoError(t, err)
		require.Len(t, engaged.take(), 3)
		f.Forget(key("a"))
		api.put("four", "4")
		require.Equal(t, []string{"add four"}, engaged.take())
		require.Empty(t, told.take())
	})
}
