// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// stuckAfter is how far the loop may be behind before it counts as stuck.
// Nothing that it does waits, so that only a machine without any processor time
// left comes near.
const stuckAfter = time.Minute

var (
	errNotListed = errors.New("the resolver has not listed the clusters yet")
)

// HealthzCheck returns a check for the manager's AddHealthzCheck: it fails if
// the loop that probes and reconnects has been stuck for a minute, and with
// [ErrClosed] after the end, as only a new process helps then. It succeeds
// before Start. Remote clusters and the hub do not matter. It does not block.
func (cc *ClusterCache) HealthzCheck() healthz.Checker {
	return func(*http.Request) error {
		if cc.ctx.Err() != nil {
			return context.Cause(cc.ctx)
		}
		if late := cc.timers.Late(time.Now()); cc.live.Load() && late > stuckAfter {
			return fmt.Errorf("cluster cache is stuck: its loop is %s behind", late.Round(time.Second))
		}
		return nil
	}
}

// ReadyzCheck returns a check for the manager's AddReadyzCheck: it fails until
// Start was called and, with Options.Discover, the resolver has listed the
// clusters once; and with [ErrClosed] after the end. Whether a remote cluster
// can be reached does not matter: a dead one must not take the operator of the
// others out of service. See [ClusterCache.Status] and the metrics for those.
// It does not block.
func (cc *ClusterCache) ReadyzCheck() healthz.Checker {
	return func(*http.Request) error {
		switch {
		case cc.ctx.Err() != nil:
			return context.Cause(cc.ctx)
		case !cc.live.Load():
			return ErrNotStarted
		case cc.options.Discover && !cc.listed.Load():
			return errNotListed
		}
		return nil
	}
}
