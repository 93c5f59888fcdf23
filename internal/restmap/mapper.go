// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package restmap

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mapper answers for one cluster. It does no I/O before the first question, runs no goroutine between questions, and
// needs no closing. It is safe for concurrent use.
type Mapper struct {
	table *Table
	do    func(*http.Request) (*http.Response, error)
	base  string
	opts  Options
	uses  *uses

	known   atomic.Pointer[snapshot] // nil before the first discovery
	invalid atomic.Bool

	// mu protects everything below. It is never held over I/O.
	mu       sync.Mutex
	flight   *flight // the discovery under way, if any
	failed   error   // of the last discovery; nil if it succeeded
	failedAt time.Time
}

// flight is a discovery that one caller makes while others wait for it.
type flight struct {
	done      chan struct{} // closed at the end
	err       error         // set before done is closed
	abandoned bool          // only the caller gave up: whoever waits has to do it again
}

// uses holds what a mapper uses of the table, apart from the mapper so that it can be given back when nobody holds the
// mapper any more.
type uses struct {
	mu         sync.Mutex // protects what follows
	core, apis *entry
}

// NewMapper returns a mapper for the cluster whose API do reaches at base, a URL without trailing slash.
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

// ResourceFor returns how the kind is served; by the preferred version if gvk names none. A known kind is answered
// without I/O. Otherwise the cluster is asked, by one caller for all, but not more often than Options.NegativeTTL
// allows. The error of a kind that does not exist satisfies meta.IsNoMatchError; one that cannot be told about wraps
// ErrUnavailable; others are those of the request.
func (m *Mapper) ResourceFor(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	found, err := m.resolve(ctx, func(s *snapshot) ([]Mapping, bool) { return s.kind(gvk) }, noKind(gvk.GroupKind(), gvk.Version))
	if err != nil {
		return Mapping{}, err
	}
	return found[0], nil
}

// KindFor returns the kind that the resource serves; of the preferred version if gvr names none. It works like
// ResourceFor.
func (m *Mapper) KindFor(ctx context.Context, gvr schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	found, err := m.resolve(ctx, func(s *snapshot) ([]Mapping, bool) { return s.resource(gvr) }, noResource(gvr))
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

// Invalidate makes the next question after a kind that is not known ask the cluster at once, as after news of a
// CustomResourceDefinition. Known kinds stay known; see Refresh.
func (m *Mapper) Invalidate() { m.invalid.Store(true) }

// Refresh asks the cluster now, so that kinds which are gone or served otherwise are noticed. It costs two small
// requests if nothing has changed. A discovery that is under way counts.
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

// resolve looks in what is known, and once more after a discovery if need be.
func (m *Mapper) resolve(ctx context.Context, look func(*snapshot) ([]Mapping, bool), none error) ([]Mapping, error) {
	found, _ := look(m.known.Load())
	if len(found) > 0 {
		return found, nil
	}
	if err := m.discover(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errUndecided(none), err)
	}
	found, unavailable := look(m.known.Load())
	switch {
	case len(found) > 0:
		return found, nil
	case unavailable:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errUndecided(none))
	}
	return nil, none
}

// undecided names what was asked for without claiming that it does not exist.
type undecided struct{ text string }

func (u *undecided) Error() string { return u.text }

func errUndecided(none error) error {
	return &undecided{"cannot tell whether there are matches: " + none.Error()}
}

// settled reports whether the last discovery is good enough to say no, or why there will be none now.
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

// discover makes sure that a discovery has been made lately, by this caller or by another.
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

// lead makes the discovery for everybody who waits on f.
func (m *Mapper) lead(ctx context.Context, f *flight) error {
	bounded, cancel := context.WithTimeout(ctx, m.opts.Timeout)
	defer cancel()
	next, err := m.ask(bounded)
	if err == nil {
		m.known.Store(next)
		m.uses.replace(m.table, next.core.entry, next.apis.entry)
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.flight = nil
	f.err = err
	f.abandoned = err != nil && ctx.Err() != nil
	if !f.abandoned {
		m.failed, m.failedAt = err, time.Now()
	} else {
		m.invalid.Store(true)
	}
	close(f.done)
	return err
}

// ask reads both discovery paths.
func (m *Mapper) ask(ctx context.Context) (*snapshot, error) {
	var old snapshot
	if s := m.known.Load(); s != nil {
		old = *s
	}
	core, err := m.fetch(ctx, corePath, old.core)
	if err != nil {
		return nil, err
	}
	apis, err := m.fetch(ctx, apisPath, old.apis)
	if err != nil {
		m.table.drop(core.entry)
		return nil, err
	}
	next := &snapshot{core: core, apis: apis, at: time.Now()}
	next.kept = old.keep(next)
	return next, nil
}
