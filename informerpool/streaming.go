// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package informerpool

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleetcache/fleetcache/internal/wire"
)

// capabilityAge is how long a server's missing capability is remembered.
// Servers are upgraded, downgraded and replaced in place.
const capabilityAge = 10 * time.Minute

const (
	// initialSilence bounds the silence within the initial objects of a stream.
	initialSilence = 30 * time.Second
	// maxRepeats bounds how often such a stream repeats objects.
	maxRepeats = 1000
	// maxChanges bounds how long it shows changes before its end, and
	// maxInitial how long it lasts.
	maxChanges = time.Minute
	maxInitial = 20 * time.Minute
)

var (
	// errNoStream indicates that a server treated a request for a streamed list
	// as one for a plain watch.
	errNoStream = errors.New("server does not stream lists")
	// errEndless indicates that a server streams a list that does not end.
	errEndless = fmt.Errorf("%w: it began one and did not end it", errNoStream)
)

// abilities are what the reflector has learned about how its server lists and
// watches the resource.
type abilities struct {
	ends        bool      // it has ended a list that it streamed
	silent      bool      // its watches have carried nothing while nothing changed
	bookmarks   bool      // its watches carry bookmarks while nothing changes
	unwatchable time.Time // until when it is not asked to watch, having refused once
	smaller     int       // how often the size of pages was halved
}

// endless bounds the initial objects of a stream. A server that treats the
// request as one for a plain watch keeps sending changes for ever, and the list
// would never be complete.
type endless struct {
	began, changing time.Time
}

// passed reports whether a frame comes too late to be part of a list.
func (b *endless) passed(frame string, repeats int) bool {
	now := time.Now()
	if b.began.IsZero() {
		b.began = now
	}
	if b.changing.IsZero() && (frame == wire.Modified || frame == wire.Deleted) {
		b.changing = now
	}
	return repeats > maxRepeats || now.Sub(b.began) > maxInitial || !b.changing.IsZero() && now.Sub(b.changing) > maxChanges
}

// cannotStream reports whether an error may mean that the server does not
// support streamed lists: older servers refuse the parameters, the oldest
// ignore them. If the error has another cause, the paged list that follows
// fails alike.
func cannotStream(err error) bool {
	if errors.Is(err, errNoStream) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusGone, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500 || code == http.StatusNotImplemented
	}
}

// maxUnstreamed is how many streamed lists in a row may fail inside a server
// before a paged one is tried.
const maxUnstreamed = 3

// pagedGroups are the API groups of a cluster whose server does not stream
// lists, each with the time when that was found. A group may have a server of
// its own.
type pagedGroups struct {
	mu    sync.Mutex // protects since; no other lock is taken under it
	since map[string]time.Time
}

// pages records that the key's server does not stream lists; they are paged
// from now on.
func (g *pagedGroups) pages(k Key) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.since == nil {
		g.since = map[string]time.Time{}
	}
	maps.DeleteFunc(g.since, func(_ string, since time.Time) bool { return time.Since(since) > capabilityAge })
	g.since[k.Resource.Group] = time.Now()
}

// paged reports whether the key's server was recently found not to stream
// lists.
func (g *pagedGroups) paged(k Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	since, ok := g.since[k.Resource.Group]
	if ok && time.Since(since) > capabilityAge {
		delete(g.since, k.Resource.Group)
		return false
	}
	return ok
}

// forget drops all findings: another server may answer now.
func (g *pagedGroups) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.since)
}

// paged reports whether lists are requested in pages.
func (r *reflector) paged() bool {
	return r.options.PagedLists || !r.server.watchable() || r.informer.cluster.paged(r.informer.key)
}

// watchable reports whether watches of the resource are requested.
func (a *abilities) watchable() bool { return time.Now().After(a.unwatchable) }

// pageSize returns how many objects a page is requested with.
func (a *abilities) pageSize(o *Options) int64 { return max(o.PageSize>>a.smaller, 1) }

// shrink makes the pages of the next list smaller after one was too large: the
// objects in it may be valid.
func (a *abilities) shrink(limit int64, err error) {
	if e, ok := errors.AsType[*wire.LimitError](err); ok && e.What == wire.ResponseBytes && limit > 1 {
		a.smaller++
	}
}
