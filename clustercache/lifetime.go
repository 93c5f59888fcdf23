// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"sync"
	"sync/atomic"
)

// lifetime is that of a ClusterCache: from New to the end of Start.
type lifetime struct {
	ctx    context.Context //nolint:containedctx // the cache's own life, from New to the end of Start
	cancel context.CancelCauseFunc

	unstarted notice        // warns if the cache is used and never started
	live      atomic.Bool   // set at the beginning of Start
	running   chan struct{} // closed at the beginning of Start

	tasks sync.WaitGroup // every goroutine; Add is called under mu
	mu    struct {
		sync.Mutex // nothing else is locked under it

		started, stopped bool
	}
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
