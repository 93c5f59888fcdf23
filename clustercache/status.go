// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"encoding/json"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// Phase is the state of a cluster's connection.
type Phase string

// Phases of a cluster.
const (
	// PhasePending means that the resolver has no access yet. Nothing is
	// dialed.
	PhasePending Phase = "Pending"
	// PhaseConnecting means that the first attempt to connect is under way.
	PhaseConnecting Phase = "Connecting"
	// PhaseReady means that the cluster answers.
	PhaseReady Phase = "Ready"
	// PhaseDegraded means that the cluster is connected, but its last probes
	// failed, or the API server reports that checks of its own health fail
	// (ReasonUnhealthy), for however long; or that it does not prove its
	// identity, however it answers probes.
	PhaseDegraded Phase = "Degraded"
	// PhaseDisconnected means that the cluster cannot be reached, does not
	// answer, or refuses the credentials. Attempts continue.
	PhaseDisconnected Phase = "Disconnected"
	// PhaseRefused means that policy forbids access to the cluster.
	PhaseRefused Phase = "Refused"
	// PhaseGone means that the cluster does not exist, or that nothing needs it
	// any more; the reason distinguishes the two.
	PhaseGone Phase = "Gone"
)

// Reasons of a phase, besides the classes of network failures: Unauthorized,
// Forbidden, Unreachable, Timeout, Server, NotKubernetes, Throttled, TLS,
// TLSUnknownAuthority, TLSBadName, TLSExpired, TLSNotYetValid, and so on.
const (
	// ReasonNoAccess means that the resolver has no access yet.
	ReasonNoAccess = connection.ReasonNoAccess
	// ReasonClusterNotFound means that the resolver knows no such cluster.
	ReasonClusterNotFound = connection.ReasonClusterNotFound
	// ReasonBadAccess means that the description of the access cannot be
	// parsed.
	ReasonBadAccess = connection.ReasonBadAccess
	// ReasonRefused means that policy refuses the description of the access, or
	// the address that it leads to.
	ReasonRefused = connection.ReasonRefused
	// ReasonReleased means that nothing watches the cluster or keeps it engaged
	// any more. The cluster itself may be healthy.
	ReasonReleased = connection.ReasonReleased
	// ReasonUnhealthy means that the API server answers that checks of its own
	// health fail, and names them. What works there goes on.
	ReasonUnhealthy = connection.ReasonUnhealthy
)

