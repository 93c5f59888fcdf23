// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// remapInterval is how old the results of discovery for watched kinds may get.
const remapInterval = 10 * time.Minute

// remap checks periodically, and when there is a reason, whether watched kinds
// are still served as they were. A definition that is deleted and created again
// may have another scope or plural, and another cluster may take the old one's
// place.
type remap struct {
	s   *holds
	due *timetable.Timer

	mu      sync.Mutex // protects what follows; taken before the locks of holds and timers
	running bool
	again   bool // there was a reason while running
	last    time.Time
}

func (r *remap) init(s *holds) {
	r.s = s
	r.due = timetable.NewTimer(r.now)
}

// later schedules the next check, unless an earlier one is due.
func (r *remap) later() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() {
		r.last = time.Now()
		r.s.c.cc.timers.Set(r.due, r.last.Add(remapInterval-rand.N(remapInterval/5)))
	}
}

// soon schedules a check, but not more often than every Options.RetryInterval.
func (r *remap) soon() {
	r.mu.Lock()
	next := r.last.Add(r.s.c.cc.options.RetryInterval)
	if wait := time.Until(next); wait > 0 && !r.running {
		r.s.c.cc.timers.Set(r.due, next)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()

	r.now()
}

// now lets a worker check, if anything is watched and the cluster is connected.
func (r *remap) now() {
	if !r.s.c.view.Load().connected || len(r.s.byKind.Load().readable) == 0 {
		return // called again on connecting
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.running {
		r.again = true
		return
	}
	r.running = true
	r.s.c.cc.lookUp.submit(r.look)
}

// look queries the cluster, and moves the holds whose kind is served
// differently now.
func (r *remap) look() {
	s := r.s
	ctx, cancel := context.WithTimeout(s.c.cc.ctx, s.c.cc.options.RequestTimeout)
	err := s.c.mapper.Refresh(ctx)
	cancel()
	missing := false
	for _, h := range s.leases() {
		if m, known := s.c.mapper.Cached(h.id.gvk); known {
			s.rebind(h, m)
		} else {
			missing = true // it may return with another scope, and no informer would fail
		}
	}

	s.mapNow()
	r.mu.Lock()
	defer r.mu.Unlock()

	r.running, r.last = false, time.Now()
	wait := remapInterval - rand.N(remapInterval/5)
	if err != nil || missing || r.again {
		wait = s.c.cc.options.RetryInterval
	}
	r.again = false
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()

	if !closed {
		s.c.cc.timers.Set(r.due, r.last.Add(wait))
	}
}

// rebind moves a hold's lease to the resource that now serves its kind. Watches
// and handlers stay, and receive the deletes and adds.
func (s *holds) rebind(h *hold, m restmap.Mapping) {
	old := h.mapping.Load()
	if old == nil || *old == m {
		return
	}
	lease, _, _ := s.look(h)
	if lease == nil || !m.Can(restmap.List) {
		return
	}
	h.mapping.Store(&m)
	key := s.key(h, m)
	if key == lease.Key() {
		return
	}
	if err := lease.Retarget(s.c.cc.ctx, key); err != nil {
		return // it was released meanwhile
	}
	s.c.cc.log.Info("Kind is served otherwise now", "cluster", s.c.name, "kind", kindName(h.id.gvk), "resource", m.Resource.Resource)
	s.c.cc.addIndexes(s.c, lease, h.id.gvk)
	s.mu.Lock()
	h.broadcast()
	s.mu.Unlock()
}

// key returns the key under which a hold acquires its informer from the pool.
func (s *holds) key(h *hold, m restmap.Mapping) informerpool.Key {
	key := informerpool.Key{
		Cluster:       s.c.key,
		Resource:      m.Resource,
		Kind:          h.id.gvk.Kind,
		Namespace:     h.id.namespace,
		LabelSelector: h.id.labels,
		FieldSelector: h.id.fields,
	}
	if !m.Namespaced {
		key.Namespace = ""
	}
	if canonical, err := key.Canonical(); err == nil {
		return canonical
	}
	return key // Acquire returns the error
}

// ErrNotWatchable indicates that a kind can be read but not watched: its
// resource has no verb list, or, for reads in mode AutoWatch, no verb watch.
// Reads of it go to the API server. A Watch of a kind that can only be listed
// is polled.
var ErrNotWatchable = errors.New("kind cannot be watched")

// watchable returns why a hold gets no informer, or nil.
func (s *holds) watchable(h *hold, m restmap.Mapping) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Can(restmap.List|restmap.Watch) || m.Can(restmap.List) && (!h.auto || h.refs != 1) {
		return nil
	}
	return ErrNotWatchable
}

// polled reports whether the kind can only be listed, by discovery or by what
// the server does. A cached answer is then as old as the last poll.
func (h *hold) polled() bool {
	m := h.mapping.Load()
	return m != nil && !m.Can(restmap.Watch) || h.lease.Polls()
}

// informerFailed is called with the failed attempts of informers.
func (cc *ClusterCache) informerFailed(key informerpool.Key, err error) {
	if misdirected(err) || apierrors.IsNotFound(err) {
		if c := cc.find(key.Cluster); c != nil {
			c.holds.remap.soon()
		}
	}
	if told := cc.options.Informers.OnFailed; told != nil {
		told(key, err)
	}
}

// relisted is called for lists that an informer has taken over. An informer
// lists again after a definition was deleted and created again, though that may
// happen so fast that none of its attempts fails. Resources that Kubernetes
// itself serves do not change that way.
func (r *remap) relisted(key informerpool.Key) {
	if restmap.BuiltIn(key.Resource.Group) {
		return
	}
	for _, h := range r.s.leases() {
		if h.lease.Key() == key && !h.polled() && h.lease.Status().Resyncs > 0 {
			r.soon()
			return
		}
	}
}

// misdirected reports whether an error may mean that the requested resource is
// not the one that serves the kind.
func misdirected(err error) bool {
	return apierrors.IsMethodNotSupported(err) || meta.IsNoMatchError(err) || errors.Is(err, informerpool.ErrOtherVersion)
}
