// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// auditPromptly is the latest start of the audit of an informer whose own
// server was away, not counting the wait for earlier audits.
const auditPromptly = 5 * time.Second

// An aggregated API server that keeps its objects in memory begins a new
// history when it restarts. If that history has reached the informer's version,
// the informer is resumed, and nothing in its stream shows that the objects are
// others. The only hint comes from the kube-apiserver in front of it, which
// reports meanwhile that the server is not available. The resource of a CRD
// cannot be distinguished from an aggregated one, nor is every restart of this
// kind. The informer is therefore audited, which costs little, instead of
// listing.

// unavailable reports whether an error is the response of a server in front of
// another one that is not there.
func unavailable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// resumed schedules an audit of an informer that resumes after its server was
// not available. since is when it was last followed.
func (r *reflector) resumed(since time.Time) {
	away := r.failures.away
	r.failures.away = false
	if !away || r.options.AuditInterval <= 0 || builtIn(r.informer.key.Resource.Group) {
		return
	}
	at := time.Now().Add(auditSoon + rand.N(auditSpread)) // as if the whole cluster had been away
	if r.awayAlone(since) {
		at = time.Now().Add(rand.N(auditPromptly))
	}
	p := r.informer.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.closed && p.mu.informers[r.informer.key] == r.informer {
		p.bringForwardLocked(r.informer, at)
		p.wakeAuditsLocked()
	}
}

// awayAlone reports whether only the informer's own server was away: an
// informer of a resource of Kubernetes itself has followed its server all the
// time.
func (r *reflector) awayAlone(since time.Time) bool {
	for _, i := range r.informer.pool.of(r.informer.key.Cluster) {
		if builtIn(i.key.Resource.Group) && i.followedSince(since) {
			return true
		}
	}
	return false
}

// unfollowed returns since when the informer has not followed its server; zero
// if it follows it.
func (i *informer) unfollowed() time.Time {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.mu.detached
}

// followedSince reports whether an informer has followed its server
// continuously since t.
func (i *informer) followedSince(t time.Time) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.mu.state == StateSynced && i.mu.detached.IsZero() && i.mu.since.Before(t)
}
