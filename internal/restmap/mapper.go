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

// Mapper answers for one cluster. It does no I/O before the first question,
// runs no goroutine between questions, and needs no closing. It is safe for
// concurrent use.
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
	flight   *flight // the discovery under way, if any
	failed   error   // of the last discovery; nil if it succeeded
	failedAt time.Time
	resets   int
}

// flight is a discovery that one caller makes while others wait for it.
type flight struct {
	done      chan struct{} // closed at the end
	err       error         // set before done is closed
	abandoned bool          // only the caller gave up, or it was of before a Reset: whoever waits has to do it again
}

// uses holds what a mapper uses of the table, apart from the mapper so that it
// can be given back when nobody holds the mapper any more.
type uses struct {
	mu         sync.Mutex // protects what follows
	core, apis *entry
}

// NewMapper returns a mapper for the cluster whose API do reaches at base, a
// URL without trailing slash.
func (t *Table) NewMapper(do func(*http.Request) (*http.Response, error), base string, opts Options) *Mapper {
	m := &Mapper{table: t, do: do, base: base, opts: opts.withDefaults(), uses: &uses{}}
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

// ResourceFor returns how the kind is served; by the preferred version if gvk
// names none. A known kind is answered without I/O, unless what is known is
// older than Options.MaxAge: then one caller looks whether it still holds.
// Otherwise the cluster is asked, by one caller for all, but not more often
// than Options.NegativeTTL allows. The error of a kind that does not exist
// satisfies meta.IsNoMatchError; one that cannot be told about wraps
// ErrUnavailable; others are those of the request.
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

// KindFor returns the kind that the resource serves; of the preferred version
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

// Cached is ResourceFor without I/O: false if the kind is not known yet.
func (m *Mapper) Cached(gvk schema.GroupVersionKind) (Mapping, bool) {
	found, _ := m.known.Load().kind(gvk)
	if len(found) == 0 {
		return Mapping{}, false
	}
	return found[0], true
}

// Invalidate makes the next question after a kind that is not known ask the
// cluster at once, as after news of a CustomResourceDefinition. Known kinds
// stay known; see Refresh.
func (m *Mapper) Invalidate() { m.invalid.Store(true) }

// Reset forgets everything: another cluster answers, or another history of it.
func (m *Mapper) Reset() {
	m.mu.Lock()
	m.resets++
	m.failed = nil
	m.flight = nil // it asks who answered before; its caller finds out
	m.known.Store(nil)
	m.changes.Add(1)
	m.invalid.Store(true)
	m.mu.Unlock()
	m.uses.replace(m.table, nil, nil)
}

// Changes counts how often what is known has become different: who remembers an
// answer compares.
func (m *Mapper) Changes() int64 { return m.changes.Load() }

// Refresh asks the cluster now, so that kinds which are gone or served
// otherwise are noticed. It costs two small requests if nothing has changed. A
// discovery that is under way counts.
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

// question is what a resolve looks for.
type question struct {
	look  func(*snapshot) ([]Mapping, bool)
	group string // whose part of discovery decides
	every bool   // all groups do
	none  error  // says that there is no match
}

// resolve looks in what is known, and once more after a discovery if need be.
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
		return found, nil // an old answer, and no newer one to be had
	case err != nil && !s.trusts(q.group, q.every, m.opts.NegativeTTL):
		return nil, fmt.Errorf("%w: %w", errUndecided(q.none), err)
	case unavailable:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errUndecided(q.none))
	}
	return nil, q.none
}

// outdated reports whether what is known should be looked at again, by this
// caller. While another one does, what is known is good enough.
func (m *Mapper) outdated(s *snapshot) bool {
	if s.at.IsZero() || time.Since(s.at) < m.opts.MaxAge {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flight != nil || m.failed != nil && time.Since(m.failedAt) < m.opts.NegativeTTL {
		return false
	}
	return true
}

// undecided names what was asked for without claiming that it does not exist.
type undecided struct{ text string }

func (u *undecided) Error() string { return u.text }

func errUndecided(none error) error {
	return &undecided{"cannot tell whether there are matches: " + none.Error()}
}

// settled reports whether the last discovery is good enough to say no, or why
// there will be none now.
func (m *Mapper) settledLocked() (bool, error) {
	if m.invalid.Load() {
		return false, nil
	}
	if m.failed != nil && time.Since(m.failedAt) < errorTTL {
		return true, m.failed
	}
	s := m.known.Load()
	return s != nil && m.failed == nil && time.Since(s.at) < m.opts.NegativeTTL, nil
}

// discover makes sure that a discovery has been made lately, by this caller or
// by another.
func (m *Mapper) discover(ctx context.Context) error {
	for {
		m.mu.Lock()
		if settled, err := m.settledLocked(); settled {
			m.mu.Unlock()
			return err
		}
		f := m.flight
		if f == nil {
			f = &flight{done: make(chan struct{})}
			m.flight = f
			m.invalid.Store(false) // what is invalidated from here on is not covered by this discovery
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

// lead makes the discovery for everybody who waits on f. What one of the two
// paths answered is kept, whatever became of the other.
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

	if m.resets != resets { // another cluster was asked
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

// ask reads both discovery paths. A path that does not answer keeps its old
// part.
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
