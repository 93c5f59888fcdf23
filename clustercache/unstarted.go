// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// noticeAfter is how long after its first use a ClusterCache that was not
// started logs that, and how long after its start one that knows no cluster
// does. A program that starts its manager takes less time to do so.
const noticeAfter = 5 * time.Second

// cacheNotStartedError is the type of ErrNotStarted, which has its own text.
type cacheNotStartedError struct{}

func (cacheNotStartedError) Error() string { return "cluster not connected: cluster cache not started" }

// Unwrap makes it an ErrConnecting, and thus an ErrNotConnected: nothing
// failed.
func (cacheNotStartedError) Unwrap() error { return ErrConnecting }

// As makes it the error of controller-runtime's cache, too. By that error,
// programs decide to read from the API server during set-up.
func (cacheNotStartedError) As(target any) bool {
	to, ok := target.(**cache.ErrCacheNotStarted)
	if ok {
		*to = &cache.ErrCacheNotStarted{}
	}
	return ok
}

// notice logs that a ClusterCache is used and was never started. It needs no
// goroutine until it is due.
type notice struct {
	mu    sync.Mutex // protects what follows; nothing else is locked under it
	timer *time.Timer
	over  bool
}

// used records a request that has an effect only while cc runs.
func (cc *ClusterCache) used() {
	if cc.live.Load() {
		return
	}
	n := &cc.unstarted
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over || n.timer != nil {
		return
	}
	n.timer = time.AfterFunc(noticeAfter, func() {
		n.mu.Lock()
		over := n.over
		n.over = true
		n.mu.Unlock()

		if !over {
			cc.log.Error(ErrNotStarted, "The cluster cache is used and does not run: no cluster is connected until its Start is called, "+
				"by a manager it was added to (mgr.Add or SetupWithManager) or by the program itself")
		}
	})
}

// close cancels the notice.
func (n *notice) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	if n.timer != nil {
		n.timer.Stop()
	}
}

// noticeNoClusters logs that no cluster is known, and why: an operator that
// does not set Discover, or whose Secrets lack a label, would run and do
// nothing.
func (cc *ClusterCache) noticeNoClusters() {
	cc.timers.Set(timetable.NewTimer(func() {
		if len(cc.all()) == 0 {
			cc.log.Info("No cluster is known, " + cc.whyNoClusters())
		}
	}), time.Now().Add(noticeAfter))
}

func (cc *ClusterCache) whyNoClusters() string {
	const ask = "ask for some with Engage, Watch or Declare"
	_, lists := resolver.AsLister(cc.options.Resolver)
	switch {
	case !lists:
		return "and the resolver cannot list any: " + ask
	case !cc.options.Discover:
		return "though the resolver lists clusters: set Options.Discover to have them all, or " + ask
	case !cc.discovery.listed.Load():
		return "and the resolver has not listed any yet"
	}

	return "and the resolver lists none: those that appear are taken up"
}
