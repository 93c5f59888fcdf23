// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"context"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache/multicluster"
)

// The interfaces of multicluster-runtime that the adapters satisfy, copied
// here: both since a cluster's name has its own type (v0.23.3), and before
// (v0.22 to v0.23.1). To check against the real ones, put the same assertions,
// with the original names, into a program that imports both modules.
type (
	clusterName string

	aware interface {
		Engage(ctx context.Context, name clusterName, cl cluster.Cluster) error
	}
	provider interface {
		Get(ctx context.Context, name clusterName) (cluster.Cluster, error)
		IndexField(ctx context.Context, obj client.Object, field string, values client.IndexerFunc) error
	}
	providerRunnable interface {
		Start(ctx context.Context, to aware) error
	}
	awareRunnable interface {
		manager.Runnable
		aware
	}
	typedSource[object client.Object, request comparable] interface {
		ForCluster(name clusterName, cl cluster.Cluster) (source.TypedSource[request], bool, error)
	}

	oldAware interface {
		Engage(ctx context.Context, name string, cl cluster.Cluster) error
	}
	oldProvider interface {
		Get(ctx context.Context, name string) (cluster.Cluster, error)
		IndexField(ctx context.Context, obj client.Object, field string, values client.IndexerFunc) error
		Start(ctx context.Context, to oldAware) error
	}
	oldAwareRunnable interface {
		manager.Runnable
		oldAware
	}
	oldTypedSource[object client.Object, request comparable] interface {
		ForCluster(name string, cl cluster.Cluster) (source.TypedSource[request], bool, error)
	}

	// fleetRequest is a request as that module passes it to reconcilers.
	fleetRequest struct {
		reconcile.Request

		Cluster clusterName
	}
)

var (
	_ provider                                 = (*multicluster.Provider[clusterName, aware])(nil)
	_ providerRunnable                         = (*multicluster.Provider[clusterName, aware])(nil)
	_ awareRunnable                            = (*multicluster.Registrar[clusterName])(nil)
	_ typedSource[client.Object, fleetRequest] = (*multicluster.Source[clusterName, fleetRequest])(nil)

	_ oldProvider                                      = (*multicluster.Provider[string, oldAware])(nil)
	_ oldAwareRunnable                                 = (*multicluster.Registrar[string])(nil)
	_ oldTypedSource[client.Object, reconcile.Request] = (*multicluster.Source[string, reconcile.Request])(nil)

	_ multicluster.Aware[clusterName] = aware(nil)
	_ multicluster.Aware[string]      = oldAware(nil)
)

// serialController engages clusters as that module's controller does: under one
// lock, waiting for each cluster's cache, with one handler for each cluster
// that ends with the engagement, and expecting the same cluster.Cluster for the
// same engagement.
type serialController struct {
	kind    client.Object
	handler func(clusterName) toolscache.ResourceEventHandler

	mu      sync.Mutex
	engaged map[clusterName]*serialEngagement
	order   []clusterName
	tasks   sync.WaitGroup
}

type serialEngagement struct {
	ctx context.Context
	cl  cluster.Cluster
}

func newSerialController(kind client.Object, h func(clusterName) toolscache.ResourceEventHandler) *serialController {
	return &serialController{kind: kind, handler: h, engaged: map[clusterName]*serialEngagement{}}
}

func (c *serialController) Engage(ctx context.Context, name clusterName, cl cluster.Cluster) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.engaged[name]; old != nil && old.cl == cl && old.ctx.Err() == nil {
		return nil
	}
	i, err := cl.GetCache().GetInformer(ctx, c.kind)
	if err != nil {
		return err
	}
	reg, err := i.AddEventHandler(c.handler(name))
	if err != nil {
		return err
	}
	if !cl.GetCache().WaitForCacheSync(ctx) {
		return context.Cause(ctx)
	}
	now := &serialEngagement{ctx: ctx, cl: cl}
	c.engaged[name] = now
	c.order = append(c.order, name)
	c.tasks.Go(func() {
		<-ctx.Done()
		_ = i.RemoveEventHandler(reg)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.engaged[name] == now {
			delete(c.engaged, name)
		}
	})
	return nil
}

func (c *serialController) find(name clusterName) *serialEngagement {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engaged[name]
}

// awareFunc is a function that is an aware.
type awareFunc func(ctx context.Context, name clusterName, cl cluster.Cluster) error

func (f awareFunc) Engage(ctx context.Context, name clusterName, cl cluster.Cluster) error {
	return f(ctx, name, cl)
}

// discard returns a queue whose requests are dropped.
func discard() workqueue.TypedRateLimitingInterface[fleetRequest] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[fleetRequest]())
}
