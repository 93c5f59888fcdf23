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

// auditPromptly is when an audit begins at the latest, but for those before it,
// of an informer whose own server was away.
const auditPromptly = 5 * time.Second

// An aggregated API server that keeps its objects in memory begins a new
// history when it restarts. If that has reached the version which an informer
// was at, the informer is resumed, and nothing in its stream says that the
// objects are others. What says so is the kube-apiserver in front of it, which
// answers that the server is not available meanwhile. The resource of a CRD
// cannot be told from an aggregated one, nor is every restart one of that kind,
// so that what follows is an audit, which costs little, and no list.

// unavailable reports whether an error is the answer of a server in front of
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

// resumed has an informer audited that goes on after its server was not
// available, and had not been followed since a time.
func (f *feed) resumed(since time.Time) {
	away := f.away
	f.away = false
	if !away || f.options.AuditInterval <= 0 || builtIn(f.key.Resource.Group) {
		return
	}
	at := time.Now().Add(auditSoon + rand.N(auditSpread)) // as where the whole cluster was away
	if f.awayAlone(since) {
		at = time.Now().Add(rand.N(auditPromptly))
	}
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && p.entries[f.key] == f.entry {
		p.bringForwardLocked(f.entry, at)
		p.wakeAuditsLocked()
	}
}

// awayAlone reports whether the cluster answered others while it did not the
// informer: one of a resource of Kubernetes itself has not failed since.
func (f *feed) awayAlone(since time.Time) bool {
	for _, e := range f.pool.of(f.key.Cluster) {
		if builtIn(e.key.Resource.Group) && e.followedSince(since) {
			return true
		}
	}
	return false
}

// unfollowed returns since when the informer has not followed its server; zero
// if it does.
func (e *entry) unfollowed() time.Time {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.detached
}

// followedSince reports whether an informer has followed its server from a time
// on until now.
func (e *entry) followedSince(t time.Time) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.state == StateSynced && e.detached.IsZero() && e.since.Before(t)
}
