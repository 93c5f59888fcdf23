// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Request names an object in a cluster. It is a ready-made request type for
// controllers that need no other, as in
// builder.TypedControllerManagedBy[controller.Request].
type Request struct {
	// Cluster is where the object is.
	Cluster client.ObjectKey
	// GVK is the object's kind.
	GVK schema.GroupVersionKind
	// ObjectKey is the object's namespace and name.
	client.ObjectKey
}

func (r Request) cluster() client.ObjectKey { return r.Cluster }

// String returns the cluster, the kind and the name, as far as they are set.
func (r Request) String() string {
	text := clustername.Of(r.Cluster)
	if !r.GVK.Empty() {
		text += " " + wants.KindName(r.GVK)
	}
	if r.Name != "" {
		text += " " + wants.ObjectName(r.ObjectKey)
	}
	return text
}

// MarshalLog returns the complete value for a logger, not only the name.
func (r Request) MarshalLog() any {
	return struct {
		Cluster   string `json:"cluster"`
		Group     string `json:"group,omitempty"`
		Version   string `json:"version,omitempty"`
		Kind      string `json:"kind,omitempty"`
		Namespace string `json:"namespace,omitempty"`
		Name      string `json:"name,omitempty"`
	}{clustername.Of(r.Cluster), r.GVK.Group, r.GVK.Version, r.GVK.Kind, r.Namespace, r.Name}
}

// EnqueueObject is an [ObjectMapFunc] that requests the object itself.
func EnqueueObject(_ context.Context, cluster client.ObjectKey, obj client.Object) []Request {
	if obj == nil {
		return nil
	}
	return []Request{{
		Cluster:   cluster,
		GVK:       obj.GetObjectKind().GroupVersionKind(),
		ObjectKey: client.ObjectKeyFromObject(obj),
	}}
}

// OwnerOptions narrow [EnqueueOwner].
type OwnerOptions struct {
	// ControllerOnly omits owners that are not the object's controller.
	ControllerOnly bool
	// ClusterScoped declares that the owner's kind has no namespace. Without it
	// the owner is in the object's namespace.
	ClusterScoped bool
}

// EnqueueOwner returns an [ObjectMapFunc] that requests the owners of a kind
// that an object has in its cluster. The version does not matter: owner
// references of any version of the group match, and the request has the given
// one. A malformed reference is ignored. When the owner changes, both the old
// and the new one are requested. EnqueueOwner reads only metadata.
func EnqueueOwner(owner schema.GroupVersionKind, opts ...OwnerOptions) ObjectMapFunc[Request] {
	requireAll("EnqueueOwner", map[string]bool{"kind of the owner": owner.Kind != ""})
	var o OwnerOptions
	for _, opt := range opts {
		o.ControllerOnly = o.ControllerOnly || opt.ControllerOnly
		o.ClusterScoped = o.ClusterScoped || opt.ClusterScoped
	}
	return func(_ context.Context, cluster client.ObjectKey, obj client.Object) []Request {
		var requests []Request
		for _, ref := range obj.GetOwnerReferences() {
			if ref.Kind != owner.Kind || o.ControllerOnly && (ref.Controller == nil || !*ref.Controller) {
				continue
			}
			gv, err := schema.ParseGroupVersion(ref.APIVersion)
			if err != nil || gv.Group != owner.Group {
				continue
			}
			r := Request{
				Cluster:   cluster,
				GVK:       owner,
				ObjectKey: client.ObjectKey{Namespace: obj.GetNamespace(), Name: ref.Name},
			}
			if o.ClusterScoped {
				r.Namespace = ""
			}
			requests = append(requests, r)
		}

		return requests
	}
}

// ofKind returns a function that gives requests that have no kind one: what is
// requested by name alone is then the same request as that of the object.
func ofKind(gvk schema.GroupVersionKind) func(Request) Request {
	return func(r Request) Request {
		if r.GVK.Empty() {
			r.GVK = gvk
		}
		return r
	}
}

// EnqueueClusterOf is an [ObjectMapFunc] for controllers that reconcile one
// object of the hub per cluster, with the cluster's name: every event in a
// cluster requests that object.
func EnqueueClusterOf(_ context.Context, cluster client.ObjectKey, _ client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: cluster}}
}

// EnqueueCluster is a [ClusterMapFunc] for the same controllers: changes of the
// cluster itself request its object.
func EnqueueCluster(_ context.Context, event events.Cluster) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: event.Cluster}}
}

// EnqueueLabelled returns an [ObjectMapFunc] for controllers that reconcile
// objects of the hub and create others for them in remote clusters, where no
// owner reference can refer to the hub: two labels of the remote object name
// the hub's object. Without a namespace label, which may be empty, it has no
// namespace. Objects without the name label request nothing.
func EnqueueLabelled(namespaceLabel, nameLabel string) ObjectMapFunc[reconcile.Request] {
	requireAll("EnqueueLabelled", map[string]bool{"nameLabel": nameLabel != ""})
	return func(_ context.Context, _ client.ObjectKey, obj client.Object) []reconcile.Request {
		set := obj.GetLabels()
		name := set[nameLabel]
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: set[namespaceLabel], Name: name}}}
	}
}

// ownersOf is EnqueueOwner for a kind whose scope is not given: the cluster's
// discovery decides whether it is namespaced. Until discovery has answered, the
// owner is enqueued both ways; the wrong request ends when the reconciler does
// not find its object.
func ownersOf(
	cc *clustercache.ClusterCache, owner schema.GroupVersionKind, controllerOnly bool,
) ObjectMapFunc[Request] {
	namespaced := EnqueueOwner(owner, OwnerOptions{ControllerOnly: controllerOnly})
	clusterScoped := EnqueueOwner(owner, OwnerOptions{ControllerOnly: controllerOnly, ClusterScoped: true})
	return func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []Request {
		inNamespace, known := cc.Cluster(cluster).IsNamespaced(owner)
		switch {
		case known && inNamespace:
			return namespaced(ctx, cluster, obj)
		case known:
			return clusterScoped(ctx, cluster, obj)
		}

		return append(namespaced(ctx, cluster, obj), clusterScoped(ctx, cluster, obj)...)
	}
}
