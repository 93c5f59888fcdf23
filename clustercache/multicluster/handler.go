// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster

import (
	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/misfit"
)

// handler calls a handler written for client-go, with objects in the
// representation that its informer was requested for.
type handler struct {
	to             toolscache.ResourceEventHandler
	representation representation
	cluster        string
	log            logr.Logger
	misfits        *misfit.Log
	replayed       func()
	gone           func() bool // reports whether the cluster was removed
}

var _ informerpool.ReplayHandler = (*handler)(nil)

// Brief implements informerpool.BriefHandler. A client of controller-runtime
// with read-your-writes consistency waits for the event of each delete.
func (*handler) Brief() bool { return true }

// Replayed implements informerpool.ReplayHandler.
func (h *handler) Replayed(informerpool.Key) { h.replayed() }

// Handle implements informerpool.Handler. The objects are decoded for this
// handler only.
func (h *handler) Handle(e informerpool.Event) {
	if e.Type == informerpool.Deleted && (e.Evicted || h.gone()) {
		return // its objects were not deleted: the cluster was removed, and the engagement ends
	}
	before, after := h.decode(e.Old), h.decode(e.New)
	switch {
	case e.Type == informerpool.Deleted && before != nil:
		if e.FinalStateUnknown {
			h.to.OnDelete(toolscache.DeletedFinalStateUnknown{Key: keyOf(before), Obj: before})
		} else {
			h.to.OnDelete(before)
		}
	case after == nil:
	case before == nil: // added, or the previous state does not fit the type
		h.to.OnAdd(after, e.Initial)
	default:
		h.to.OnUpdate(before, after)
	}
}

// decode returns nil for nil, and for an object that does not fit the type:
// there is no caller to return the error to. The log has one line for each
// object and cause.
func (h *handler) decode(o *informerpool.Object) client.Object {
	if o == nil {
		return nil
	}
	out, err := h.representation.decode(o)
	if err == nil {
		return out
	}
	if h.misfits.First(h.cluster, err) {
		h.log.Error(err, "Object cannot be decoded", "cluster", h.cluster, "kind", h.representation.gvk.Kind,
			"type", h.representation.typ.String(), "object", client.ObjectKeyFromObject(o).String())
	}
	return nil
}

// keyOf returns the key that client-go's stores use for an object: without a
// slash if it has no namespace.
func keyOf(o client.Object) string { return toolscache.MetaObjectToName(o).String() }
