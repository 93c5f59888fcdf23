// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
)

// bench runs the reconciler over fake clusters, as a controller would, but
// without a retry: only events lead to a Reconcile.
type bench struct {
	t     *testing.T
	fleet *clustercachetest.Fleet
	cc    *clustercache.ClusterCache
	hub   *clustercachetest.Cluster
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	calls atomic.Int32 // of the reconciler
}

func kindOf(kind string) clustercachetest.Kind {
	return clustercachetest.Kind{GVK: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}}
}

func newBench(t *testing.T) *bench {
	s := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(s))
	addToScheme(s)
	f := clustercachetest.New(t, clustercachetest.Options{
		Scheme: s,
		Kinds:  []clustercachetest.Kind{kindOf(release)},
	})
	b := &bench{
		t:     t,
		fleet: f,
		hub:   f.Add(""),
		cc:    f.ClusterCache(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	}
	source := controller.DeclarerSource(b.cc, controller.EnqueueDeclarer(pipelineKind))
	require.NoError(t, source.Start(t.Context(), b.queue))
	r := &reconciler{hub: b.hub.Client(), clusters: b.cc}
	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			request, shutdown := b.queue.Get()
			if shutdown {
				return
			}
			b.calls.Add(1)
			_, _ = r.Reconcile(t.Context(), request)
			b.queue.Done(request)
		}
	})
	t.Cleanup(func() {
		b.queue.ShutDown()
		worker.Wait()
		source.Stop()
	})

	return b
}

// changed is what the watch of Pipelines does.
func (b *bench) changed() {
	b.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pipeline())})
}

// after returns the reasons in the status after a time.
func (b *bench) after(d time.Duration) (reasons []string) {
	b.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	p := pipeline()
	require.NoError(b.t, b.hub.Client().Get(b.t.Context(), client.ObjectKeyFromObject(p), p))
	for _, e := range p.Status.Environments {
		if e.Ready {
			e.Reason = "Ready"
		}
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

// runs makes an object report that it runs the version it is to run.
func (b *bench) runs(in *clustercachetest.Cluster, kind, version string) {
	b.t.Helper()
	o := object(kind)
	require.NoError(b.t, in.Client().Get(b.t.Context(), client.ObjectKeyFromObject(o), o))
	found, _, _ := unstructured.NestedString(o.Object, "spec", "version")
	require.Equal(b.t, version, found)
	require.NoError(b.t, unstructured.SetNestedField(o.Object, version, "status", "version"))
	require.NoError(b.t, in.Client().Status().Update(b.t.Context(), o))
}

func TestVersionIsPromotedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.hub.Store(object(release))
		east, west := b.fleet.Add(namespace+"/east", object(release)), b.fleet.Add(namespace+"/west")
		west.Serve(kindOf(rollout))
		west.Store(object(rollout))
		require.NoError(t, b.hub.Client().Create(t.Context(), pipeline()))
		b.changed()
		require.Equal(t, []string{"NotReady", "Waiting", "Waiting"}, b.after(time.Minute))
		b.runs(b.hub, release, "v1")
		require.Equal(t, []string{"Ready", "NotReady", "Waiting"}, b.after(time.Second))
		b.runs(east, release, "v1")
		require.Equal(t, []string{"Ready", "Ready", "NotReady"}, b.after(time.Second))
		b.runs(west, rollout, "v1")
		require.Equal(t, []string{"Ready", "Ready", "Ready"}, b.after(time.Second))

		p := pipeline()
		require.NoError(t, b.hub.Client().Get(t.Context(), client.ObjectKeyFromObject(p), p))
		p.Spec.Version = "v2"
		require.NoError(t, b.hub.Client().Update(t.Context(), p))
		b.changed()
		require.Equal(t, []string{"NotReady", "Waiting", "Waiting"}, b.after(time.Second))

	})
}

