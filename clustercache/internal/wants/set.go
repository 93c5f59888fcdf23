// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package wants

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache/internal/definitions"
	"github.com/fleetcache/fleetcache/informerpool"
	"github.com/fleetcache/fleetcache/internal/restmap"
	"github.com/fleetcache/fleetcache/internal/timetable"
)

// ErrStale indicates that the cached state is older than a read allows.
var ErrStale = errors.New("cache too old for this read")

// Config describes the cluster of a [Set], and connects the set to it. The
// functions do not block.
type Config struct {
	// Cluster is the cluster's key, and Name its name in logs.
	Cluster client.ObjectKey
	Name    string
	Logger  logr.Logger
	// Context ends the work of the set.
	Context context.Context //nolint:containedctx // that of the ClusterCache, for work without a caller
	Pool    *informerpool.Pool
	Mapper  *restmap.Mapper
	Timers  *timetable.Timers
	// LookUp queues a job that sends requests. It is called under locks of the
	// set, and does not run the job itself.
	LookUp func(job func())
	// Source and Spawn serve the watches of definitions while kinds are missing
	// (see package definitions). Without a Source there are none.
	Source informerpool.Source
	Spawn  func(func()) bool
	// RequestTimeout bounds a query of discovery, which is repeated after
	// RetryInterval.
	RequestTimeout, RetryInterval time.Duration
	// IdleTimeout is how long a want is kept that only reads in mode AutoWatch
	// use.
	IdleTimeout time.Duration
	// Connected reports whether the cluster is connected, and Epoch which of
	// its histories is served.
	Connected func() bool
	Epoch     func() informerpool.Epoch
	// AddIndexes adds the indexes of a kind that an informer lacks.
	AddIndexes func(*informerpool.Lease, schema.GroupVersionKind)
	// Indexed reports whether a field of a kind has an index.
	Indexed func(gvk schema.GroupVersionKind, field string) bool
	// StaleAfter is how long reads are answered by an informer that follows no
	// watch.
	StaleAfter time.Duration
	// Observed reports whether OnChanged is of interest. OnChanged is called
	// when a want begins or ends, has got a lease, or none for another reason
	// than before, when its informer has changed, and when another want has
	// ended that answered its reads; reads reports whether reads may be
	// answered differently. It is called under locks of the set.
	Observed  func() bool
	OnChanged func(id Selection, reads bool)
	// OnBound is called when a want has got its lease.
	OnBound func(*Want)
	// OnEmpty is called when the last reference was released.
	OnEmpty func()
}

// Set holds what is wanted of one cluster.
type Set struct {
	// Index finds wants, Kinds looks up how their kinds are served, Seen keeps
	// what reads have shown for them, and Lag compares them with each other.
	Index *Index
	Kinds *Kinds
	Seen  *Seen
	Lag   *Lag

	config Config
	idle   *timetable.Timer
	trust  *timetable.Timer
	crds   *definitions.Watcher

	// mu protects what follows. Only the locks of crds, of the index, and of
	// Config's functions are taken under it.
	mu     sync.Mutex
	all    map[Selection]*Want
	closed bool
}

// New returns an empty set. Close ends it.
func New(c Config) *Set {
	s := &Set{config: c, Index: newIndex(), all: map[Selection]*Want{}}
	s.Kinds = newKinds(s)
	s.Seen = &Seen{epoch: c.Epoch, index: s.Index, keep: s.keepSeen}
	s.Lag = &Lag{config: &s.config, index: s.Index}
	s.idle = timetable.NewTimer(s.releaseIdle)
	s.trust = timetable.NewTimer(s.Observe)
	s.crds = definitions.New(definitions.Config{
		Cluster: c.Cluster,
		Context: c.Context,
		Source:  c.Source,
		Spawn:   c.Spawn,
		Changed: s.Kinds.rediscover,
	})
	return s
}

