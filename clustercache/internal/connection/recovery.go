// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetcache/fleetcache/internal/transport"
)

const (
	firstRecovery = time.Second
	maxRecovery   = 16 * time.Second
	// calm is how long ago the last recovery must have been for the next one to
	// count as the first.
	calm = time.Minute
)

// recovery decides which answer of a cluster wakes its informers: the first one
// after a failure. Each informer may be waiting for a pause to end that began
// while nothing was answered.
//
// A server may answer some requests and fail others all the time, for example
// behind a gateway that passes lists and not watches. Then every attempt is a
// failure and a success at once, and its success must not end the pauses of all
// informers, its own included: nothing would slow them down. So there is a
// pause between recoveries, which grows while they follow each other.
type recovery struct {
	troubled atomic.Bool // a request failed since a recovery

	mu    sync.Mutex    // protects what follows; nothing else is locked under it
	last  time.Time     // when the last recovery was
	pause time.Duration // how long after it there is none
}

func (r *recovery) failed() { r.troubled.Store(true) }

// succeeded reports whether a request that was answered now is a recovery.
func (r *recovery) succeeded(now time.Time) bool {
	if !r.troubled.Load() {
		return false // the usual case takes no lock
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	since := now.Sub(r.last)
	if since < r.pause || !r.troubled.Swap(false) {
		return false // the failure stays recorded: a later success is the recovery
	}
	r.pause = min(2*r.pause, maxRecovery)
	if since >= calm {
		r.pause = firstRecovery
	}
	r.last = now

	return true
}

// noteOutcome records whether a request of an informer succeeded.
func (c *Connection) noteOutcome(resp *http.Response, err error) {
	class := transport.Classify(err)
	switch {
	case err == nil && resp.StatusCode < http.StatusBadRequest:
		if c.signs.recovery.succeeded(time.Now()) {
			c.hooks.Recovered()
		}
	case err == nil &&
		(resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusInternalServerError),
		class == transport.Unreachable, class == transport.Timeout:
		c.signs.recovery.failed()
	}
}
