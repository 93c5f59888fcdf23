// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
)

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

func informer(t *testing.T, cl cluster.Cluster, obj client.Object) cache.Informer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // virtual; it returns at once
	defer cancel()
	i, err := cl.GetCache().GetInformer(ctx, obj)
	require.NoError(t, err)
	return i
}

// TestInformerOfAClusterThatIsDownIsReturnedAtOnce checks that it takes no
// virtual time, that its handlers receive the objects when the cluster comes,
// and afterwards only changes, whatever happens to the connection. Another
// cluster at the same address results in deletes.
func TestInformerOfAClusterThatIsDownIsReturnedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, multicluster.Options{})
		api := f.add("a")
		api.Disconnect()
		cl := f.cluster("a")
		time.Sleep(time.Minute)
		begin := time.Now()
		i := informer(t, cl, &corev1.ConfigMap{})
		r := &record{}
		reg, err := i.AddEventHandler(r.handler())
		require.NoError(t, err)
		require.True(t, cl.GetCache().WaitForCacheSync(t.Context()))
		require.Zero(t, time.Since(begin))
		require.False(t, reg.HasSynced())
		require.False(t, i.HasSynced())

		api.Connect()
		require.True(t, toolscache.WaitFor(t.Context(), "handler", reg.HasSyncedChecker()))
		require.Equal(t, []string{"initial one", "initial two"}, r.take())
		require.True(t, reg.HasSynced())
		require.True(t, i.HasSynced())

		api.Disconnect()
		time.Sleep(time.Minute)
		api.put("two", "3")
		api.put("new", "1")
		api.remove(t, "one")
		api.Connect()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"add new", "delete one", "update two"}, r.take())

		api.Disconnect()
		other := serve(f.servers, "uid-other")
		other.put("two", "2")
		f.d.set(key("a"), other.Config())
		time.Sleep(time.Minute)
		events := r.take()
		require.Contains(t, events, "delete unknown default/new new")
		require.Contains(t, events, "delete unknown default/two two", "another object of the same name")
		require.Contains(t, events, "add two")
		require.Len(t, events, 3)
	})
}

// TestHandlersAreTheReferences checks that the first handler acquires the
// watch, that the last removal releases it, and that neither counts twice.
func TestHandlersAreTheReferences(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, f *fleet, api *apiServer, cl cluster.Cluster) {
		i := informer(t, cl, &corev1.ConfigMap{})
		require.Same(t, i, informer(t, cl, &corev1.ConfigMap{}), "one view for all who ask")
		watches, _ := f.watches("a")
		require.Zero(t, watches, "asking for it takes nothing")
		a, err := i.AddEventHandler((&record{}).handler())
		require.NoError(t, err)
		b, err := informer(t, cl, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}).
			AddEventHandler((&record{}).handler())
		require.NoError(t, err)
		synctest.Wait()
		watches, informers := f.watches("a")
		require.Equal(t, 1, watches)
		require.Equal(t, 1, informers, "whatever the form")
		require.Equal(t, 1, api.streams())

		require.NoError(t, i.RemoveEventHandler(a))
		require.NoError(t, i.RemoveEventHandler(a))
		time.Sleep(time.Hour)
		_, informers = f.watches("a")
		require.Equal(t, 1, informers, "the other form's handler holds it")
		require.Error(t, i.RemoveEventHandler(b), "of another informer")
		meta := informer(t, cl, &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}})
		require.NoError(t, meta.RemoveEventHandler(b))
		time.Sleep(time.Minute)
		watches, informers = f.watches("a")
		require.Zero(t, watches)
		require.Zero(t, informers)
	})
}

// TestRemovedHandlerHearsNothing checks this also for a handler that removes
// itself from its own callback.
func TestRemovedHandlerHearsNothing(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, _ *fleet, api *apiServer, cl cluster.Cluster) {
		i := informer(t, cl, &corev1.ConfigMap{})
		r := &record{}
		var reg toolscache.ResourceEventHandlerRegistration
		added := make(chan struct{})
		reg, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			<-added
			r.add("add", obj)
			_ = i.RemoveEventHandler(reg)
		}})
		require.NoError(t, err)
		close(added)
		require.Len(t, r.take(), 1)
		api.put("more", "1")
		require.Empty(t, r.take())
	})
}