// Status is a snapshot of one cluster. It holds no credentials.
type Status struct {
	Cluster client.ObjectKey `json:"-"` // in JSON: namespace/name
	Phase   Phase            `json:"phase"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// LastError is the failure that is not resolved, as text in JSON; Reason is
	// its short form, a word of [ReasonOf]. Rejected credentials, and what
	// policy refuses, stay the reason until an attempt shows the contrary, even
	// if later attempts fail in another way, which LastError then quotes. A
	// Ready cluster may have a LastError: new access that does not work leaves
	// the old one in use, a server that answers 429 is alive, but busy, and the
	// server may refuse, or not serve, what is watched. Of several watches that
	// fail, it is the error of one.
	Reason    string `json:"reason,omitempty"`
	LastError error  `json:"-"`
	// Connected reports whether requests are sent.
	Connected bool `json:"connected"`
	// LostSince is when the connection was lost that has not been made again
	// since. Unlike Since, it does not begin anew with each phase. Zero while
	// connected, and for a cluster that was never connected or is gone.
	LostSince time.Time `json:"lostSince,omitzero"`
	// LastLife is when the API server last showed a sign of life.
	LastLife time.Time `json:"lastLife,omitzero"`
	// Failures counts the consecutive probes, and attempts to connect, that
	// failed for any reason but that the cluster is not ready to be connected
	// yet ([resolver.ErrNotReady]). While a cluster is connected, failures to
	// resolve its access do not count. An attempt that a report of the resolver
	// began before it was due, and that did not query the server, counts only as
	// the first. FailingSince is when that one ended.
	Failures     int       `json:"failures"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	// NextAttempt is when the next attempt to connect is due, or the next probe
	// of a cluster whose last one failed. Zero while an attempt runs, and where
	// none is due.
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
	// LastProbe is when a probe, or an attempt to connect that queried the API
	// server, last ended.
	// LastProbeSuccess is when one last succeeded, or when a sign of life made
	// one unnecessary; it measures how long the cluster has been silent. See
	// Options.SilentAfter.
	LastProbe        time.Time `json:"lastProbe,omitzero"`
	LastProbeSuccess time.Time `json:"lastProbeSuccess,omitzero"`
	// Healthy counts the probes that were answered while the cluster was
	// connected, and those that a sign of life made unnecessary; Unhealthy
	// counts those that were not answered. Both begin when the cluster becomes
	// known.
	Healthy   int `json:"healthy"`
	Unhealthy int `json:"unhealthy"`
	// LastEvent is when a change of an object last arrived.
	LastEvent time.Time `json:"lastEvent,omitzero"`
	// Endpoint is scheme, host and port of the API server in use, or of the
	// last attempt to connect while there was none. The rest of its URL, which
	// may be secret, is left out.
	Endpoint string `json:"endpoint,omitempty"`
	// UID is that of the namespace kube-system, or is derived from the address
	// where that may not be read. Epoch is the UID with the number of times
	// that the history changed.
	UID   string `json:"uid,omitempty"`
	Epoch string `json:"epoch,omitempty"`
	// SameAs are other keys that were last connected to a server with the same
	// UID, sorted. Each of them has a connection and caches of its own, and
	// whatever is done for every cluster is done twice for this one.
	SameAs []client.ObjectKey `json:"-"` // in JSON: namespace/name
	// ServerVersion is the API server's gitVersion, such as v1.36.1. It is read
	// for new connections and every few minutes. Empty where it may not be
	// read.
	ServerVersion string `json:"serverVersion,omitempty"`
	// Revision identifies the access in use, without revealing it. AccessSince
	// is when its use began, and CredentialExpiry when its credentials expire,
	// if known.
	Revision         string    `json:"revision,omitempty"`
	AccessSince      time.Time `json:"accessSince,omitzero"`
	CredentialExpiry time.Time `json:"credentialExpiry,omitzero"`
	// Labels are the cluster's labels ([resolver.Access.Labels]): those that the
	// resolver gave last. Nil while they are unknown.
	Labels map[string]string `json:"labels,omitempty"`
	// Connects counts the connections since the cluster became known.
	Connects int `json:"connects"`
	// Watches is the number of distinct watches, and Unmapped the number of
	// those whose kind was not found yet. Failing counts the watches and
	// informers of a connected cluster that waiting does not help: the server
	// refuses them or does not serve their kind, or they are over budget.
	Watches  int `json:"watches"`
	Unmapped int `json:"unmapped"`
	Failing  int `json:"failing"`
	// Informers counts those that run, Synced those of them that answer reads
	// now, as [Watch.HasSynced] reports it: none while the cluster is not
	// connected. Objects and Bytes measure what they cache. SeenBytes is the part of Bytes
	// that is no part of the cluster's budget: what is remembered of objects
	// that reads have shown.
	Informers int   `json:"informers"`
	Synced    int   `json:"synced"`
	Objects   int   `json:"objects"`
	Bytes     int64 `json:"bytes"`
	SeenBytes int64 `json:"seenBytes,omitempty"`
	// References counts the leases held on informers.
	References int `json:"references"`
	// Stalls counts the streams that were cut because nothing arrived, and
	// Rejected the objects that were refused as malformed.
	Stalls   int64 `json:"stalls"`
	Rejected int64 `json:"rejected"`
	// HistoryResets counts how often another history was detected.
	HistoryResets int `json:"historyResets"`
	// Stale reports whether an informer had no sign of life for
	// Options.StaleAfter. OldestSeen is the last sign of life of the least
	// recently active informer.
	Stale      bool      `json:"stale"`
	OldestSeen time.Time `json:"oldestSeen,omitzero"`
	// Ownership is what this replica has to do with the cluster. It is nil
	// without Options.Sharding.
	Ownership *ownership.State `json:"ownership,omitempty"`
}

