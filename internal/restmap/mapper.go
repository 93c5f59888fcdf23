// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mapper maps kinds and resources for one cluster. It does no I/O before its
// first use, runs no goroutine between calls, and needs no closing. It is safe
// for concurrent use.
type Mapper struct {
	table *Table
	do    func(*http.Request) (*http.Response, error)
	base  string
	opts  Options
	uses  *uses

	known   atomic.Pointer[snapshot] // nil before the first discovery
	invalid atomic.Bool
	changes atomic.Int64

	// mu protects everything below. It is never held over I/O.
	mu       sync.Mutex
	flight   *flight // the discovery in progress, if any
	failed   error   // of the last discovery; nil if it succeeded
	failedAt time.Time
	resets   int
}

// flight is a discovery that one caller runs while others wait for it.
type flight struct {
	done      chan struct{} // closed at the end
	err       error         // set before done is closed
	abandoned bool          // only its caller gave up, or it began before a Reset: the others have to repeat it
}

// uses holds a mapper's references to entries of the table. It is separate from
// the mapper, so that the references can be released when the mapper is garbage
// collected.
type uses struct {
	mu         sync.Mutex // protects the fields below
	core, apis *entry
}

// NewMapper returns a mapper for the cluster whose API is reached through do at
// base, a URL without a trailing slash.
func (t *Table) NewMapper(do func(*http.Request) (*http.Response, error), base string, opts Options) *Mapper {
	m := &Mapper{
		table: t,
		do:    do,
		base:  base,
		opts:  opts.withDefaults(),
		uses:  &uses{},
	}
	runtime.AddCleanup(m, func(u *uses) { u.replace(t, nil, nil) }, m.uses)
	return m
}

func (u *uses) replace(t *Table, core, apis *entry) {
	u.mu.Lock()
	oldCore, oldAPIs := u.core, u.apis
	u.core, u.apis = core, apis
	u.mu.Unlock()

	t.drop(oldCore)
	t.drop(oldAPIs)
}

// ResourceFor returns how the kind is served, by the preferred version if gvk
// names none. For a known kind it does no I/O, unless the last discovery is
// older than 10 min; then one caller checks whether it is still valid.
// For an unknown kind, one caller queries the cluster on behalf of all, but not
// more often than Options.NegativeTTL allows. The error for a kind that does
// not exist satisfies meta.IsNoMatchError. The error for a kind that may exist
// wraps ErrUnavailable. Other errors are those of the request; but while a
// server does not answer for a kind of Kubernetes itself, the mapping is
// presumed, for this call alone.
func (m *Mapper) ResourceFor(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	found, err := m.resolve(ctx, question{
		look:  func(s *snapshot) ([]Mapping, bool) { return s.kind(gvk) },
		group: gvk.Group,
		none:  noKind(gvk.GroupKind(), gvk.Version),
	})
	if err != nil {
		return Mapping{}, err
	}
	return found[0], nil
}

// KindFor returns the kind that the resource serves, of the preferred version
// if gvr names none. It works like ResourceFor.
func (m *Mapper) KindFor(ctx context.Context, gvr schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	found, err := m.resolve(ctx, question{
		look:  func(s *snapshot) ([]Mapping, bool) { return s.resource(gvr) },
		group: gvr.Group,
		none:  noResource(gvr),
	})
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return found[0].GroupVersionKind(), nil
}

// Cached is like ResourceFor, but does no I/O. It returns false if the kind is
// not known yet.
func (m *Mapper) Cached(gvk schema.GroupVersionKind) (Mapping, bool) {
	found, _ := m.known.Load().kind(gvk)
	if len(found) == 0 {
		return Mapping{}, false
	}
	return found[0], true
}

// Invalidate makes the next lookup of an unknown kind query the cluster at
// once, for example after a change of a CustomResourceDefinition. Known kinds
// stay known; see Refresh.
func (m *Mapper) Invalidate() { m.invalid.Store(true) }

// Reset forgets everything. It is for a different cluster at the same address,
// or the same cluster with a different history.
func (m *Mapper) Reset() {
	m.mu.Lock()
	m.resets++
	m.failed = nil
	m.flight = nil // it queries the previous cluster; its caller will notice
	m.known.Store(nil)
	m.changes.Add(1)
	m.invalid.Store(true)
	m.mu.Unlock()

	m.uses.replace(m.table, nil, nil)
}

// Changes returns how many times the mapper's knowledge has changed. Callers
// that cache a result compare it.
func (m *Mapper) Changes() int64 { return m.changes.Load() }

// Refresh queries the cluster now, so that kinds which were removed or are
// served differently are detected. It costs two small requests if nothing has
// changed. If a discovery is in progress, Refresh waits for that one instead.
func (m *Mapper) Refresh(ctx context.Context) error {
	m.Invalidate()
	return m.discover(ctx)
}

// noKind returns the error of a kind that does not exist.
func noKind(gk schema.GroupKind, versions ...string) error {
	return &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
}