// Acquire takes a reference to a selection, for Release. It returns nil if the
// cluster is being forgotten.
func (s *Set) Acquire(id Selection) *Want { return s.add(id, false) }

// Keep ensures that reads in mode AutoWatch have a reference to a selection,
// and records that it is in use. It returns nil if the cluster is being
// forgotten.
func (s *Set) Keep(id Selection) *Want {
	w := s.add(id, true)
	if w != nil {
		s.config.Timers.SetSooner(s.idle, time.Now().Add(s.config.IdleTimeout)) // another one may be due earlier
	}
	return w
}

// add takes a reference to id: one of its own, or the one of all reads in mode
// AutoWatch.
func (s *Set) add(id Selection, auto bool) *Want {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	w := s.all[id]
	if w == nil {
		w = newWant(id)
		s.all[id] = w
		s.Index.addLocked(w)
		s.config.OnChanged(id, false)
	}
	if auto {
		w.used = time.Now()
	}
	if !auto || !w.auto {
		w.refs++
	}
	w.auto = w.auto || auto
	mapped := w.lease != nil
	s.mu.Unlock()

	if mapped {
		return w
	}
	if m, ok := s.config.Mapper.Cached(id.GVK); ok {
		s.bind(w, m)
	} else {
		s.Kinds.MapNow()
	}

	return w
}

// Any reports whether anything is wanted. Wants that only reads in mode
// AutoWatch keep do not count: they must not keep a cluster that was removed.
func (s *Set) Any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.anyLocked()
}

func (s *Set) anyLocked() bool {
	for _, w := range s.all {
		if !w.auto || w.refs > 1 {
			return true
		}
	}
	return false
}

// CloseIfEmpty makes later calls of Acquire fail if there are no wants but
// those that reads keep, and returns the leases of these.
func (s *Set) CloseIfEmpty() (kept []*informerpool.Lease, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed || s.anyLocked() {
		return nil, s.closed
	}
	s.closed = true
	s.crds.Close()
	for _, w := range s.all {
		w.auto = false
		if lease, _ := s.releaseLocked(w); lease != nil { // no other want is left
			kept = append(kept, lease)
		}
	}

	return kept, true
}

// Close stops the timers, and reports why to the users of wants without a
// lease. Leases end with the pool or with their owners.
func (s *Set) Close(why error) {
	s.mu.Lock()
	s.closed = true
	s.crds.Close()
	for _, w := range s.all {
		w.err = why
		w.broadcast()
	}
	s.mu.Unlock()

	s.Kinds.stop()
	s.config.Timers.Set(s.idle, time.Time{})
	s.config.Timers.Set(s.trust, time.Time{})
}

// Look returns the state of a want: its lease, or why it has none, and a
// channel that is closed when that changes.
func (s *Set) Look(w *Want) (lease *informerpool.Lease, changed <-chan struct{}, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.lease, w.changed, w.err
}

// Count returns the number of wants, and of those whose kind was not found yet.
func (s *Set) Count() (wanted, unmapped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.lease == nil {
			unmapped++
		}
	}
	return len(s.all), unmapped
}

// Failing returns the number of wants that have no informer and a reason for
// that, such as that the cluster does not serve their kind, and the first of
// them with its reason.
func (s *Set) Failing() (n int, first *Want, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.lease != nil || w.err == nil {
			continue
		}
		n++
		if first == nil || w.Compare(first.Selection) < 0 {
			first, why = w, w.err
		}
	}
	return n, first, why
}

// Find returns the want of a selection, or nil.
func (s *Set) Find(id Selection) *Want {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

// All returns every want.
func (s *Set) All() []*Want {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// LastRead returns when reads in mode AutoWatch last used a want; zero if they
// do not keep it.
func (s *Set) LastRead(w *Want) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.auto {
		return time.Time{}
	}
	return w.used
}

// References returns the number of references to a want.
func (s *Set) References(w *Want) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(w.refs, 0)
}
