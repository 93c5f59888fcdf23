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

// stuckAfter is how late the loop may be before it counts as stuck. Nothing in
// it blocks, so that only a machine with no processor time left comes near
// this.
const stuckAfter = time.Minute

var (
	errNotListed = errors.New("the resolver has not listed the clusters yet")
)

// HealthzCheck returns a check for the manager's AddHealthzCheck. It fails if
// the loop that probes and reconnects has been stuck for a minute, and with
// [ErrClosed] after Start has ended, when only a new process helps. It succeeds
// before Start. Remote clusters and the hub have no influence. It does not
// block.
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

// ReadyzCheck returns a check for the manager's AddReadyzCheck. It fails until
// Start was called and, with Options.Discover, the resolver has listed the
// clusters once; and with [ErrClosed] after Start has ended. It does not depend
// on whether remote clusters can be reached: a dead one must not take the
// operator of the others out of service. See [ClusterCache.Status] and the
// metrics for those. It does not block.
func (cc *ClusterCache) ReadyzCheck() healthz.Checker {
	return func(*http.Request) error {
		switch {
		case cc.ctx.Err() != nil:
			return context.Cause(cc.ctx)
		case !cc.live.Load():
			return ErrNotStarted
		case cc.options.Discover && !cc.discovery.listed.Load():
			return errNotListed
		}

		return nil
	}
}
