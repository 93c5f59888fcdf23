// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package owning_test

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
)

// engager is a controller of a provider: its requests name the cluster, and
// their object.
type engager struct {
	p       *multicluster.Provider[string, *engager]
	queue   workqueue.TypedRateLimitingInterface[engaged]
	wrapped reconcile.TypedReconciler[engaged]
	tasks   sync.WaitGroup
}

// engaged is a request.
type engaged struct {
	cluster string
	reconcile.Request
}

var errNoCluster = errors.New("no such cluster")

// provided returns what runs a provider and its controller.
func (g *group) provided(r *replica) func(context.Context) error {
	e := &engager{p: multicluster.NewProvider[string, *engager](multicluster.New(r.cc, multicluster.Options{}),
		multicluster.ProviderOptions{NotFound: errNoCluster})}
	key := func(request engaged) client.ObjectKey { return e.p.Key(request.cluster) }
	e.wrapped = controller.WhileOwned(r.cc, key, reconcile.TypedFunc[engaged](
		func(ctx context.Context, request engaged) (reconcile.Result, error) {
			cl, err := e.p.Get(ctx, request.cluster)
			if err != nil {
				return reconcile.Result{}, err
			}
			c := &copier{
				g:       g,
				r:       r,
				c:       cl.GetClient(),
				cluster: key(request),
			}
			return c.Reconcile(ctx, request.Request)
		}))
	return e.run
}

func (e *engager) run(ctx context.Context) error {
	e.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[engaged]())
	e.tasks.Go(func() { e.work(ctx) })
	err := e.p.Start(ctx, e)
	e.queue.ShutDown()
	e.tasks.Wait()
	return err
}

// work reconciles one request after the other, as a controller does.
func (e *engager) work(ctx context.Context) {
	for {
		r, stopped := e.queue.Get()
		if stopped {
			return
		}
		result, err := e.wrapped.Reconcile(ctx, r)
		switch {
		case errors.Is(err, errNoCluster):
		case err != nil:
			e.queue.AddRateLimited(r)
		case result.RequeueAfter > 0:
			e.queue.AddAfter(r, result.RequeueAfter)
		default:
			e.queue.Forget(r)
		}
		e.queue.Done(r)
	}
}

// Engage implements multicluster-runtime's Aware.
func (e *engager) Engage(ctx context.Context, name string, cl cluster.Cluster) error {
	informer, err := cl.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		return err
	}
	add := func(o any) {
		if m, ok := o.(*corev1.ConfigMap); ok {
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)}
			e.queue.Add(engaged{cluster: name, Request: request})
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, o any) { add(o) },
	})
	if err != nil {
		return err
	}
	e.tasks.Go(func() {
		<-ctx.Done()
		_ = informer.RemoveEventHandler(registration)
	})
	return nil
}
