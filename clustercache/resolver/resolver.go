// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster identifies a cluster. The zero key is the hub itself: the cluster the
// operator runs in. The convention defines the meaning of namespace and name;
// the table in the package documentation lists it for each constructor.
type Cluster = client.ObjectKey

// Resolver returns how to reach a cluster.
type Resolver interface {
	// Resolve returns the access to the cluster at this time. An error that
	// [errors.Is] [ErrNoAccess] means "not yet": the cluster should not be
	// dialed, and querying again later needs no growing back-off. Any other
	// error concerns an existing description: a reader that is already
	// connected keeps its old access and reports the error.
	//
	// Resolve is safe for concurrent use. It may block for as long as ctx
	// allows.
	Resolve(ctx context.Context, cluster Cluster) (Access, error)
}

// Notifier is implemented by resolvers that can report when an answer may have
// changed.
type Notifier interface {
	// Notify blocks until ctx ends, and then returns nil. It calls changed
	// whenever the answer for a cluster may have changed, including when a
	// cluster appears, disappears, or becomes ready.
	//
	// Every change after the call of Notify is reported. Reports are
	// level-triggered hints: they are coalesced per cluster, some are spurious
	// (each call begins with one for every known cluster), and an answer with
	// the same [Access.Revision] as before means that there is nothing to do.
	// changed is called from one goroutine at a time; while it blocks, further
	// reports to it wait and coalesce, and other subscribers are not affected.
	//
	// An error returned before ctx ended means that there will be no reports at
	// all.
	Notify(ctx context.Context, changed func(Cluster)) error
}

// Lister is implemented by resolvers that know which clusters exist.
type Lister interface {
	// Clusters returns the known clusters in a stable order, including those
	// whose access is refused or not available yet. It never returns part of
	// the answer: either all clusters, or an error.
	Clusters(ctx context.Context) ([]Cluster, error)
}

// AsNotifier returns r as a [Notifier], or nil if it reports no change. all
// reports whether it reports every change: of a [Chain], only some members may,
// and the others have to be queried from time to time. Callers use it instead
// of a type assertion, which succeeds for every chain and selection.
func AsNotifier(r Resolver) (n Notifier, all bool) {
	switch r := r.(type) {
	case *ChainResolver:
		return r.asNotifier()
	case *SelectResolver:
		if of, all := AsNotifier(r.of); of != nil {
			return r, all
		}
		return nil, false
	}

	n, all = r.(Notifier)
	return n, all
}

// AsLister returns r as a [Lister], if it, or any member of a [Chain], is one.
// Callers use it instead of a type assertion, which succeeds for every chain
// and selection.
func AsLister(r Resolver) (Lister, bool) {
	switch r := r.(type) {
	case *ChainResolver:
		return r.asLister()
	case *SelectResolver:
		_, ok := AsLister(r.of)
		return r, ok
	}

	l, ok := r.(Lister)
	return l, ok
}

// Func is a function that is a [Resolver].
type Func func(ctx context.Context, cluster Cluster) (Access, error)

var _ Resolver = Func(nil)

// Resolve calls f.
func (f Func) Resolve(ctx context.Context, cluster Cluster) (Access, error) {
	return f(ctx, cluster)
}

// ObjectRef names an object that an answer came from. It is comparable.
type ObjectRef struct {
	// Kind is the object's kind, such as Secret; it is File for a file and
	// Environment for the in-cluster environment.
	Kind string
	// Namespace is empty for cluster-scoped objects and files.
	Namespace string
	// Name is the object's name or the file's path.
	Name string
}

// String returns "Kind namespace/name".
func (r ObjectRef) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

func secretRef(key client.ObjectKey) ObjectRef {
	return ObjectRef{Kind: kindSecret, Namespace: key.Namespace, Name: key.Name}
}

const (
	kindSecret    = "Secret"
	kindConfigMap = "ConfigMap"
	kindFile      = "File"
)
