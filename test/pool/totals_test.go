// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package pool_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/pooltest"
)

// TestTotalsNeverGoDown: counters that are exported must not shrink when an
// informer ends.
func TestTotalsNeverGoDown(t *testing.T) {
	var listed []time.Duration
	var told []informerpool.Key
	pooltest.Bubble(t, func(o *informerpool.Options) {
		o.Linger = -1
		o.OnListed = func(k informerpool.Key, took time.Duration) {
			told, listed = append(told, k), append(listed, took)
		}
	}, func(t *testing.T, _ *pooltest.Server, p *informerpool.Pool) {
		require.Zero(t, p.Totals())
		require.Zero(t, p.ClusterTotals(pooltest.Everything.Cluster))
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		pooltest.After(10 * time.Minute) // the server sends nothing: streams stall
		synctest.Wait()
		status := l.Status()
		require.Positive(t, status.Stalls)
		require.Equal(t, []informerpool.Key{pooltest.Everything}, told)
		before := p.ClusterTotals(pooltest.Everything.Cluster)
		require.Equal(t, informerpool.Totals{
			Lists: status.Lists, Watches: status.Watches, Resumes: status.Resumes, Resyncs: status.Resyncs,
			Stalls: status.Stalls, Rejected: status.Rejected,
		}, before)
		l.Release()
		synctest.Wait()
		require.Empty(t, p.Status())
		require.GreaterOrEqual(t, p.ClusterTotals(pooltest.Everything.Cluster).Watches, before.Watches)
		require.Equal(t, before.Stalls, p.Totals().Stalls)
		pooltest.AcquireSynced(t, p, pooltest.Everything)
		synctest.Wait()
		require.Greater(t, p.Totals().Watches, before.Watches)
		require.Len(t, listed, 2)
	})
}

// TestForgottenClusterLeavesNothingButItsTotals: clusters that come and go must
// not accumulate.
func TestForgottenClusterLeavesNothingButItsTotals(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.Linger = time.Minute }, func(t *testing.T, _ *pooltest.Server,
		p *informerpool.Pool) {
		l := pooltest.AcquireSynced(t, p, pooltest.Everything)
		p.Forget(pooltest.Everything.Cluster) // takes effect only after it is no longer in use and has lingered
		l.Release()
		require.Positive(t, p.ClusterTotals(pooltest.Everything.Cluster).Watches)
		before := p.Totals()
		pooltest.After(2 * time.Minute)
		require.Zero(t, p.ClusterTotals(pooltest.Everything.Cluster))
		require.Equal(t, before, p.Totals())

		pooltest.AcquireSynced(t, p, pooltest.Everything).Release()
		pooltest.After(2 * time.Minute)
		require.Positive(t, p.ClusterTotals(pooltest.Everything.Cluster).Watches, "it was not forgotten again")
		p.Forget(pooltest.Everything.Cluster)
		require.Zero(t, p.ClusterTotals(pooltest.Everything.Cluster))
		require.Greater(t, p.Totals().Watches, before.Watches)
	})
}

// TestClusterSummaryIsTheSumOfItsInformers: neither other clusters nor released
// leases count.
func TestClusterSummaryIsTheSumOfItsInformers(t *testing.T) {
	pooltest.Bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, _ *pooltest.Server,
		p *informerpool.Pool) {
		other := pooltest.Everything
		other.Cluster.Name = "other"
		narrow := pooltest.Everything
		narrow.LabelSelector = "app=x"
		require.Zero(t, p.ClusterSummary(pooltest.Everything.Cluster))
		thin := pooltest.AcquireSynced(t, p, narrow)
		wide := pooltest.AcquireSynced(t, p, pooltest.Everything)
		pooltest.AcquireSynced(t, p, other)
		pooltest.After(time.Minute)
		var want informerpool.Summary
		for _, i := range p.ClusterStatus(pooltest.Everything.Cluster) {
			require.Equal(t, pooltest.Everything.Cluster, i.Key.Cluster)
			want.Informers++
			want.Synced++
			want.Leases += i.Leases
			want.Objects += i.Objects
			want.Bytes += i.Bytes
			if i.LastEvent.After(want.LastEvent) {
				want.LastEvent = i.LastEvent
			}
			if want.OldestSeen.IsZero() || i.LastSeen.Before(want.OldestSeen) {
				want.OldestSeen = i.LastSeen
			}
		}
		want.Totals = p.ClusterTotals(pooltest.Everything.Cluster)
		require.Equal(t, 2, want.Informers)
		require.Equal(t, want, p.ClusterSummary(pooltest.Everything.Cluster))
		require.Len(t, p.Status(), 3)

		thin.Release()
		wide.Release()
		require.Zero(t, p.ClusterSummary(pooltest.Everything.Cluster).Informers)
		require.Empty(t, p.ClusterStatus(pooltest.Everything.Cluster))
		require.Equal(t, 1, p.ClusterSummary(other.Cluster).Informers)
	})
}
