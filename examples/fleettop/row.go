// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

// row is what the table shows of a cluster.
type row struct {
	snapshot

	at     time.Time
	events int     // since the start
	rate   float64 // events per second
}

// snapshot has a name of its own: the embedded field would hide the key.
type snapshot = status.Cluster

// never is the staleness of a cluster that has shown no sign of life.
const never time.Duration = -1

// staleness returns the age of the oldest sign of life of the informers; if
// none has synced, of the API server's last one.
func (r row) staleness() time.Duration {
	seen := r.OldestSeen
	if seen.IsZero() {
		seen = r.LastLife
	}
	if seen.IsZero() {
		return never
	}
	return max(r.at.Sub(seen), 0)
}

// reason returns what is wrong in one word; the empty string if nothing is.
func (r row) reason() string {
	switch {
	case r.Reason != "":
		return r.Reason
	case r.Stale:
		return "Stale"
	case r.Connected && r.Synced < r.Watches:
		return "Syncing"
	}
	return ""
}

// why returns the error in full, as one line; the empty string if there is
// none.
func (r row) why() string {
	if r.LastError == nil {
		return ""
	}
	return strings.TrimPrefix(printable(r.LastError.Error()), fmt.Sprintf("cluster %q: ", clusterName(r.Cluster)))
}

// phases are the phases of clusters that need attention, worst first.
var phases = []status.Phase{
	status.PhaseRefused, status.PhaseDisconnected, status.PhaseGone,
	status.PhasePending, status.PhaseConnecting, status.PhaseDegraded,
}

// severity returns the rank of a cluster in the table; 0 is the worst.
func (r row) severity() int {
	if i := slices.Index(phases, r.Phase); i >= 0 {
		return i
	}
	switch {
	case r.Stale:
		return len(phases)
	case r.reason() != "":
		return len(phases) + 1
	}
	return len(phases) + 2
}

// worstFirst compares two rows for sorting. Of clusters that are equally bad,
// those that have been so for longest come first. The others are sorted by name,
// so that healthy clusters do not change places.
func worstFirst(a, b row) int {
	lost := func(r row) int64 {
		if r.Connected && !r.Stale {
			return 0
		}
		return int64(r.staleness())
	}
	return cmp.Or(
		cmp.Compare(a.severity(), b.severity()),
		cmp.Compare(lost(b), lost(a)),
		cmp.Compare(clusterName(a.Cluster), clusterName(b.Cluster)),
	)
}

// clusterName returns a cluster's name, with the namespace if it has one.
func clusterName(key client.ObjectKey) string {
	return printable(strings.TrimPrefix(key.String(), "/"))
}