// TestHandlersGetTheFormThatWasAskedFor matters because handlers use type
// assertions without a check.
func TestHandlersGetTheFormThatWasAskedFor(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, _ *fleet, api *apiServer, cl cluster.Cluster) {
		forms := map[string]client.Object{
			"*v1.ConfigMap": &corev1.ConfigMap{},
			"*unstructured.Unstructured": &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
				"kind": "ConfigMap"}},
			"*v1.PartialObjectMetadata": &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}},
		}
		records := map[string]*record{}
		for name, obj := range forms {
			records[name] = &record{}
			_, err := informer(t, cl, obj).AddEventHandler(records[name].handler())
			require.NoError(t, err)
		}
		byKind := &record{}
		i, err := cl.GetCache().GetInformerForKind(t.Context(), configMap)
		require.NoError(t, err)
		require.Same(t, informer(t, cl, &corev1.ConfigMap{}), i)
		_, err = i.AddEventHandler(byKind.handler())
		require.NoError(t, err)
		records["*v1.ConfigMap"].take()
		api.put("two", "3")
		api.remove(t, "one")
		synctest.Wait()
		for name, r := range records {
			require.Equal(t, map[string]bool{name: true}, r.types)
			require.Subset(t, r.take(), []string{"delete one", "update two"}, name)
		}
		require.Equal(t, map[string]bool{"*v1.ConfigMap": true}, byKind.types)
		_, err = cl.GetCache().GetInformerForKind(t.Context(),
			schema.GroupVersionKind{Group: "no", Version: "v1", Kind: "Kind"})
		require.ErrorContains(t, err, "no kind")
	})
}

// TestObjectsOfHandlersAreTheirOwn checks that a handler that changes its
// objects affects neither other handlers nor the cache.
func TestObjectsOfHandlersAreTheirOwn(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, _ *fleet, _ *apiServer, cl cluster.Cluster) {
		i := informer(t, cl, &corev1.ConfigMap{})
		_, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			obj.(*corev1.ConfigMap).Data["value"] = "spoiled"
		}})
		require.NoError(t, err)
		synctest.Wait()
		values := make(chan string, 2)
		_, err = i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { values <- obj.(*corev1.ConfigMap).Data["value"] }})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"1", "2"}, []string{<-values, <-values})
	})
}

// TestRemoveInformerDropsItsHandlersAndNoOthers checks that only the named form
// loses its handlers.
func TestRemoveInformerDropsItsHandlersAndNoOthers(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, f *fleet, api *apiServer, cl cluster.Cluster) {
		i := informer(t, cl, &corev1.ConfigMap{})
		meta := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		mine, others := &record{}, &record{}
		_, err := i.AddEventHandler(mine.handler())
		require.NoError(t, err)
		_, err = informer(t, cl, meta).AddEventHandler(others.handler())
		require.NoError(t, err)
		mine.take()
		others.take()
		require.NoError(t, cl.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		require.NoError(t, cl.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		require.True(t, i.IsStopped())
		api.put("more", "1")
		require.Empty(t, mine.take())
		require.Equal(t, []string{"add more"}, others.take())
		_, err = i.AddEventHandler(mine.handler())
		require.ErrorIs(t, err, clustercache.ErrReleased)

		again := informer(t, cl, &corev1.ConfigMap{})
		require.NotSame(t, i, again)
		require.False(t, again.IsStopped())
		require.NoError(t, cl.GetCache().RemoveInformer(t.Context(), meta))
		time.Sleep(time.Minute)
		watches, informers := f.watches("a")
		require.Zero(t, watches)
		require.Zero(t, informers)
	})
}

// TestControllersStartWithoutAClusterThatIsDown checks that their sources
// report that they have synced after SyncTimeout, and not before.
func TestControllersStartWithoutAClusterThatIsDown(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"default": 0, "never": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, multicluster.Options{SyncTimeout: timeout})
				f.add("a").Disconnect()
				i := informer(t, f.cluster("a"), &corev1.ConfigMap{})
				reg, err := i.AddEventHandler((&record{}).handler())
				require.NoError(t, err)
				removed, err := i.AddEventHandler((&record{}).handler())
				require.NoError(t, err)
				time.Sleep(29 * time.Second)
				require.False(t, reg.HasSynced())
				require.NoError(t, i.RemoveEventHandler(removed))
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, timeout == 0, reg.HasSynced())
				require.Equal(t, timeout == 0, toolscache.IsDone(reg.HasSyncedChecker()))
				require.False(t, removed.HasSynced())
				require.False(t, i.HasSynced(), "the cache does not pretend")
				time.Sleep(time.Hour)
				require.Equal(t, timeout == 0, reg.HasSynced())
			})
		})
	}
}