// TestPipelineEndsAfterItsTargets: one of them has a finalizer that takes an
// hour. Its end is all that calls the Pipeline.
func TestPipelineEndsAfterItsTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.hub.Store(object(release))
		east, west := b.fleet.Add(namespace+"/east", object(release)), b.fleet.Add(namespace+"/west")
		west.Serve(kindOf(rollout))
		draining := object(rollout)
		draining.SetFinalizers([]string{"delivery.example/draining"})
		west.Store(draining)
		p, name := pipeline(), client.ObjectKeyFromObject(pipeline())
		require.NoError(t, b.hub.Client().Create(t.Context(), p))
		b.changed()
		b.after(time.Minute)
		require.NoError(t, b.hub.Client().Get(t.Context(), name, p))
		require.Equal(t, []string{finalizer}, p.Finalizers)

		before := b.calls.Load()
		require.NoError(t, b.hub.Client().Delete(t.Context(), p))
		b.changed()
		require.Equal(t, []string{"Ready", "Ready", "Deleting"}, b.after(time.Hour))
		for _, c := range []*clustercachetest.Cluster{b.hub, east} {
			o := object(release)
			require.True(t, apierrors.IsNotFound(c.Client().Get(t.Context(), client.ObjectKeyFromObject(o), o)))
		}

		o := object(rollout)
		require.NoError(t, west.Client().Get(t.Context(), client.ObjectKeyFromObject(o), o))
		o.SetFinalizers(nil)
		require.NoError(t, west.Client().Update(t.Context(), o))
		time.Sleep(time.Second)
		require.True(t, apierrors.IsNotFound(b.hub.Client().Get(t.Context(), name, p)), "its last target is gone")
		require.LessOrEqual(t, b.calls.Load()-before, int32(5))

		b.changed()
		time.Sleep(time.Hour)
		require.Empty(t, b.cc.Usage().Uses, "caches end with the last Pipeline")
	})
}

func TestStatusNamesEachTroubleAndFollowsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.hub.Store(object(release))
		east := b.fleet.Add(namespace+"/east", object(release))
		require.NoError(t, b.hub.Client().Create(t.Context(), pipeline()))
		b.changed()
		require.Equal(t, []string{"NotReady", "Waiting", "UnknownCluster"}, b.after(time.Minute),
			"a fake fleet knows that there is no such cluster, where Cluster API only lacks its Secret")
		b.runs(b.hub, release, "v1")
		b.after(time.Second)
		b.runs(east, release, "v1")

		west := b.fleet.Add(namespace + "/west")
		require.Equal(t, []string{"Ready", "Ready", "NotServed"}, b.after(time.Minute))
		west.Serve(kindOf(rollout))
		require.Equal(t, []string{"Ready", "Ready", "NotFound"}, b.after(time.Minute))
		west.Store(object(rollout))
		require.Equal(t, []string{"Ready", "Ready", "NotReady"}, b.after(time.Minute))
		b.runs(west, rollout, "v1")
		require.Equal(t, []string{"Ready", "Ready", "Ready"}, b.after(time.Minute))

		refusal := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
		heal := west.Fail(refusal, clustercachetest.Resource("rollouts"))
		require.Equal(t, []string{"Ready", "Ready", "Forbidden"}, b.after(time.Minute))
		heal()
		require.Equal(t, []string{"Ready", "Ready", "Ready"}, b.after(time.Minute))
		heal = east.Fail(clustercachetest.Status(http.StatusUnauthorized))
		require.Equal(t, []string{"Ready", "Unauthorized", "Ready"}, b.after(10*time.Minute))
		heal()
		require.Equal(t, []string{"Ready", "Ready", "Ready"}, b.after(10*time.Minute))
		east.Disconnect()
		require.Equal(t, []string{"Ready", "Unreachable", "Ready"}, b.after(10*time.Minute))
		east.Connect()
		require.Equal(t, []string{"Ready", "Ready", "Ready"}, b.after(10*time.Minute))
	})
}
