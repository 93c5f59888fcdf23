// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetcache/fleetcache/internal/identity"
)

// Epoch identifies a cluster's history: resourceVersions are comparable only
// within one epoch.
type Epoch = identity.Epoch

// Request describes one list page or one watch.
type Request struct {
	// Key identifies the cluster, the resource and the selection.
	Key Key
	// Epoch is the last result of Ready. A source that knows of a newer epoch
	// returns [ErrEpochChanged] and sends nothing.
	Epoch Epoch
	// Options are passed to the server; their selectors are those of the key.
	Options metav1.ListOptions
	// MetadataOnly reports that only the objects' metadata will be read. A
	// source that cannot request metadata alone returns whole objects.
	MetadataOnly bool

	question bool // whether the server would accept the watch, which is ended before it carries anything
}

// Source opens lists and watches. [FromREST] reads an API server's own bytes,
// which is fastest; [FromDynamic] reads through any dynamic client. A source is
// called from many goroutines; each call must return soon after its ctx ends.
type Source interface {
	// Ready returns the epoch of the cluster. It blocks while the cluster
	// cannot be contacted yet: the informer's own goroutine waits in this call,
	// so that nothing polls. An error is shown in Status and retried with
	// back-off.
	Ready(ctx context.Context, cluster types.NamespacedName) (Epoch, error)
	// List returns the JSON body of one page. Errors that the server returned
	// satisfy the predicates of k8s.io/apimachinery/pkg/api/errors.
	List(ctx context.Context, r Request) (io.ReadCloser, error)
	// Watch returns the JSON frames of one watch. The body ends when ctx does.
	Watch(ctx context.Context, r Request) (io.ReadCloser, error)
}

// KindSource is implemented by sources that know the kind of a resource.
// Informers whose [Key] has no kind query it.
type KindSource interface {
	// KindOf returns the kind of the request's resource, or the empty string if
	// the source does not know it; the informer then lists the resource and
	// takes the kind of that list.
	KindOf(ctx context.Context, r Request) (string, error)
}

// Discoverer is implemented by sources that can query a server for the
// resources it serves. Without it an informer keeps its objects for as long as
// the server does not serve the resource. With it, the objects are deleted once
// discovery lacks the resource and the CustomResourceDefinition is gone that
// defined it. Lists of CustomResourceDefinitions show that: the source is asked
// for one by its name (a field selector, metadata alone) once the resource is
// served, and again while it is not. Where they are forbidden, and for resources
// of aggregated APIs and of Kubernetes itself, which have no such definition,
// the objects are kept.
type Discoverer interface {
	// Discover queries the server again, over the connection that lists and
	// watches use, for the resource of the request. An error means that there
	// was no reliable answer.
	Discover(ctx context.Context, r Request) (Discovery, error)
}

// Discovery is a server's description of a resource.
type Discovery struct {
	// Served reports whether the resource is served in the requested version.
	Served bool
	// Versions are the other versions of its group in which the resource is
	// served.
	Versions []string
}
