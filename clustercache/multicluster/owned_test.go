// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package multicluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/clustercachetest"
	"github.com/fleetcache/fleetcache/clustercache/multicluster"
)

// newOwnedFleet returns a fleet of a and b, of which the replica owns nothing
// yet.
func newOwnedFleet(t *testing.T) (*fleet, *clustercachetest.Sharding) {
	t.Helper()
	s := clustercachetest.NewSharding()
	f := newFleet(t, multicluster.Options{}, func(o *clustercache.Options) { o.Sharding = s })
	f.add("a")
	f.add("b")
	time.Sleep(time.Second)
	return f, s
}

func TestProviderEngagesWhatItsReplicaOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newOwnedFleet(t)
		p := newProvider(f, multicluster.ProviderOptions{})
		to, made := calls()
		engage(t, p, to)
		s.StandBy(key("a"))
		s.Gain(key("b"))
		time.Sleep(time.Second)
		first := next(t, made)
		require.Equal(t, clusterName("fleet/b"), first.name)
		require.Empty(t, made)
		require.Equal(t, key("b"), p.Key(first.name))
		nameless := newProvider(f, multicluster.ProviderOptions{Names: multicluster.Names{
			Name: func(client.ObjectKey) string { return "" },
			Key:  func(string) (client.ObjectKey, bool) { return key("b"), false },
		}})
		require.Zero(t, nameless.Key(first.name))
		_, err := p.Get(t.Context(), "fleet/a")
		require.ErrorIs(t, err, errNotFound, "its requests are dropped")
		require.ErrorIs(t, err, clustercache.ErrNotOwner)
		require.NoError(t, first.cl.GetClient().Create(t.Context(), f.apis["b"].configMap("x", "1", nil)))

		s.Drain(key("b"), time.Minute)
		next(t, first.ctx.Done())
		s.Lose(key("b"))
		_, err = p.Get(t.Context(), "fleet/b")
		require.ErrorIs(t, err, errNotFound)
		before := len(f.apis["b"].Requests())
		err = first.cl.GetClient().Create(t.Context(), f.apis["b"].configMap("y", "1", nil))
		require.ErrorIs(t, err, clustercache.ErrNotOwner)
		require.Len(t, f.apis["b"].Requests(), before, "nothing was sent")

		s.Gain(key("a"))
		require.Equal(t, clusterName("fleet/a"), next(t, made).name)
		s.Gain(key("b"))
		second := next(t, made)
		require.Equal(t, clusterName("fleet/b"), second.name)
		require.NotSame(t, first.cl, second.cl)
	})
}

// TestClusterThatIsLostAndGainedAtOnceIsEngagedAgain: requests of the time
// between were dropped.
func TestClusterThatIsLostAndGainedAtOnceIsEngagedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newOwnedFleet(t)
		to, made := calls()
		engage(t, newProvider(f, multicluster.ProviderOptions{}), to)
		s.Gain(key("a"))
		first := next(t, made)
		for range 20 {
			s.Lose(key("a"))
			s.Gain(key("a"))
			second := next(t, made)
			next(t, first.ctx.Done())
			first = second
			time.Sleep(time.Second)
			require.Empty(t, made)
			require.NoError(t, first.ctx.Err())
		}
	})
}

// TestHazardRequestOfAProviderIsDroppedInALapse: the lease ended by the clock, and
// was renewed too late, before or after the provider noticed. The cluster is
// engaged again, so that its controllers have all objects.
func TestHazardRequestOfAProviderIsDroppedInALapse(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"at once": 0, "noticed": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, s := newOwnedFleet(t)
				p := newProvider(f, multicluster.ProviderOptions{})
				to, made := calls()
				engage(t, p, to)
				s.Gain(key("a"))
				first := next(t, made)
				time.Sleep(time.Minute)

				s.SetUntil(key("a"), time.Now())
				_, err := p.Get(t.Context(), first.name)
				require.ErrorIs(t, err, errNotFound, "its request is dropped")
				time.Sleep(lasts)
				s.SetUntil(key("a"), time.Time{})
				second := next(t, made)
				next(t, first.ctx.Done())
				time.Sleep(time.Minute)
				require.NoError(t, second.ctx.Err())
				require.Empty(t, made)
			})
		})
	}
}

// TestControllersReconcileOwnedClustersAlone has one that
// multicluster-runtime's provider would engage clusters with.
func TestControllersReconcileOwnedClustersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newOwnedFleet(t)
		told := &records{}
		c := newSerialController(&corev1.ConfigMap{}, told.handler)
		engage(t, newProvider(f, multicluster.ProviderOptions{}), c)
		s.Gain(key("a"))
		time.Sleep(time.Second)
		require.Len(t, told.get("fleet/a").take(), 2)
		require.Empty(t, told.get("fleet/b").take())
		s.Lose(key("a"))
		time.Sleep(time.Second)
		f.apis["a"].put("more", "1")
		time.Sleep(time.Second)
		require.Empty(t, told.get("fleet/a").take())
		s.Gain(key("a"))
		time.Sleep(time.Second)
		require.Len(t, told.get("fleet/a").take(), 3)
	})
}
