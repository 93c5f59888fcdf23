// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package packedlist is what the readers of a ClusterCache offer to the other
// packages of this module: lists that are not decoded.
package packedlist

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Lister lists the packed objects of one cluster. Every result of
// Cluster.Reader is one.
type Lister interface {
	// ListPacked is the List of the reader without the decoding: it takes the
	// same options, answers from the same places, and fails with the same
	// errors. The slice belongs to the caller; the objects are shared and
	// read-only. Of a kind that is given as metadata, objects that the API
	// server returns have no more than that.
	//
	// Where the API server would have to be queried, ListPacked does so if live
	// is set. Otherwise it does no I/O, and the second result is true.
	ListPacked(
		ctx context.Context, kind client.Object, live bool, opts ...client.ListOption,
	) ([]*informerpool.Object, bool, error)
	// Decode decodes a packed object, as reads do. The caller owns the result.
	Decode(o *informerpool.Object, dst client.Object) error
}