// TestHasSyncedCheckerNeedsNoHandler checks also that nothing is kept once the
// checker is done.
func TestHasSyncedCheckerNeedsNoHandler(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, f *fleet, api *apiServer, cl cluster.Cluster) {
		api.Disconnect()
		time.Sleep(time.Minute)
		i := informer(t, cl, &corev1.ConfigMap{})
		checker := i.HasSyncedChecker()
		require.Contains(t, checker.Name(), "ConfigMap")
		time.Sleep(time.Minute)
		require.False(t, toolscache.IsDone(checker))
		api.Connect()
		<-checker.Done()
		require.True(t, toolscache.IsDone(i.HasSyncedChecker()))
		time.Sleep(time.Minute)
		watches, _ := f.watches("a")
		require.Zero(t, watches)

		// A checker that is not done yet ends with the informer.
		api.Disconnect()
		time.Sleep(time.Minute)
		require.NoError(t, cl.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		j := informer(t, cl, &corev1.ConfigMap{})
		checker = j.HasSyncedChecker()
		watches, _ = f.watches("a")
		require.Equal(t, 1, watches)
		require.NoError(t, cl.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}))
		watches, _ = f.watches("a")
		require.Zero(t, watches)
		require.False(t, toolscache.IsDone(checker))
		require.False(t, toolscache.IsDone(j.HasSyncedChecker()))
	})
}

// TestHasSyncedWithoutHandlersKeepsAnInformerWhileItIsAsked covers programs
// that warm up a cache by GetInformer alone.
func TestHasSyncedWithoutHandlersKeepsAnInformerWhileItIsAsked(t *testing.T) {
	for name, only := range map[string]bool{"reads take informers": false, "only watched": true} {
		t.Run(name, func(t *testing.T) {
			one(t, multicluster.Options{OnlyWatched: only}, func(t *testing.T, f *fleet, _ *apiServer,
				cl cluster.Cluster) {
				i := informer(t, cl, &corev1.ConfigMap{})
				require.True(t, toolscache.WaitForCacheSync(t.Context().Done(), i.HasSynced))
				_, informers := f.watches("a")
				require.Equal(t, 1, informers)
				time.Sleep(time.Hour)
				_, informers = f.watches("a")
				require.Zero(t, informers)
			})
		})
	}
}

// TestBlockUntilSyncedIsHonouredWhenAsked checks that it blocks for as long as
// ctx allows.
func TestBlockUntilSyncedIsHonouredWhenAsked(t *testing.T) {
	one(t, multicluster.Options{}, func(t *testing.T, _ *fleet, api *apiServer, cl cluster.Cluster) {
		api.Disconnect()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := cl.GetCache().GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(true))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = cl.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
		require.NoError(t, err)
		time.AfterFunc(time.Minute, api.Connect)
		i, err := cl.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(true))
		require.NoError(t, err)
		require.True(t, i.HasSynced())
	})
}

// TestResyncIsAskedForAndEnds covers a period per handler, and SyncPeriod for
// all.
func TestResyncIsAskedForAndEnds(t *testing.T) {
	one(t, multicluster.Options{SyncPeriod: time.Hour}, func(t *testing.T, _ *fleet, _ *apiServer, cl cluster.Cluster) {
		i := informer(t, cl, &corev1.ConfigMap{})
		never, often, byDefault := &record{}, &record{}, &record{}
		_, err := i.AddEventHandlerWithResyncPeriod(never.handler(), 0)
		require.NoError(t, err)
		reg, err := i.AddEventHandlerWithResyncPeriod(often.handler(), 10*time.Minute)
		require.NoError(t, err)
		_, err = i.AddEventHandler(byDefault.handler())
		require.NoError(t, err)
		for _, r := range []*record{never, often, byDefault} {
			require.Len(t, r.take(), 2)
		}
		time.Sleep(61 * time.Minute)
		require.Empty(t, never.take())
		require.Len(t, often.take(), 12)
		require.Equal(t, []string{"resync one", "resync two"}, byDefault.take())
		require.NoError(t, i.RemoveEventHandler(reg))
		time.Sleep(time.Hour)
		require.Empty(t, often.take())
	})
}
