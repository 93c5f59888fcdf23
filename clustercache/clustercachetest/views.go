// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// Stale stops the time for whoever watches the kinds, or any kind if none is
// named: watches stay open and tell of nothing newer than now, and new ones
// begin with how things are now. Live reads and writes go through, so that
// cached reads fall behind them. fresh ends that: what was held back arrives,
// in order.
//
// Kinds are named by objects, as where they are watched. A kind that is stale
// already stays as it is.
func (c *Cluster) Stale(kinds ...client.Object) (fresh func()) {
	c.fleet.t.Helper()
	match := c.match(kinds)
	c.server.Freeze(match)
	return func() { c.server.Thaw(match, false) }
}

// Skip has whoever watches the kinds, or any kind if none is named, miss what
// happens during change: they see how things are after it, and nothing of what
// was in between. An object that was deleted and created again is another one
// then, and one that was created and deleted was never there.
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
