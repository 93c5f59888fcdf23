// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package owning_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/resolver/settable"
	"github.com/fleetcache/fleetcache/internal/fleettest"
)

// TestHazardRelabeledClustersThatReplicasShare: a cluster is watched where it is
// owned and its labels match, whichever comes first. One that another replica
// owns costs nothing here. What is gained while its labels match is delivered,
// and what changes its labels while another replica has it is not.
func TestHazardRelabeledClustersThatReplicasShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, sharding := settable.New(), clustercachetest.NewSharding()
		fleet.Synced()
		o := fleettest.Silent(fleet)
		o.Discover, o.Sharding = true, sharding
		cc := fleettest.Start(t, o)
		api := fleettest.NewAPI(t, "uid-a")
		api.Put("one", "1", nil)
		set := func(env string) {
			access, err := resolver.NewAccess(api.Config())
			fleet.Set(keyA, access.WithLabels(map[string]string{"env": env}), err)
			time.Sleep(time.Minute)
		}
		prod := labels.SelectorFromSet(labels.Set{"env": "prod"})
		objects := fleettest.FollowObjects(t, cc, events.Selection{
			Kinds:           fleettest.ConfigMaps,
			ClusterSelector: prod,
			Watch:           true,
			Owned:           true,
		})
		q := fleettest.QueueOf[string](t)
		s := controller.ClusterSource(cc, func(_ context.Context, e events.Cluster) []string {
			return []string{string(e.Type)}
		}, controller.ClusterSourceOptions{
			ClusterSelector: prod,
			Types:           []events.ClusterType{events.Gained},
		})
		require.NoError(t, s.Start(t.Context(), q))
		defer s.Stop()
		gained := func() int {
			synctest.Wait()
			n := q.Len()
			for range n {
				r, _ := q.Get()
				q.Done(r)
			}
			return n
		}

		set("prod")
		require.Zero(t, api.Dialled(), "another replica's")
		sharding.Gain(keyA)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"Added one"}, objects.Take())
		require.Equal(t, 1, gained(), "before its labels were known")

		set("dev")
		require.Empty(t, watchesOf(t, cc, keyA))
		set("prod")
		require.Equal(t, []string{"Added one"}, objects.Take())
		gained()

		sharding.Lose(keyA)
		sharding.Cool(keyA)
		set("dev")
		set("prod")
		require.Zero(t, api.WatchingNow(fleettest.PathOf("ConfigMap")))
		require.Empty(t, objects.Take())
		require.Zero(t, gained())
		set("dev")
		sharding.Gain(keyA)
		time.Sleep(time.Minute)
		require.Empty(t, watchesOf(t, cc, keyA), "owned, and not selected")
		gained()
		set("prod")
		require.Equal(t, []string{"Added one"}, objects.Take())
		require.Equal(t, 1, gained())
	})
}
