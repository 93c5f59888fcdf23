// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetcache/fleetcache/informerpool"
)

// TestTotalsNeverGoDown: counters that are exported must not shrink when an
// informer ends.
func TestTotalsNeverGoDown(t *testing.T) {
	var listed []time.Duration
	var told []informerpool.Key
	bubble(t, func(o *informerpool.Options) {
		o.Linger = -1
		o.OnListed = func(k informerpool.Key, took time.Duration) { told, listed = append(told, k), append(listed, took) }
	}, func(t *testing.T, _ *modelServer, p *informerpool.Pool) {
		require.Zero(t, p.Totals())
		require.Zero(t, p.ClusterTotals(everything.Cluster))
		l := acquireSynced(t, p, everything)
		after(10 * time.Minute) // the server sends nothing: streams stall
		synctest.Wait()
		status := l.Status()
		require.Positive(t, status.Stalls)
		require.Equal(t, []informerpool.Key{everything}, told)
		before := p.ClusterTotals(everything.Cluster)
		require.Equal(t, informerpool.Totals{
			Lists: status.Lists, Watches: status.Watches, Resumes: status.Resumes, Resyncs: status.Resyncs, Stalls: status.Stalls, Rejected: status.Rejected,
		}, before)
		l.Release()
		synctest.Wait()
		require.Empty(t, p.Status())
		require.GreaterOrEqual(t, p.ClusterTotals(everything.Cluster).Watches, before.Watches)
		require.Equal(t, before.Stalls, p.Totals().Stalls)
		acquireSynced(t, p, everything)
		synctest.Wait()
		require.Greater(t, p.Totals().Watches, before.Watches)
		require.Len(t, listed, 2)
	})
}

// TestForgottenClusterLeavesNothingButItsTotals: clusters that come and go must
// not accumulate.
func TestForgottenClusterLeavesNothingButItsTotals(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.Linger = time.Minute }, func(t *testing.T, _ *modelServer, p *informerpool.Pool) {
		l := acquireSynced(t, p, everything)
		p.Forget(everything.Cluster) // takes effect only after it is no longer in use and has lingered
		l.Release()
		require.Positive(t, p.ClusterTotals(everything.Cluster).Watches)
		before := p.Totals()
		after(2 * time.Minute)
		require.Zero(t, p.ClusterTotals(everything.Cluster))
		require.Equal(t, before, p.Totals())

		acquireSynced(t, p, everything).Release()
		after(2 * time.Minute)
		require.Positive(t, p.ClusterTotals(everything.Cluster).Watches, "it was not forgotten again")
		p.Forget(everything.Cluster)
		require.Zero(t, p.ClusterTotals(everything.Cluster))
		require.Greater(t, p.Totals().Watches, before.Watches)
	})
}

// TestClusterSummaryIsTheSumOfItsInformers: neither other clusters nor released
// leases count.
func TestClusterSummaryIsTheSumOfItsInformers(t *testing.T) {
	bubble(t, func(o *informerpool.Options) { o.Linger = -1 }, func(t *testing.T, _ *modelServer, p *informerpool.Pool) {
		other := everything
		other.Cluster.Name = "other"
		narrow := everything
		narrow.LabelSelector = "app=x"
		require.Zero(t, p.ClusterSummary(everything.Cluster))
		thin := acquireSynced(t, p, narrow)
		wide := acquireSynced(t, p, everything)
		acquireSynced(t, p, other)
		after(time.Minute)
		var want informerpool.Summary
		for _, i := range p.ClusterStatus(everything.Cluster) {
			require.Equal(t, everything.Cluster, i.Key.Cluster)
			want.Informers++
			want.Synced++
			want.Leases += i.Leases
			want.Objects += i.Objects
			want.Bytes += i.Bytes
			if i.LastEvent.After(want.LastEvent) {
				want.LastEvent = i.LastEvent
			}
			if want.OldestProof.IsZero() || i.LastProof.Before(want.OldestProof) {
				want.OldestProof = i.LastProof
			}
		}
		want.Totals = p.ClusterTotals(everything.Cluster)
		require.Equal(t, 2, want.Informers)
		require.Equal(t, want, p.ClusterSummary(everything.Cluster))
		require.Len(t, p.Status(), 3)

		thin.Release()
		wide.Release()
		require.Zero(t, p.ClusterSummary(everything.Cluster).Informers)
		require.Empty(t, p.ClusterStatus(everything.Cluster))
		require.Equal(t, 1, p.ClusterSummary(other.Cluster).Informers)
	})
}
