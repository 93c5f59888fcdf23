// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"time"

	"github.com/fleetcache/fleetcache/clustercache/internal/connection"
	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/restmap"
)

// connectionConfig returns what all connections share.
func (cc *ClusterCache) connectionConfig() connection.Config {
	o := &cc.options
	connects, probes := newWorkers(o.ConnectConcurrency, cc.spawn), newWorkers(o.ProbeConcurrency, cc.spawn)

	return connection.Config{
		Resolver:       o.Resolver,
		Discover:       o.Discover,
		Phases:         o.phases(),
		ProbePath:      o.ProbePath,
		ProbeTimeout:   o.ProbeTimeout,
		RetryInterval:  o.RetryInterval,
		RequestTimeout: o.RequestTimeout,
		QPS:            o.QPS,
		Burst:          o.Burst,
		UserAgent:      o.UserAgent,
		Dialer:         cc.dialer,
		Context:        cc.ctx,
		Started:        cc.live.Load,
		Spawn:          cc.spawn,
		Connect:        connects.submit,
		Probe:          probes.submit,
		Timers:         cc.timers,
		Kinds:          restmap.NewTable(),
		Calls:          cc.calls,
		Log:            cc.log,
		Metrics:        cc.metrics,
	}
}

// phases returns the numbers on which the connection's decisions depend.
func (o Options) phases() phase.Config {
	return phase.Config{
		ProbeInterval:    o.ProbeInterval,
		FailureThreshold: o.FailureThreshold,
		SuccessThreshold: o.SuccessThreshold,
		Grace:            max(o.Grace, 0),
		RetryBase:        time.Second,
		RetryMax:         o.MaxBackoff,
		ResolveRetry:     o.RetryInterval,
		ResolveInterval:  max(o.ResolveInterval, 0),
		SilentAfter:      o.SilentAfter,
	}
}
