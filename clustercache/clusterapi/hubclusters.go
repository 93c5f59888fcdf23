// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// hubClusters resolves the clusters that have a Cluster object in the hub, as
// Cluster API does: from the kubeconfig Secret, once the infrastructure is
// provisioned. A cluster without a Secret is one whose Secret is missing.
type hubClusters struct {
	hub     cache.Cache
	secrets *secrets
	// watchFilter is the value of the label that selects Cluster objects, and
	// filter selects further; both may be empty.
	watchFilter string
	filter      func(*clusterv1.Cluster) bool
}

var (
	_ resolver.Resolver = (*hubClusters)(nil)
	_ resolver.Lister   = (*hubClusters)(nil)
	_ resolver.Notifier = (*hubClusters)(nil)
)

func (h *hubClusters) selects(object *clusterv1.Cluster) bool {
	return (h.watchFilter == "" || labels.HasWatchLabel(object, h.watchFilter)) &&
		(h.filter == nil || h.filter(object))
}

// Resolve implements resolver.Resolver. It blocks until the Cluster objects
// have been listed.
func (h *hubClusters) Resolve(ctx context.Context, key resolver.Cluster) (resolver.Access, error) {
	object := &clusterv1.Cluster{}
	err := h.hub.Get(ctx, key, object)
	switch {
	case apierrors.IsNotFound(err):
		err = resolver.ErrClusterNotFound
	case err != nil:
		err = fmt.Errorf("read the Cluster: %w", err)
	case !h.selects(object):
		err = resolver.ErrClusterNotFound
	case !provisioned(object):
		err = resolver.ErrNotReady
	default:
		return h.access(ctx, key)
	}

	ref := resolver.ObjectRef{Kind: "Cluster", Namespace: key.Namespace, Name: key.Name}
	return resolver.Access{}, &resolver.AccessError{Cluster: key, Ref: ref, Err: err}
}

// access resolves a cluster that exists: only its Secret may be missing.
func (h *hubClusters) access(ctx context.Context, key resolver.Cluster) (resolver.Access, error) {
	access, err := h.secrets.Resolve(ctx, key)
	if errors.Is(err, resolver.ErrClusterNotFound) {
		err = &resolver.AccessError{
			Cluster: key,
			Ref:     resolver.ObjectRef{Kind: "Secret", Namespace: key.Namespace, Name: key.Name + "-kubeconfig"},
			Err:     resolver.ErrSecretNotFound,
		}
	}
	return access, err
}

// Clusters implements resolver.Lister. It blocks until the Cluster objects have
// been listed.
func (h *hubClusters) Clusters(ctx context.Context) ([]resolver.Cluster, error) {
	list := &clusterv1.ClusterList{}
	if err := h.hub.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the Clusters: %w", err)
	}
	var keys []resolver.Cluster
	for i := range list.Items {
		if object := &list.Items[i]; h.selects(object) {
			keys = append(keys, client.ObjectKeyFromObject(object))
		}
	}
	slices.SortFunc(keys, clustername.Compare)

	return keys, nil
}

// standing is what Resolve reads of a Cluster object.
type standing struct{ selected, provisioned bool }

func (h *hubClusters) standing(object *clusterv1.Cluster) standing {
	return standing{selected: h.selects(object), provisioned: provisioned(object)}
}

func provisioned(object *clusterv1.Cluster) bool {
	return ptr.Deref(object.Status.Initialization.InfrastructureProvisioned, false)
}

// handler returns a handler of Cluster objects that reports those whose
// standing changed: Cluster API patches each of them all the time. It is called
// from one goroutine.
func (h *hubClusters) handler(report func(resolver.Cluster)) toolscache.ResourceEventHandler {
	last := map[resolver.Cluster]standing{}
	update := func(object any) {
		c, ok := object.(*clusterv1.Cluster)
		if !ok {
			return
		}
		key, now := client.ObjectKeyFromObject(c), h.standing(c)
		if before, known := last[key]; !known || before != now {
			last[key] = now
			report(key)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    update,
		UpdateFunc: func(_, object any) { update(object) },
		DeleteFunc: func(object any) {
			if name, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
				key := resolver.Cluster{Namespace: name.Namespace, Name: name.Name}
				delete(last, key)
				report(key)
			}
		},
	}
}

// Notify implements resolver.Notifier: it reports changes of what Resolve reads
// of Cluster objects and of Secrets.
func (h *hubClusters) Notify(ctx context.Context, changed func(resolver.Cluster)) error {
	informer, err := h.hub.GetInformer(ctx, &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the Clusters: %w", err)
	}
	queue, namespaces := workqueue.NewTyped[resolver.Cluster](), workqueue.NewTyped[string]()
	defer namespaces.ShutDown()
	registration, err := informer.AddEventHandler(h.handler(func(key resolver.Cluster) {
		namespaces.Add(key.Namespace)
		queue.Add(key)
	}))
	if err != nil {
		queue.ShutDown()
		return fmt.Errorf("watch the Clusters: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }() // it fails only if it is none of the informer's

	ended := make(chan error, 1)
	go func() { // ends with ctx, and is waited for below
		defer queue.ShutDown()
		ended <- h.secrets.notify(ctx, namespaces, queue.Add)
	}()
	for {
		key, over := queue.Get()
		if over {
			return <-ended
		}
		changed(key)
		queue.Done(key)
	}
}
