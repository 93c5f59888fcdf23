// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"context"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Epoch identifies a cluster's history: resourceVersions are comparable only
// within one epoch.
type Epoch string

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
