// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// Config is shared by all connections of a ClusterCache. Fields are required
// unless they say otherwise, and those named like an option of the ClusterCache
// have its meaning.
type Config struct {
	Resolver resolver.Resolver
	Discover bool
	// Phases are the numbers on which decisions about the phase depend.
	Phases         phase.Config
	ProbePath      string
	ProbeTimeout   time.Duration
	RetryInterval  time.Duration
	RequestTimeout time.Duration
	QPS            float64
	Burst          int
	UserAgent      string
	NetHTTP        bool
	// Dialer returns the dialer for an access. own is the access's own dialer,
	// or nil.
	Dialer func(access resolver.Access, own transport.DialFunc) transport.DialFunc

	// Context ends with the ClusterCache. Started reports whether it has
	// started: messages wait in the mailbox until then.
	Context context.Context //nolint:containedctx // the life of all connections
	Started func() bool
	// Spawn starts a goroutine that the ClusterCache waits for. It returns
	// false after the end.
	Spawn func(func()) bool
	// Connect and Probe queue attempts to connect, and probes.
	Connect, Probe func(job func())
	Timers         *timetable.Timers
	Kinds          *restmap.Table
	Calls          *callback.Calls
	Log            logr.Logger
	Metrics        Metrics
}

// Metrics receives measurements.
type Metrics interface {
	// Probed counts one probe.
	Probed(began time.Time, err error)
	// Tried counts an attempt to connect.
	Tried(began time.Time)
	// NotConnected counts an attempt to connect that failed.
	NotConnected(reason string)
}

// Hooks are how a connection notifies its cluster, and what it asks of it. Most
// are called while a message is handled, one at a time. They must not block,
// and may post messages.
type Hooks interface {
	// Wanted reports whether the cluster has to stay known.
	Wanted() bool
	// Unlisted reports whether the list that made the cluster known no longer
	// contains it, and nothing else keeps the cluster.
	Unlisted() bool
	// WhyNot returns the error of requests while there is no connection.
	WhyNot() error

	// Connected: requests can be sent to the present epoch from now on. It may
	// serve other kinds than the one before.
	Connected()
	// Disconnected: requests can no longer be sent to the epoch before. Where
	// another history begins, Connected follows at once.
	Disconnected()
	// PhaseChanged follows each change of the phase, and the first failure of a
	// cluster that was not ready before. alone means that it is neither a
	// connect nor a disconnect.
	PhaseChanged(alone bool)
	// ReasonChanged: requests fail for another reason, in the same phase.
	ReasonChanged()
	// Doubted: OtherCluster has begun to return an error, or returns none
	// again in the same epoch.
	Doubted()
	// Relabeled: the labels of the cluster have become known or, if they were
	// known, have changed.
	Relabeled(changed bool)
	// Evicted: the cluster is gone; drop everything held for it.
	Evicted()
	// Silent: nothing was answered for Options.SilentAfter.
	Silent()
	// Resumed: informers and look-ups of kinds may be in pauses that began
	// while they could not succeed.
	Resumed()
	// Recovered: a request of an informer succeeded after others had failed.
	Recovered()
	// Replaced: the server may have been restored, replaced or upgraded. Caches
	// may differ from it, and it may serve other kinds.
	Replaced()
	// NoAccess: there is no access to the cluster any more.
	NoAccess()
	// Gone: the cluster is gone, and not wanted: forget it.
	Gone()
}