func noResource(gvr schema.GroupVersionResource) error {
	return &meta.NoResourceMatchError{PartialResource: gvr}
}

// question is what resolve looks for.
type question struct {
	look  func(*snapshot) ([]Mapping, bool)
	group string // the group whose part of discovery decides
	every bool   // all groups decide
	none  error  // the error if there is no match
}

// resolve looks in the current snapshot and, if necessary, again after a
// discovery.
func (m *Mapper) resolve(ctx context.Context, q question) ([]Mapping, error) {
	s := m.known.Load()
	found, _ := q.look(s)
	if len(found) > 0 && !m.outdated(s) {
		return found, nil
	}
	err := m.discover(ctx)
	s = m.known.Load()
	again, unavailable := q.look(s)
	switch {
	case len(again) > 0:
		return again, nil
	case err != nil && len(found) > 0 && s != nil && !s.trusts(q.group, q.every, m.opts.NegativeTTL):
		return found, nil // an old answer, if no newer one is available
	case err != nil && !s.trusts(q.group, q.every, m.opts.NegativeTTL):
		if presumed := s.presume(q, err); len(presumed) > 0 && !errors.Is(ctx.Err(), context.Canceled) {
			return presumed, nil
		}
		return nil, fmt.Errorf("%w: %w", errUndecided(q.none), err)
	case unavailable:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errUndecided(q.none))
	}

	return nil, q.none
}

// outdated reports whether this caller should check the current snapshot again.
// While another caller does, the snapshot is good enough.
func (m *Mapper) outdated(s *snapshot) bool {
	if s.at.IsZero() || time.Since(s.at) < maxAge {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flight != nil || m.failed != nil && time.Since(m.failedAt) < m.opts.NegativeTTL {
		return false
	}
	return true
}

// errUndecided returns an error that names the question without claiming that
// the kind does not exist.
func errUndecided(none error) error {
	return errors.New("unknown whether there are matches: " + none.Error())
}

// recentLocked reports whether the last discovery is recent enough to answer
// "no". Its error, if any, explains why there will be no new discovery now.
func (m *Mapper) recentLocked() (bool, error) {
	if m.invalid.Load() {
		return false, nil
	}
	if m.failed != nil && time.Since(m.failedAt) < errorTTL {
		return true, m.failed
	}
	s := m.known.Load()
	return s != nil && m.failed == nil && time.Since(s.at) < m.opts.NegativeTTL, nil
}

// discover returns once there has been a recent discovery, made by this caller
// or another.
func (m *Mapper) discover(ctx context.Context) error {
	for {
		m.mu.Lock()
		if recent, err := m.recentLocked(); recent {
			m.mu.Unlock()
			return err
		}
		f := m.flight
		if f == nil {
			f = &flight{done: make(chan struct{})}
			m.flight = f
			m.invalid.Store(false) // later invalidations are not covered by this discovery
			m.mu.Unlock()
			return m.lead(ctx, f)
		}

		m.mu.Unlock()

		select {
		case <-f.done:
			if !f.abandoned {
				return f.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lead runs the discovery for all callers that wait on f. The result of either
// path is kept, whatever happened to the other.
func (m *Mapper) lead(ctx context.Context, f *flight) error {
	bounded, cancel := context.WithTimeout(ctx, m.opts.Timeout)
	defer cancel()
	m.mu.Lock()
	resets := m.resets
	m.mu.Unlock()

	next, err := m.ask(bounded)

	m.mu.Lock()
	defer m.mu.Unlock()

	defer close(f.done)

	if m.resets != resets { // the discovery queried the previous cluster
		m.table.drop(next.core.entry)
		m.table.drop(next.apis.entry)
		f.err, f.abandoned = errReset, true
		return errReset
	}

	if old := m.known.Load(); old == nil || old.core.entry != next.core.entry || old.apis.entry != next.apis.entry {
		m.changes.Add(1)
	}
	m.known.Store(next)
	m.uses.replace(m.table, next.core.entry, next.apis.entry)
	m.flight = nil
	f.err = err
	f.abandoned = err != nil && ctx.Err() != nil
	if !f.abandoned {
		m.failed, m.failedAt = err, time.Now()
	} else {
		m.invalid.Store(true)
	}

	return err
}

// ask reads both discovery paths. If a path fails, its old part is kept.
func (m *Mapper) ask(ctx context.Context) (*snapshot, error) {
	var old snapshot
	if s := m.known.Load(); s != nil {
		old = *s
	}
	core, coreErr := m.fetch(ctx, corePath, old.core)
	apis, apisErr := m.fetch(ctx, apisPath, old.apis)
	next := &snapshot{core: core, apis: apis, at: time.Now()}
	if coreErr != nil || apisErr != nil {
		next.at = old.at
	}
	next.kept = old.keep(next)

	return next, errors.Join(coreErr, apisErr)
}
