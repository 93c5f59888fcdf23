// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package rolling

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/examples/rollout/api"
)

// Setup adds the controller to a manager whose scheme has the kinds of package
// api, with a ClusterCache for the clusters that Cluster API's Secrets
// describe, unless the options have a resolver.
func Setup(mgr manager.Manager, o clustercache.Options, hub resolver.HubOptions) (*clustercache.ClusterCache, error) {
	if o.Resolver == nil {
		clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI, hub)
		if err != nil {
			return nil, err
		}
		o.Resolver = clusters
	}
	cc, err := clustercache.SetupWithManager(mgr, o)
	if err != nil {
		return nil, err
	}
	r := &Reconciler{Hub: mgr.GetClient(), Clusters: cc}
	// Without a predicate that ignores changes of the status: the event of the
	// own write leads to one more run, which notices a status that was computed
	// from an old state of the cache.
	err = ctrl.NewControllerManagedBy(mgr).For(&api.Rollout{}).
		Watches(&api.Module{}, handler.EnqueueRequestsFromMapFunc(r.ofModule)).
		WatchesRawSource(controller.ObjectSource(cc, events.Selection{},
			controller.EnqueueLabelled(api.NamespaceLabel, api.NameLabel))).
		WatchesRawSource(controller.ClusterSource(cc, r.ofCluster)).
		Complete(r)
	return cc, err
}

// ofModule returns the Rollouts of a Module.
func (r *Reconciler) ofModule(ctx context.Context, module client.Object) []reconcile.Request {
	return r.rollouts(ctx, module.GetNamespace(), func(o *api.Rollout) bool {
		return o.Spec.Module == module.GetName()
	})
}

// ofCluster returns the Rollouts that serve a cluster.
func (r *Reconciler) ofCluster(ctx context.Context, event events.Cluster) []reconcile.Request {
	return r.rollouts(ctx, event.Cluster.Namespace, func(o *api.Rollout) bool {
		return slices.ContainsFunc(o.Spec.Waves, func(w api.Wave) bool {
			return slices.Contains(w.Clusters, event.Cluster.Name)
		})
	})
}

func (r *Reconciler) rollouts(
	ctx context.Context, namespace string, selected func(*api.Rollout) bool,
) (requests []reconcile.Request) {
	all := &api.RolloutList{}
	if err := r.Hub.List(ctx, all, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list the Rollouts to reconcile")
		return nil
	}
	for i := range all.Items {
		if selected(&all.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// ownerOf returns the owner under which the watches of a Rollout are declared.
func ownerOf(rollout client.ObjectKey) clustercache.Owner {
	return clustercache.Owner{GVK: api.GroupVersion.WithKind("Rollout"), ObjectKey: rollout}
}

// targets returns the watches that a Rollout needs: its kinds in its clusters.
func targets(rollout *api.Rollout, kinds []schema.GroupVersionKind) (all []clustercache.Target) {
	for _, wave := range rollout.Spec.Waves {
		for _, name := range wave.Clusters {
			for _, kind := range kinds {
				all = append(all, clustercache.Target{
					Cluster: client.ObjectKey{Namespace: rollout.Namespace, Name: name},
					Kind:    clustercache.Kind(kind),
					Options: []client.ListOption{managed},
				})
			}
		}
	}
	return all
}
