// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/sharding"
)

func TestReplicasThatStartShareEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		defer g.stop()
		g.start(3)
		g.waitOwned(10 * time.Second)
		time.Sleep(10 * time.Second)

		counts, _ := g.owned()
		for _, n := range counts {
			require.InDelta(t, 100, n, 15)
		}
		require.False(t, g.replicas[0].NeedLeaderElection())
	})
}

func TestKilledReplicaIsReplacedWithin20Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		defer g.stop()
		g.start(3)
		g.waitOwned(10 * time.Second)
		time.Sleep(time.Minute) // the first one that is settled may have all for a while
		counts, _ := g.owned()
		require.Positive(t, counts[1])

		g.replicas[1].cut.Store(true)
		time.Sleep(11 * time.Second)
		_, without := g.owned()
		require.Positive(t, without)
		g.waitOwned(9 * time.Second)
		counts, _ = g.owned()
		require.Zero(t, counts[1])
	})
}

func TestClosedReplicaHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		defer g.stop()
		g.start(3)
		g.waitOwned(10 * time.Second)

		require.NoError(t, g.replicas[1].Close(t.Context()))
		require.NoError(t, g.replicas[1].Close(t.Context()))
		require.Less(t, g.waitOwned(time.Second), time.Second)
		g.replicas[1].wg.Wait()
		require.NoError(t, g.replicas[1].err)
		require.ErrorIs(t, g.replicas[1].Start(t.Context()), sharding.ErrStarted)
	})
}

// TestSteadyStateIsOneWritePerReplicaAndTwoSeconds also sees that nothing else
// is requested.
func TestSteadyStateIsOneWritePerReplicaAndTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 10_000)
		defer g.stop()
		g.start(10)
		g.waitOwned(10 * time.Second)
		time.Sleep(time.Minute)
		before := make([]int64, len(g.replicas))
		for i, r := range g.replicas {
			before[i] = r.writes.Load()
			require.EqualValues(t, 1, r.others.Load(), "lists")
		}

		time.Sleep(time.Minute)
		for i, r := range g.replicas {
			require.InDelta(t, 30, r.writes.Load()-before[i], 1)
			require.EqualValues(t, 1, r.others.Load(), "lists")
		}
	})
}

func TestRollingRestartOfOneReplicaTakesFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1_000)
		g.options.Slots = 256
		defer g.stop()
		g.start(10)
		g.waitOwned(10 * time.Second)
		time.Sleep(time.Minute)
		sum := func() (writes int64) {
			for _, r := range g.replicas {
				writes += r.writes.Load()
			}
			return writes
		}
		before, begin := sum(), time.Now()
		require.NoError(t, g.replicas[3].Close(t.Context()))
		time.Sleep(5 * time.Second)
		g.start(1)
		time.Sleep(15 * time.Second)
		g.waitOwned(time.Second)

		renewals := int64(10 * time.Since(begin) / sharding.DefaultRenewInterval)
		require.LessOrEqual(t, sum()-before, int64(600))
		require.Less(t, sum()-before-renewals, int64(200))
	})
}

func TestNothingIsOwnedWhileTheHubIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 300)
		defer g.stop()
		g.start(3)
		g.waitOwned(10 * time.Second)
		time.Sleep(5 * time.Second)
		before, _ := g.owned()
		cluster := ownedBy(t, g.replicas[0], g)
		ctx, cancel, err := g.replicas[0].Context(t.Context(), cluster)
		require.NoError(t, err)
		defer cancel()

		g.away.Store(true)
		time.Sleep(11 * time.Second)
		_, without := g.owned()
		require.Equal(t, 300, without)
		require.ErrorIs(t, context.Cause(ctx), sharding.ErrNotOwner)
		time.Sleep(5 * time.Minute)

		g.away.Store(false)
		g.waitOwned(20 * time.Second)
		time.Sleep(20 * time.Second)
		after, _ := g.owned()
		require.Equal(t, before, after)
	})
}

// ownedBy returns a cluster that r owns.
func ownedBy(t *testing.T, r *replica, g *group) client.ObjectKey {
	t.Helper()
	for _, c := range g.clusters {
		if r.Owns(c) {
			return c
		}
	}
	require.Fail(t, "owns nothing")
	return client.ObjectKey{}
}

func TestContextOfAWriteEndsWithTheOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 20)
		defer g.stop()
		a := g.start(1)[0]
		g.waitOwned(10 * time.Second)
		cluster := g.clusters[0]

		kept, cancel, err := a.Context(t.Context(), cluster)
		require.NoError(t, err)
		lease, ok := a.Lease(cluster)
		require.True(t, ok)
		require.Positive(t, lease.Token)
		require.Equal(t, a.Slot(cluster), lease.Slot)
		deadline, _ := kept.Deadline()
		require.True(t, deadline.Equal(lease.Until))
		cancel()
		require.ErrorIs(t, context.Cause(kept), context.Canceled)

		// Renewals do not extend it.
		kept, cancel, err = a.Context(t.Context(), cluster)
		require.NoError(t, err)
		defer cancel()
		time.Sleep(11 * time.Second)
		require.True(t, a.Owns(cluster))
		require.ErrorIs(t, context.Cause(kept), sharding.ErrNotOwner)

		// The loss of the slot ends it at once.
		kept, cancel, err = a.Context(t.Context(), cluster)
		require.NoError(t, err)
		defer cancel()
		require.NoError(t, a.Close(t.Context()))
		synctest.Wait()
		require.ErrorIs(t, context.Cause(kept), sharding.ErrNotOwner)
		_, _, err = a.Context(t.Context(), cluster)
		require.ErrorIs(t, err, sharding.ErrNotOwner)
		var refused *sharding.NotOwnerError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, cluster, refused.Cluster)
		require.Contains(t, err.Error(), "fleet/c0")
	})
}

// TestOwnershipEndsByTheClockAlone has a Start that does not run: the process
// was stopped, and its other goroutines continue first.
func TestOwnershipEndsByTheClockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1)
		defer g.stop()
		a := g.start(1)[0]
		g.waitOwned(10 * time.Second)
		require.True(t, a.Owns(g.clusters[0]))

		a.Until(time.Now())
		require.False(t, a.Owns(g.clusters[0]))
		_, _, err := a.Context(t.Context(), g.clusters[0])
		require.ErrorIs(t, err, sharding.ErrNotOwner)
	})
}

// TestHazardMachineIsSuspended: the monotonic clock has stood still meanwhile, so
// it shows nothing. Times of a synctest bubble have no monotonic reading, so the
// time is real.
func TestHazardMachineIsSuspended(t *testing.T) {
	g := newGroup(t, 1)
	g.options.Slots, g.options.SettleTime = 1, -1
	defer g.stop()
	a := g.start(1)[0]
	var events diary
	a.Subscribe(events.note)
	g.waitOwned(time.Minute)
	write, cancel, err := a.Context(t.Context(), g.clusters[0])
	require.NoError(t, err)
	defer cancel()

	a.Suspend(3)
	require.True(t, a.Owns(g.clusters[0]))
	require.NoError(t, write.Err())

	a.Suspend(3600)
	require.Eventually(t, func() bool { return strings.HasPrefix(events.of(0), "Warm Gained Lost ") },
		8*time.Second, 10*time.Millisecond)
	<-write.Done()
	require.ErrorIs(t, context.Cause(write), sharding.ErrNotOwner)
	g.waitOwned(time.Minute) // by the next renewal
}

// TestHazardLeaseHasEndedByTheWallClock: readers compare with it, too, whether
// Start has noticed or not.
func TestHazardLeaseHasEndedByTheWallClock(t *testing.T) {
	g := newGroup(t, 1)
	g.options.SettleTime = -1
	a := g.start(1)[0]
	g.waitOwned(time.Minute)
	lease, ok := a.Lease(g.clusters[0])
	require.True(t, ok)
	require.NoError(t, a.Close(t.Context()))
	a.wg.Wait()

	a.Hold(g.clusters[0], lease.Until.Add(time.Hour))
	require.True(t, a.Owns(g.clusters[0]))
	a.Hold(g.clusters[0], sharding.Shifted(lease.Until.Add(time.Hour), -7200))
	require.False(t, a.Owns(g.clusters[0]))
	_, _, err := a.Context(t.Context(), g.clusters[0])
	require.ErrorIs(t, err, sharding.ErrNotOwner)
}

