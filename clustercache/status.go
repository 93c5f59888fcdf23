// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/phase"
)

// Phase is where the connection of a cluster stands.
type Phase string

// Phases of a cluster.
const (
	// PhasePending means that the resolver knows no access yet. Nothing is dialled.
	PhasePending Phase = "Pending"
	// PhaseConnecting means that the first attempt is under way.
	PhaseConnecting Phase = "Connecting"
	// PhaseReady means that the cluster answers.
	PhaseReady Phase = "Ready"
	// PhaseDegraded means that it is connected, and that its last probes failed.
	PhaseDegraded Phase = "Degraded"
	// PhaseDisconnected means that it cannot be reached, or refuses the credentials. Attempts go on.
	PhaseDisconnected Phase = "Disconnected"
	// PhaseRefused means that policy forbids the way to it.
	PhaseRefused Phase = "Refused"
	// PhaseGone means that it does not exist.
	PhaseGone Phase = "Gone"
)

// Reasons of a phase, besides the classes of network failures: Unauthorized, Forbidden, Unreachable, Timeout, Server,
// NotKubernetes, Throttled, TLS, TLSUnknownAuthority, TLSBadName, TLSExpired, TLSNotYetValid, and so on.
const (
	// ReasonNoAccess: the resolver has no access yet.
	ReasonNoAccess = "NoAccess"
	// ReasonClusterNotFound: the resolver knows no such cluster.
	ReasonClusterNotFound = "ClusterNotFound"
	// ReasonBadAccess: what describes the access cannot be understood.
	ReasonBadAccess = "BadAccess"
	// ReasonRefused: policy refuses what describes the access, or the address that it leads to.
	ReasonRefused = "Refused"
)

// Status is a snapshot of one cluster. It holds no credentials.
type Status struct {
	Cluster client.ObjectKey
	Phase   Phase
	// Since is when the phase began.
	Since time.Time
	// Reason is the short form of LastError, and LastError the failure that was not made good yet. A cluster may be Ready with
	// one: new access that does not work leaves the old in use. errors.Is and errors.As find the cause of LastError: of
	// the resolver's errors, [ErrRefused], [ErrNotKubernetes], those of crypto/x509, and, by the functions of apimachinery's
	// package errors (IsUnauthorized, IsServiceUnavailable), an answer that was no success.
	Reason    string
	LastError error
	// Connected tells whether requests go through.
	Connected bool
	// LastLife is when the API server last showed a sign of life.
	LastLife time.Time
	// UID is that of the namespace kube-system, or made up from the address where that may not be read; Epoch
	// is it with the number of times that the history changed.
	UID, Epoch string
	// Revision identifies the access in use, without telling it; CredentialExpiry is when its credentials end, if known.
	Revision         string
	CredentialExpiry time.Time
	// Connects counts connections since the cluster is known.
	Connects int
	// Watches is the number of distinct things that are watched, and Unmapped of those whose kind was not found yet.
	Watches, Unmapped int
	// Informers, Objects and Bytes count what runs and is cached; Synced counts the informers that are.
	Informers, Synced, Objects int
	Bytes                      int64
	// References counts the leases held on informers. Stalls and Rejected count, since the cluster was first known, streams
	// cut because nothing came, and objects refused as broken.
	References       int
	Stalls, Rejected int64
	// HistoryResets counts how often another history was found.
	HistoryResets int
	// Stale tells that an informer had no sign of life for Options.StaleAfter; OldestProof is the oldest one's last.
	Stale       bool
	OldestProof time.Time
}

// WatchStatus is a snapshot of one watch.
type WatchStatus struct {
	Cluster client.ObjectKey
	GVK     schema.GroupVersionKind
	// Mapped tells whether the cluster said which resource the kind is. Without it Informer is empty.
	Mapped bool
	// LastError is why it is not, if it was tried.
	LastError error
	// References counts the holds of the same watch.
	References int
	// Informer is the informer's.
	Informer informerpool.Status
}

// Status returns a snapshot of a cluster. It does no I/O and waits for nothing but short locks. The error is
// [ErrUnknownCluster].
func (cc *ClusterCache) Status(cluster client.ObjectKey) (Status, error) {
	c := cc.find(cluster)
	if c == nil {
		return Status{}, &ClusterError{Cluster: cluster, Op: "status", Err: ErrUnknownCluster}
	}
	return c.status(cc.pool.ClusterStatus(cluster)), nil
}

// Statuses returns a snapshot of every cluster, gone ones that are still held included, in no order. It does no I/O.
func (cc *ClusterCache) Statuses() []Status {
	informers := map[client.ObjectKey][]informerpool.Status{}
	for _, s := range cc.pool.Status() {
		informers[s.Key.Cluster] = append(informers[s.Key.Cluster], s)
	}
	clusters := cc.all()
	out := make([]Status, 0, len(clusters))
	for _, c := range clusters {
		out = append(out, c.status(informers[c.key]))
	}
	return out
}

func (c *cluster) status(informers []informerpool.Status) Status {
	v := c.view.Load()
	s := Status{
		Cluster: c.key, Phase: Phase(v.phase.String()), Since: v.since, Reason: v.reason, LastError: v.err, Connected: v.connected,
		LastLife: c.seam.LastLife(), UID: v.uid, Epoch: string(v.epoch), Revision: v.access.Revision(),
		CredentialExpiry: v.access.Expiry(), Connects: v.connects, HistoryResets: v.resets, Informers: len(informers),
	}
	s.Watches, s.Unmapped = c.holds.count()
	totals := c.cc.pool.ClusterTotals(c.key)
	s.Stalls, s.Rejected = totals.Stalls, totals.Rejected
	for _, i := range informers {
		s.Objects += i.Objects
		s.Bytes += i.Bytes
		s.References += i.Leases
		if !i.Synced {
			continue
		}
		s.Synced++
		if s.OldestProof.IsZero() || i.LastProof.Before(s.OldestProof) {
			s.OldestProof = i.LastProof
		}
	}
	s.Stale = s.Synced > 0 && time.Since(s.OldestProof) > c.cc.options.StaleAfter && v.phase != phase.Gone
	return s
}

func (c *cluster) watchStatus(h *hold) WatchStatus {
	lease, _, err := c.holds.look(h)
	s := WatchStatus{Cluster: c.key, GVK: h.id.gvk, Mapped: lease != nil, LastError: err, References: c.holds.references(h)}
	if lease != nil {
		s.Informer = lease.Status()
		s.LastError = s.Informer.LastError
	}
	return s
}