// MarshalJSON implements json.Marshaler: the cluster and the error are text.
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	return json.Marshal(struct {
		Cluster string `json:"cluster"`
		plain

		LastError string   `json:"lastError,omitempty"`
		SameAs    []string `json:"sameAs,omitempty"`
	}{
		Cluster:   clusterName(s.Cluster),
		plain:     plain(s),
		LastError: errorText(s.LastError),
		SameAs:    clusterNames(s.SameAs),
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func clusterNames(keys []client.ObjectKey) (names []string) {
	for _, key := range keys {
		names = append(names, clusterName(key))
	}
	return names
}

func (c *cluster) status() Status {
	v := c.conn.View()
	sum := c.cc.pool.ClusterSummaryIn(c.key, v.Epoch, c.cc.options.StaleAfter)
	if !v.Connected || c.conn.OtherCluster() != nil {
		sum.Synced = 0
	}
	s := Status{
		Cluster:          c.key,
		Phase:            Phase(v.Phase.String()),
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
		SameAs:           c.cc.clusters.twins.Others(c.key),
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
func (c *cluster) addFailing(s *Status, sum informerpool.Summary) {
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

// phasesInOrder are all phases, in the order in which a cluster passes through
// them.
var phasesInOrder = []Phase{
	PhasePending, PhaseConnecting, PhaseReady, PhaseDegraded, PhaseDisconnected, PhaseRefused, PhaseGone,
}

// reasons explain each reason in one sentence. docs/runbook.md begins its
// sections with the same sentences.
var reasons = map[string]string{
	ReasonNoAccess:        "Nothing describes yet how the cluster is reached, or it is not ready to be.",
	ReasonClusterNotFound: "No object in the hub describes this cluster.",
	ReasonBadAccess:       "What describes the access is there and cannot be understood.",
	ReasonRefused:         "Our own policy forbids what the access, its address or the server asks for.",
	ReasonReleased:        "Nothing needs the cluster any more, so that its connection was ended.",
	ReasonUnhealthy:       "Checks of the API server's own health fail.",

	"NotServed":    "The cluster does not serve the kind.",
	"NotWatchable": "The kind can be read and not watched.",
	"OverBudget":   "The objects exceed a limit of the operator.",

	string(transport.Unauthorized): "The API server rejects our credentials.",
	string(transport.Forbidden):    "The API server knows us and does not allow this.",
	string(transport.NotFound):     "What was asked does not exist at this address.",
	string(transport.Throttled):    "The API server asks us to slow down.",
	string(transport.TLS):          "The TLS handshake failed.",
	string(transport.TLSUnknownAuthority): "The server's certificate is signed by an authority " +
		"that the access does not trust.",
	string(transport.TLSBadName):     "The server's certificate is for another name.",
	string(transport.TLSExpired):     "The server's certificate has expired, or our clock is ahead.",
	string(transport.TLSNotYetValid): "The server's certificate is not valid yet, or our clock is behind.",
	string(transport.Unreachable):    "No connection can be made, or it broke.",
	string(transport.Timeout):        "The answer did not come in time.",
	string(transport.NotKubernetes):  "Something else than a Kubernetes API answers at this address.",
	string(transport.Server):         "The API server answers that it failed.",
	string(transport.BadConfig):      "The access is understood and cannot be used.",
	string(transport.Canceled):       "The attempt was called off.",
	string(transport.Cut):            "Our own side ended the request, as it got other access or was stopped.",
	string(transport.Unknown):        "The attempt failed in a way that fits no other reason.",
}