// TestOwnershipCountsFromWhenARenewalWasSent has answers that take 2.5 s.
func TestOwnershipCountsFromWhenARenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1)
		defer g.stop()
		a := g.start(1)[0]
		g.waitOwned(10 * time.Second)
		a.slow.Store(int64(2500 * time.Millisecond))
		time.Sleep(10 * time.Second)
		for range 600 {
			time.Sleep(50 * time.Millisecond)
			lease, ok := a.Lease(g.clusters[0])
			require.True(t, ok)
			require.LessOrEqual(t, time.Until(lease.Until), 7500*time.Millisecond)
		}
	})
}

func TestReplicaThatCannotLeaveSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 20)
		a := g.start(1)[0]
		g.waitOwned(10 * time.Second)
		a.cut.Store(true)
		require.NoError(t, a.Close(t.Context()))
		a.wg.Wait()
		require.ErrorIs(t, a.err, sharding.ErrNotLeft)
		require.False(t, a.Owns(g.clusters[0]))
	})
}

func TestClosedBeforeStartDoesNotStart(t *testing.T) {
	s, err := sharding.New(&rest.Config{Host: "http://hub"}, sharding.Options{
		Namespace: "default",
		Name:      "operator",
		Identity:  "a",
	})
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	require.ErrorIs(t, s.Start(t.Context()), sharding.ErrClosed)
	require.False(t, s.Owns(client.ObjectKey{Name: "c"}))
	require.False(t, s.StandsBy(client.ObjectKey{Name: "c"}))
}

func TestReplicaWithAnotherNumberOfSlotsDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 20)
		defer g.stop()
		g.start(1)
		g.waitOwned(10 * time.Second)
		g.options.Slots = 65
		b := g.start(1)[0]
		b.wg.Wait()
		var mismatch *sharding.GroupError
		require.ErrorAs(t, b.err, &mismatch)
		require.Equal(t, 64, mismatch.Slots)
		require.Contains(t, b.err.Error(), "operator has 64 slots")
		require.Contains(t, b.err.Error(), "stop all replicas, and delete that lease alone")
	})
}

// TestHazardTokensGoBackWithOtherSlots founds a group anew, as [GroupError] says:
// the clusters of a slot have been in others before, whose Leases are still
// there.
func TestHazardTokensGoBackWithOtherSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 40)
		defer g.stop()
		kube, err := kubernetes.NewForConfig(g.config)
		require.NoError(t, err)
		before := map[client.ObjectKey]int64{}
		for _, slots := range []int{8, 32, 1, 8} {
			g.options.Slots = slots
			for range 3 { // each has the clusters once
				g.start(1)
				g.waitOwned(10 * time.Second)
				for cluster, token := range g.tokens() {
					require.Greater(t, token, before[cluster], "%s, by %d slots", cluster, slots)
					before[cluster] = token
				}
				g.stop()
			}
			require.NoError(t, kube.CoordinationV1().Leases("default").Delete(t.Context(), "operator-sharding",
				metav1.DeleteOptions{}))
		}
	})
}

func TestInvalidOptionsAreNamed(t *testing.T) {
	for field, change := range map[string]func(*sharding.Options){
		"Namespace":     func(o *sharding.Options) { o.Namespace = "" },
		"Name":          func(o *sharding.Options) { o.Name = "a.b" },
		"Identity":      func(o *sharding.Options) { o.Identity = "A" },
		"Slots":         func(o *sharding.Options) { o.Slots = -1 },
		"RenewInterval": func(o *sharding.Options) { o.RenewInterval = -1 },
		"LeaseDuration": func(o *sharding.Options) { o.LeaseDuration = 9 * time.Second },
		"Standbys":      func(o *sharding.Options) { o.Standbys = -1 },
		"Weight":        func(o *sharding.Options) { o.Weight = -1 },
	} {
		o := sharding.Options{
			Namespace: "default",
			Name:      "operator",
			Identity:  "a",
		}
		_, err := sharding.New(&rest.Config{}, o)
		require.NoError(t, err)
		change(&o)
		_, err = sharding.New(&rest.Config{}, o)
		var invalid *sharding.OptionError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
}
