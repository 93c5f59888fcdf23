// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
)

// Event is one change of one object of an entry. Changes that arrive while the
// handler is busy, or before it is tried again, are merged into one event,
// which leads from the state that the handler last accepted to the newest one.
type Event struct {
	// Entry is the name of the entry.
	Entry string
	// Cluster is the cluster of the object, and GVK its kind.
	Cluster client.ObjectKey
	GVK     schema.GroupVersionKind
	// Type determines which of Old and New are set.
	Type informerpool.EventType
	// Old is the state that the handler last accepted. It is set for Updated
	// and Deleted; for Deleted it may be one that the handler has received and
	// not accepted.
	Old *informerpool.Object
	// New is the current state. It is set for Added and Updated.
	New *informerpool.Object
	// Final is the last known state, which is Old or later. It is set for
	// Deleted.
	Final *informerpool.Object
	// Initial marks objects that existed when the entry began.
	Initial bool
	// Left marks a Deleted event of an object that left the set, and may exist
	// in its cluster: see Options.DeliverLeft.
	Left bool
	// Attempt counts the earlier calls with an event of this object, one after
	// the other, that returned an error.
	Attempt int
}

// Object returns the newest state that the event carries. It is shared and
// read-only; DeepCopyObject returns an unstructured copy that you may change,
// and Into decodes.
func (e Event) Object() *informerpool.Object {
	if e.New != nil {
		return e.New
	}
	return e.Final
}
