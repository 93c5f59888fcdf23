// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// Stale freezes the view of all watches of the kinds, or of any kind if none is
// named: they stay open and deliver nothing newer than now, and new ones begin
// with the current state. Live reads and writes are not affected, so cached
// reads fall behind them. fresh ends that: the delayed events arrive, in order.
//
// Kinds are named by objects, as when they are watched. A kind that is already
// stale keeps its view.
func (c *Cluster) Stale(kinds ...client.Object) (fresh func()) {
	c.fleet.t.Helper()
	match := c.match(kinds)
	c.server.Freeze(match)
	return func() { c.server.Thaw(match, false) }
}

// Skip makes all watches of the kinds, or of any kind if none is named, miss
// the events of change: they see the state after it, and nothing of the states
// in between. An object that was deleted and created again appears as another
// object, and one that was created and deleted never appears.
func (c *Cluster) Skip(change func(), kinds ...client.Object) {
	c.fleet.t.Helper()
	match := c.match(kinds)
	c.server.Freeze(match)
	defer c.server.Thaw(match, true)
	change()
}

// match selects kinds.
func (c *Cluster) match(kinds []client.Object) func(*fakeapi.Kind) bool {
	c.fleet.t.Helper()
	wanted := map[schema.GroupKind]bool{}
	for _, obj := range kinds {
		gvk, err := apiutil.GVKForObject(obj, c.fleet.scheme)
		if err != nil {
			c.fleet.t.Fatalf("clustercachetest: %v", err)
		}
		wanted[gvk.GroupKind()] = true
	}

	return func(k *fakeapi.Kind) bool {
		return len(wanted) == 0 || wanted[schema.GroupKind{Group: k.Group, Kind: k.Kind}]
	}
}
