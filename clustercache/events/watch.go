// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"time"

	"github.com/fleetcache/fleetcache/clustercache/status"
)

// Watch is the state of a watch after a change.
type Watch struct {
	// Key identifies the watch.
	Key status.WatchKey
	// Synced reports whether the cache answers reads of it, as
	// clustercache.Watch.HasSynced does.
	Synced bool
	// Err is why Synced is false: the cluster is not connected
	// (ErrNotConnected), the kind is not served (meta.IsNoMatchError), the
	// server refuses (such as apierrors.IsForbidden), the informer is over
	// budget (ErrBudget), has had no sign of life for Options.StaleAfter
	// (ErrStale), or has not listed yet (ErrNotSynced); the errors are those of
	// clustercache. If Synced is true, it is what has interrupted the informer,
	// and nil while it follows its server. While the cluster is not connected,
	// the cause may change without an event of the watch: it is one of the
	// cluster.
	Err error
	// Reason is Err in one word, as clustercache.ReasonOf returns it.
	Reason string
	// Ended reports that the last reference was released. Nothing else is set.
	Ended bool
	// Time is the time of the delivery.
	Time time.Time
	// Initial marks an event that was caused by no change: by the beginning of
	// the subscription, or by Trigger.
	Initial bool
}
