// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// Replica is the state that a handler knows from events alone: the
// resourceVersion of each object, by kind, name and UID.
type Replica map[string]string

// IdentityOf returns the key of an object in a Replica.
func IdentityOf(kind string, o client.Object) string {
	return kind + " " + o.GetName() + " " + string(o.GetUID())
}

// Apply applies an event. An added object must be absent before, a changed or
// deleted one present.
func (known Replica) Apply(t *testing.T, e events.Object) {
	t.Helper()
	id := IdentityOf(e.GVK.Kind, e.Object())
	_, there := known[id]
	require.Equal(t, e.Type != informerpool.Added, there, "%s %s", e.Type, id)
	if e.Type == informerpool.Deleted {
		delete(known, id)
		return
	}
	known[id] = e.Object().GetResourceVersion()
}

// Follow applies events until the known state equals that of a cluster.
func (known Replica) Follow(t *testing.T, objects *ObjectLog, c *testenv.Cluster) {
	t.Helper()
	want := Replica{}
	for _, gvk := range ThreeKinds {
		list := ListOf(gvk)
		require.NoError(t, c.Client().List(t.Context(), list, client.InNamespace("default"),
			client.MatchingLabels{"ours": "yes"}))
		for i := range list.Items {
			want[IdentityOf(gvk.Kind, &list.Items[i])] = list.Items[i].GetResourceVersion()
		}
	}
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for !maps.Equal(known, want) {
		select {
		case e := <-objects.Events:
			known.Apply(t, e)
		case <-limit.C:
			require.Equal(t, want, known)
		}
	}
}
