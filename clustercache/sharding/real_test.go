// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/internal/testenv"
)

// TestGroupOnARealHub has three replicas with the permissions that New
// documents, of which one is killed and one closed. Its bounds are for a slow
// machine: TestKilledReplicaIsReplacedWithin20Seconds proves those promised.
func TestGroupOnARealHub(t *testing.T) {
	t.Parallel() // it mostly waits
	hub := testenv.Start(t, 1)[0]
	user, err := hub.AddUser(t.Context(), "operator", rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"},
		Resources: []string{"leases"},
		Verbs:     []string{"list", "watch", "create", "update", "patch", "delete"},
	})
	require.NoError(t, err)
	g := newGroup(t, 300)
	g.config = user.Config()
	defer g.stop()
	g.start(3)
	require.Eventually(t, func() bool { // the first one that is settled may have all for a while
		counts, without := g.owned()
		return without == 0 && counts[0] > 0
	}, 100*time.Second, 100*time.Millisecond)

	killed := time.Now()
	g.replicas[0].cut.Store(true)
	require.Eventually(t, func() bool {
		counts, without := g.owned()
		return without == 0 && counts[0] == 0
	}, 100*time.Second, 100*time.Millisecond)
	require.Greater(t, time.Since(killed), 10*time.Second)

	require.NoError(t, g.replicas[1].Close(t.Context()))
	g.waitOwned(10 * time.Second)
	g.replicas[1].wg.Wait()
	require.NoError(t, g.replicas[1].err)
	counts, _ := g.owned()
	require.Equal(t, 300, counts[2])

	// What people see with kubectl.
	var leases coordinationv1.LeaseList
	require.NoError(t, hub.Client().List(t.Context(), &leases, client.InNamespace("default"),
		client.MatchingLabels{"fleetcache.github.io/sharding": "operator"}))
	require.Len(t, leases.Items, 1+1+64, "the group, one member, the slots")
}

// TestReplicaWithoutAPermissionNamesItsVerb has replicas that may do all but
// one thing. They fail before they have joined.
func TestReplicaWithoutAPermissionNamesItsVerb(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t, 1)[0]
	verbs := []string{"list", "watch", "create", "update", "patch", "delete"}
	for i, verb := range verbs {
		user, err := hub.AddUser(t.Context(), "without-"+verb, rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"},
			Resources: []string{"leases"},
			Verbs:     slices.Delete(slices.Clone(verbs), i, i+1),
		})
		require.NoError(t, err)
		s, err := sharding.New(user.Config(), sharding.Options{
			Namespace: "default",
			Name:      "operator",
			Identity:  "without-" + verb,
		})
		require.NoError(t, err)

		denied := &sharding.PermissionError{}
		require.ErrorAs(t, s.Start(t.Context()), &denied)
		require.Equal(t, &sharding.PermissionError{Namespace: "default", Verbs: []string{verb}}, denied)
		require.ErrorContains(t, denied, "not permitted to "+verb+" leases")
	}

	var leases coordinationv1.LeaseList
	require.NoError(t, hub.Client().List(t.Context(), &leases, client.InNamespace("default")))
	require.Empty(t, leases.Items)
}
