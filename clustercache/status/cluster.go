// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/ownership"
	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Cluster is a snapshot of one cluster.
type Cluster struct {
	Cluster client.ObjectKey `json:"-"` // in JSON: namespace/name
	Phase   Phase            `json:"phase"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// LastError is the failure that is not resolved, as text in JSON; Reason is
	// its short form, a word of clustercache.ReasonOf. Rejected credentials, and what
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
	// now, as clustercache.Watch.HasSynced reports it: none while the cluster is not
	// connected. Objects and Bytes measure what they cache. SeenBytes is the
	// part of Bytes that is no part of the cluster's budget: what is remembered
	// of objects that reads have shown.
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
func (s Cluster) MarshalJSON() ([]byte, error) {
	type plain Cluster
	return json.Marshal(struct {
		Cluster string `json:"cluster"`
		plain

		LastError string   `json:"lastError,omitempty"`
		SameAs    []string `json:"sameAs,omitempty"`
	}{
		Cluster:   clustername.Of(s.Cluster),
		plain:     plain(s),
		LastError: text(s.LastError),
		SameAs:    names(s.SameAs),
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func names(keys []client.ObjectKey) (names []string) {
	for _, key := range keys {
		names = append(names, clustername.Of(key))
	}
	return names
}
