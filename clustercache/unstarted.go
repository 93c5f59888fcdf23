// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
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

// close cancels the notice.
func (n *notice) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	if n.timer != nil {
		n.timer.Stop()
	}
}
