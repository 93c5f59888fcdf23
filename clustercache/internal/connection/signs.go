// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// signs are what answers reveal about a server besides its identity.
type signs struct {
	busy         busyness
	certificates certificates
	recovery     recovery
	rollbacks    rollbacks
	unhealthy    atomic.Bool   // the last health query was answered so
	opinions     *rate.Limiter // of queries over new connections because of that
}

// every returns a limiter of what is done once in a time.
func every(pause time.Duration) *rate.Limiter { return rate.NewLimiter(rate.Every(pause), 1) }

// busyness records which queries the API server last answered with 429. Such a
// server is alive, and its watches work, so its cluster stays connected. The
// cluster's status reports why other requests may fail.
//
// Probes and identity proofs are recorded apart: a probe is often exempt from
// the limit that other requests meet, and its answer must not hide theirs.
type busyness struct {
	probe, proof atomic.Pointer[error]
}

// note keeps a 429 until the same query has another result.
func note(at *atomic.Pointer[error], err error) {
	if transport.Classify(err) == transport.Throttled {
		at.Store(&err)
		return
	}
	at.Store(nil)
}

// cause returns the 429, or nil if the server is not busy.
func (b *busyness) cause() error {
	for _, at := range []*atomic.Pointer[error]{&b.proof, &b.probe} {
		if err := at.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// maxCertificates is how many certificates are remembered for one cluster. Each
// server of a control plane may have its own.
const maxCertificates = 16

// certificates holds those that a cluster's servers have shown. A new one
// belongs to a server that was replaced, renewed or restored: the caches are
// audited against it soon.
type certificates struct {
	mu    sync.Mutex // protects known; nothing else is locked under it
	known []transport.Fingerprint
}

// add records a certificate, and reports whether it is new and not the first.
// The zero fingerprint is no certificate.
func (s *certificates) add(f transport.Fingerprint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if f == (transport.Fingerprint{}) || slices.Contains(s.known, f) {
		return false
	}
	first := len(s.known) == 0
	s.known = append(s.known, f)
	if len(s.known) > maxCertificates {
		s.known = slices.Delete(s.known, 0, 1)
	}

	return !first
}

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

// rollbackWindow is how far apart changes of the histories of two groups may be
// detected and still count as one event.
const rollbackWindow = time.Minute

// foreignInterval is how often two groups are believed of which Kubernetes
// itself stores none.
const foreignInterval = time.Hour

// rollbacks distinguishes a cluster whose history went back from a single API
// group with a history of its own.
type rollbacks struct {
	mu      sync.Mutex // protects what follows; nothing else is locked under it
	group   string     // whose history last changed
	at      time.Time  // when; zero: never
	foreign time.Time  // when two groups that may have a store of their own were last believed
}

// spread records that the history of a group has changed, and reports whether
// that of the cluster has: it has if the group is the core one, and if two
// groups went back together, since they share a store. Two that one aggregated
// API may serve, with a store of its own, are believed once an hour: a restored
// cluster must not be missed, and an API that often begins anew costs the
// others little.
func (r *rollbacks) spread(group string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	together := !r.at.IsZero() && r.group != group && now.Sub(r.at) <= rollbackWindow
	if together && !ofKubernetes(group) && !ofKubernetes(r.group) {
		together = r.foreign.IsZero() || now.Sub(r.foreign) >= foreignInterval
		if together {
			r.foreign = now
		}
	}
	r.group, r.at = group, now
	return group == "" || together
}

// ofKubernetes reports whether the cluster's own API server stores a group, by
// its name. Those of metrics have servers of their own.
func ofKubernetes(group string) bool {
	return restmap.BuiltIn(group) && !strings.HasSuffix(group, "metrics.k8s.io")
}
