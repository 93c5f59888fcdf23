// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"maps"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/transport"
)

func (c *cluster) status() status.Cluster {
	v := c.conn.View()
	sum := c.cc.pool.ClusterSummaryIn(c.key, v.Epoch, c.cc.options.StaleAfter)
	if !v.Connected || c.conn.OtherCluster() != nil {
		sum.Synced = 0
	}
	s := status.Cluster{
		Cluster:          c.key,
		Phase:            status.Phase(v.Phase.String()),
		Since:            v.Since,
		Reason:           v.Reason,
		LastError:        v.Err,
		Connected:        v.Connected,
		LostSince:        v.LostSince,
		NextAttempt:      v.NextAttempt,
		Failures:         v.Failed,
		FailingSince:     v.FailedSince,
		LastProbe:        v.LastProbe,
		LastProbeSuccess: v.LastSuccess,
		Healthy:          v.Checked.Healthy,
		Unhealthy:        v.Checked.Unhealthy,
		LastLife:         c.conn.Transport().LastLife(),
		LastEvent:        sum.LastEvent,
		UID:              v.UID,
		Epoch:            string(v.Epoch),
		SameAs:           c.cc.clusters.twins.others(c.key),
		ServerVersion:    v.Version,
		Revision:         v.Access.Revision(),
		AccessSince:      v.AccessSince,
		CredentialExpiry: v.Access.Expiry(),
		Labels:           maps.Clone(v.Labels),
		Endpoint:         v.Endpoint,
		Connects:         v.Connects,
		HistoryResets:    v.Resets,
		Informers:        sum.Informers,
		Synced:           sum.Synced,
		Objects:          sum.Objects,
		Bytes:            sum.Bytes,
		SeenBytes:        sum.SeenBytes,
		References:       sum.Leases,
		Stalls:           sum.Totals.Stalls,
		Rejected:         sum.Totals.Rejected,
		OldestSeen:       sum.OldestSeen,
		Ownership:        c.cc.tenure.State(c.key),
	}
	if err := c.conn.Busy(); err != nil && s.Connected && s.LastError == nil {
		s.Reason, s.LastError = string(transport.Throttled), err
	}
	s.Watches, s.Unmapped = c.wants.Count()
	if s.Connected {
		c.addFailing(&s, sum)
	}
	s.Stale = !s.OldestSeen.IsZero() && time.Since(s.OldestSeen) > c.cc.options.StaleAfter && v.Phase != phase.Gone

	return s
}

// addFailing counts the watches that waiting does not help. If the connection
// has no error, that of one of them is the cluster's: a ClusterError whose Op is
// "watch".
func (c *cluster) addFailing(s *status.Cluster, sum informerpool.Summary) {
	n, first, err := c.wants.Failing()
	s.Failing = sum.Refuted + n
	switch {
	case s.Failing == 0 || s.LastError != nil:
		return
	case sum.Refuted > 0:
		s.LastError = &ClusterError{Cluster: c.key, Op: "watch", Err: sum.Refutation} // names the resource
	default:
		s.LastError = &ClusterError{
			Cluster: c.key,
			GVK:     first.GVK,
			Op:      "watch",
			Err:     err,
		}
	}
	s.Reason = ReasonOf(s.LastError)
}
