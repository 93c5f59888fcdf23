// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

// ClusterType is the type of a [Cluster] event.
type ClusterType string

// Types of a [Cluster] event.
const (
	// Connected: the cluster can be used from now on.
	Connected ClusterType = "Connected"
	// Disconnected: the cluster can no longer be used. A Connected that follows
	// at once with another epoch means that the cluster's history has been
	// replaced.
	Disconnected ClusterType = "Disconnected"
	// PhaseChanged: the phase changed, or a cluster that was not ready to be
	// connected failed for the first time, and the cluster stayed connected or
	// stayed disconnected.
	PhaseChanged ClusterType = "PhaseChanged"
	// Removed: the cluster is gone, and its cached objects with it.
	Removed ClusterType = "Removed"
	// Relabeled: the cluster's labels changed; clustercache.Cluster.Labels
	// returns them. The event is never Initial.
	Relabeled ClusterType = "Relabeled"
	// Silent: the cluster has answered nothing for Options.SilentAfter, or for
	// a time that the subscription asked for.
	Silent ClusterType = "Silent"
	// Gained: this replica owns the cluster from now on, by Options.Sharding.
	Gained ClusterType = "Gained"
	// Lost: this replica no longer owns the cluster, or is about to hand it
	// over. Nothing new may be begun on it.
	Lost ClusterType = "Lost"
)

// Cluster is one change of one cluster. For each cluster and subscriber,
// Connected and Disconnected alternate, except for those that are marked as
// Initial. Events are level-triggered: a slow subscriber may miss a change that
// was undone before its turn, but never the last state, nor that a cluster was
// Removed before it came back.
type Cluster struct {
	Cluster client.ObjectKey
	Type    ClusterType
	// Phase and Reason hold the state after the event.
	Phase  status.Phase
	Reason string
	// Epoch identifies the history that the cluster serves. It is empty before
	// the first connection.
	Epoch string
	// Time is the time of the change.
	Time time.Time
	// SilentFor is set in events of type Silent: the time without an answer
	// that the event reports.
	SilentFor time.Duration
	// Initial marks an event from before the subscription began that no later
	// event has superseded, and one that Trigger delivers once more.
	Initial bool
}
