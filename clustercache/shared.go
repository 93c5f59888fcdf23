// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache/internal/tenure"
	"github.com/fleetcache/fleetcache/clustercache/status"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/misfit"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// shared is what the parts of a ClusterCache share. It knows none of them.
type shared struct {
	*lifetime

	options Options
	misfits misfit.Log
	calls   *callback.Calls // of the functions that the operator gave
	timers  *timetable.Timers
	pool    *informerpool.Pool
	tenure  *tenure.Tenure // nil without Options.Sharding
	metrics *metrics
	indexes *indexes

	events  *broadcaster              // of clusters
	watches levelHub[status.WatchKey] // the watches that changed
	owners  levelHub[Owner]           // the owners whose reads may be answered differently
}

// lifetime is that of a ClusterCache: from New to the end of Start.
type lifetime struct {
	ctx    context.Context //nolint:containedctx // the cache's own life, from New to the end of Start
	cancel context.CancelCauseFunc

	log        logr.Logger
	leaderOnly bool          // Options.LeaderOnly
	unstarted  sync.Once     // warns if the cache is used and never started
	live       atomic.Bool   // set at the beginning of Start
	running    chan struct{} // closed at the beginning of Start

	tasks sync.WaitGroup // every goroutine; Add is called under mu
	mu    struct {
		sync.Mutex // nothing else is locked under it

		started, stopped bool
	}
}

// newLifetime returns a lifetime that has not begun.
func newLifetime(o *Options) *lifetime {
	l := &lifetime{log: o.Logger, leaderOnly: o.LeaderOnly, running: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(logr.NewContext(context.Background(), o.Logger))
	return l
}

// spawn starts a goroutine that Start waits for, unless that is over.
func (l *lifetime) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.mu.stopped {
		return false
	}
	l.tasks.Go(f)
	return true
}

// noticeAfter is how long after its first use a ClusterCache that was not
// started logs that, and how long after its start one that knows no cluster
// does. A program that starts its manager takes less time to do so.
const noticeAfter = 4 * time.Second

// used records a request that has an effect only while the cache runs. If that
// was never started, it is logged.
func (l *lifetime) used() {
	if l.live.Load() || l.leaderOnly { // then it waits for its manager to lead
		return
	}
	l.unstarted.Do(func() {
		time.AfterFunc(noticeAfter, func() {
			l.mu.Lock()
			started := l.mu.started
			l.mu.Unlock()

			if !started {
				l.log.Error(ErrNotStarted, "The cluster cache is used and does not run: no cluster is connected until "+
					"its Start is called, by a manager it was added to (mgr.Add or SetupWithManager) "+
					"or by the program itself")
			}
		})
	})
}
