// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
)

// Owner returns an owner of a kind that no server has.
func Owner(name string) clustercache.Owner {
	return clustercache.Owner{
		GVK:       schema.GroupVersionKind{Group: "fleet.test", Version: "v1", Kind: "Rollout"},
		ObjectKey: client.ObjectKey{Namespace: "ns", Name: name},
	}
}

// Target returns the target for a kind of the core group in a cluster.
func Target(cluster, kind string, opts ...client.ListOption) clustercache.Target {
	return clustercache.Target{
		Cluster: Key(cluster), Kind: clustercache.Kind(schema.GroupVersionKind{Version: "v1", Kind: kind}),
		Options: opts,
	}
}

// NewFleet returns fake clusters named a, b, and so on, and a ClusterCache over
// them.
func NewFleet(t *testing.T, n int, edit func(*clustercache.Options)) (*clustercache.ClusterCache, []*API) {
	t.Helper()
	d := NewDirectory()
	var apis []*API
	for i := range n {
		api := NewAPI(t, fmt.Sprintf("uid-%d", i))
		api.Put("one", "1", nil)
		apis = append(apis, api)
		d.Set(Key(string(rune('a'+i))), api.Config())
	}
	o := Silent(d)
	if edit != nil {
		edit(&o)
	}
	return Start(t, o), apis
}

// Declare declares the targets of an owner.
func Declare(t *testing.T, cc *clustercache.ClusterCache, o clustercache.Owner,
	targets ...clustercache.Target) clustercache.Declaration {
	t.Helper()
	d, err := cc.Declare(t.Context(), o, targets...)
	require.NoError(t, err)
	return d
}

// KindsOf returns the cluster and kind of each use.
func KindsOf(uses []clustercache.Use) []string {
	var out []string
	for _, u := range uses {
		out = append(out, u.Key.Cluster.Name+"/"+u.Key.GVK.Kind)
	}
	return out
}
