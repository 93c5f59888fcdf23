// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/informerpool"
)

// Factory passes the events of a resource of one cluster to a handler, until
// ctx ends.
func Factory(
	ctx context.Context, c dynamic.Interface, resource schema.GroupVersionResource, h cache.ResourceEventHandler,
) error {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c, 0)
	if _, err := factory.ForResource(resource).Informer().AddEventHandler(h); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	<-ctx.Done()
	factory.Shutdown() // informers can only be stopped all together
	return nil
}

// Pooled does the same with a pool of informers.
func Pooled(
	ctx context.Context, c dynamic.Interface, resource schema.GroupVersionResource, h cache.ResourceEventHandler,
) error {
	clients := func(types.NamespacedName) (dynamic.Interface, error) { return c, nil }
	pool, err := informerpool.New(informerpool.Options{Source: informerpool.FromDynamic(clients)})
	if err != nil {
		return err
	}
	lease, err := pool.Acquire(ctx, informerpool.Key{Resource: resource})
	if err != nil {
		return err
	}
	events := pool.Subscribe(informerpool.ResourceEventHandler(h))
	if err := events.Add(lease); err != nil {
		return err
	}
	err = lease.WaitForSync(ctx) // a refusal is an error here, not a log line
	<-ctx.Done()
	lease.Release() // stops only this one; others of the pool continue
	return errors.Join(err, pool.Close(context.WithoutCancel(ctx)))
}

// Watched does the same in any cluster of a cache. The handler receives fewer
// events: none while the cluster is unreachable, then only the changes.
func Watched(
	ctx context.Context, cc *clustercache.ClusterCache, cluster client.ObjectKey, kind schema.GroupVersionKind,
	h cache.ResourceEventHandler,
) error {
	watch, err := cc.Cluster(cluster).Watch(ctx, clustercache.Kind(kind))
	if err != nil {
		return err
	}
	defer watch.Release()
	if _, err := watch.AddEventHandler(informerpool.ResourceEventHandler(h)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
