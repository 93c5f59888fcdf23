// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"cmp"
	"errors"
	"maps"
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/internal/wants"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/transport"
)

func (c *cluster) status() status.Cluster {
	v := c.conn.View()
	sum := c.fleet.pool.ClusterSummaryIn(c.key, v.Epoch, c.fleet.options.StaleAfter)
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
		SameAs:           c.fleet.twins.others(c.key),
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
		Ownership:        c.fleet.tenure.State(c.key),
	}
	if err := c.conn.Busy(); err != nil && s.Connected && s.LastError == nil {
		s.Reason, s.LastError = string(transport.Throttled), err
	}
	s.Watches, s.Unmapped = c.wants.Count()
	if s.Connected {
		c.addFailing(&s, sum)
	}
	s.Stale = !s.OldestSeen.IsZero() && time.Since(s.OldestSeen) > c.fleet.options.StaleAfter && v.Phase != phase.Gone

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
		s.LastError = clusterError("watch", c.key, first.GVK, err)
	}
	s.Reason = ReasonOf(s.LastError)
}

func (c *cluster) watchStatus(w *wants.Want) status.Watch {
	lease, _, err := c.wants.Look(w)
	s := status.Watch{
		Cluster:       c.key,
		GVK:           w.GVK,
		Namespace:     w.Namespace,
		LabelSelector: w.LabelSelector,
		FieldSelector: w.FieldSelector,
		Mapped:        lease != nil,
		LastError:     err,
		References:    c.wants.References(w),
	}
	if lease != nil {
		s.Informer = lease.Status()
		s.Informer.LastError = w.Explain(s.Informer.LastError)
		s.LastError = s.Informer.LastError
	}
	why := c.unanswered(w)
	s.Informer.Synced = why == nil
	if s.LastError == nil && !errors.Is(why, ErrNotSynced) {
		s.LastError = why
	}
	return s
}

// unanswered returns why the cache does not answer reads of a want, or nil if
// it does. It is what "synced" means everywhere in this package, and the same
// that a read in mode CacheOnly checks.
func (c *cluster) unanswered(w *wants.Want) error {
	lease, _, err := c.wants.Look(w)
	switch {
	case c.fleet.ctx.Err() != nil:
		return ErrClosed
	case !c.conn.View().Connected:
		return c.WhyNot()
	case lease == nil && err == nil:
		return ErrNotSynced
	case lease == nil:
		return err
	}

	err = cmp.Or(c.caches.usable(&readOptions{mode: CacheOnly}, w), c.wants.Lag.Behind(w))
	if errors.Is(err, ErrNotSynced) {
		return translate(cmp.Or(w.Explain(lease.Status().LastError), ErrNotSynced))
	}
	return err
}

// standing returns why the cache does not answer reads of a want, or else what
// has interrupted its informer.
func (c *cluster) standing(w *wants.Want) (synced bool, err error) {
	if why := c.unanswered(w); why != nil {
		return false, why
	}
	if lease, _, _ := c.wants.Look(w); lease != nil {
		err = w.Explain(lease.Status().LastError)
	}
	return true, err
}

// use returns a snapshot of a watch, without its owners.
func (c *cluster) use(w *wants.Want) Use {
	s := c.watchStatus(w)
	u := Use{
		Key:        keyOf(c.key, w.Selection),
		References: s.References,
		Synced:     s.Informer.Synced,
		LastError:  s.LastError,
		LastRead:   c.wants.LastRead(w),
	}
	u.Message = text(u.LastError)
	return u
}

// Use is a snapshot of a watch and of its users.
type Use struct {
	Key status.WatchKey `json:"key"`
	// Owners are the owners that declared it, sorted.
	Owners []Owner `json:"owners,omitempty"`
	// UnusedSince is when its last owner gave it up. Zero while it has owners.
	UnusedSince time.Time `json:"unusedSince,omitzero"`
	// LastRead is when WatchAndRead or a read in mode AutoWatch last used it.
	LastRead time.Time `json:"lastRead,omitzero"`
	// References counts one for all owners together, one for all reads in mode
	// AutoWatch, and one for each Watch.
	References int `json:"references"`
	// Synced is what [Watch.HasSynced] reports.
	Synced bool `json:"synced"`
	// LastError is what keeps the watch from being up to date, and Message its
	// text.
	LastError error  `json:"-"`
	Message   string `json:"message,omitempty"`
}

// OwnerUse is a snapshot of one owner.
type OwnerUse struct {
	Owner Owner `json:"owner"`
	// Uses are the declared watches that are in effect, sorted.
	Uses []status.WatchKey `json:"uses"`
	// NextLook is when the owner is next checked (GC.InUse). Zero while it is.
	NextLook time.Time `json:"nextLook,omitzero"`
	// GoneSince is when it was first found gone, if it still is.
	GoneSince time.Time `json:"goneSince,omitzero"`
	// LastError is why the last check was inconclusive, and Message its text.
	LastError error  `json:"-"`
	Message   string `json:"message,omitempty"`
}

// Usage is a snapshot of all watches and of their users. It holds no
// credentials.
type Usage struct {
	// Owners are the owners that use something, sorted.
	Owners []OwnerUse `json:"owners"`
	// Uses are all watches, sorted: of declarations, of a Watch, and of reads
	// in mode AutoWatch.
	Uses []Use `json:"uses"`
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
