// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadyObject names objects of the hub that decide whether a cluster is ready
// to be contacted. All objects of the kind are watched, and if the resolver and
// the kind have a namespace, only those in that; only the verdict and the labels
// are kept. The labels are added to those of the cluster.
type ReadyObject struct {
	// Kind is the objects' kind. The hub has to serve it.
	Kind schema.GroupVersionKind
	// Key returns the object of a cluster. Default: the object whose key is the
	// cluster's.
	Key func(cluster Cluster) client.ObjectKey
	// Ready judges an object, which it must not change. If the object does not
	// exist, the cluster is an [ErrClusterNotFound]; if Ready returns false, an
	// [ErrNotReady].
	Ready func(object *unstructured.Unstructured) bool
}

func (r *ReadyObject) id(cluster Cluster) objectID {
	key := cluster
	if r.Key != nil {
		key = r.Key(cluster)
	}
	return objectID{ObjectRef{Kind: r.Kind.Kind, Namespace: key.Namespace, Name: key.Name}, true}
}

func (r *ReadyObject) kind(namespace string) kind {
	return kind{
		gvk:       r.Kind,
		namespace: namespace,
		calls:     "ReadyObject.Ready",
		ready:     true,
		project: func(object client.Object) any {
			u, err := r.unstructured(object)
			return verdict{ready: err == nil && r.Ready(u), labels: object.GetLabels()}
		},
	}
}

// unstructured returns an object as Ready receives it. Those of some kinds are
// read as objects of a Go type.
func (r *ReadyObject) unstructured(object client.Object) (*unstructured.Unstructured, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	u := &unstructured.Unstructured{Object: content}
	if err == nil {
		u.SetGroupVersionKind(r.Kind)
	}
	return u, err
}

// verdict is what is kept of a ReadyObject.
type verdict struct {
	ready  bool
	labels map[string]string
}
