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
// inside one epoch.
type Epoch string

// Request is one list page or one watch.
type Request struct {
	// Key says of what.
	Key Key
	// Epoch is what Ready answered last. A source that knows better answers
	// [ErrEpochChanged] and sends nothing.
	Epoch Epoch
	// Options are passed to the server; selectors in it are already those of
	// the key.
	Options metav1.ListOptions
	// MetadataOnly says that nothing but the objects' metadata will be read. A
	// source that cannot ask for less answers with all.
	MetadataOnly bool
}

// Source is where lists and watches come from. [FromREST] reads an API server's
// own bytes, the fast way; [FromDynamic] reads through any dynamic client. A
// source is called from many goroutines; each call must end soon after its ctx.
type Source interface {
	// Ready returns the epoch of the cluster, and blocks while the cluster
	// cannot be contacted yet: the informer's own goroutine waits there, so
	// that nothing polls. An error is shown in Status and retried with
	// back-off.
	Ready(ctx context.Context, cluster types.NamespacedName) (Epoch, error)
	// List returns the JSON body of one page. Errors the server answered
	// satisfy the predicates of k8s.io/apimachinery/pkg/api/errors.
	List(ctx context.Context, r Request) (io.ReadCloser, error)
	// Watch returns the JSON frames of one watch. The body ends when ctx does.
	Watch(ctx context.Context, r Request) (io.ReadCloser, error)
}
