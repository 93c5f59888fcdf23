// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercachetest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/fakeapi"
)

// Request is a request that a cluster has received, except those of its
// administrator.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection; for a path that names no resource, it is the HTTP
	// method in lower case.
	Verb            string
	Group, Version  string
	Resource        string // plural; empty for a path that names none
	Subresource     string
	Namespace, Name string
	Path, Query     string
	UserAgent       string
	// Initial reports whether a watch begins with the existing objects: a
	// streamed list.
	Initial bool
}

func requestOf(r *fakeapi.Request) Request {
	return Request{
		Verb:        r.Verb,
		Group:       r.Group,
		Version:     r.Version,
		Resource:    r.Resource,
		Subresource: r.Subresource,
		Namespace:   r.Namespace,
		Name:        r.Name,
		Path:        r.Path,
		Query:       r.Query,
		UserAgent:   r.UserAgent,
		Initial:     r.Stream,
	}
}

// Match selects requests.
type Match func(Request) bool

// Verb matches requests with one of the verbs.
func Verb(verbs ...string) Match {
	return func(r Request) bool { return slices.Contains(verbs, r.Verb) }
}

// Resource matches requests for a resource, named by its plural, alone or as
// plural.group.
func Resource(name string) Match {
	return func(r Request) bool {
		plural, group, qualified := strings.Cut(name, ".")
		return r.Resource == plural && (!qualified || r.Group == group)
	}
}

// Write matches requests for a change.
func Write() Match {
	return Verb("create", "update", "patch", "delete", "deletecollection")
}

func all(matches []Match, r Request) bool {
	return !slices.ContainsFunc(matches, func(m Match) bool { return !m(r) })
}

// Requests returns the requests that the cluster received and all matches
// match, in order.
func (c *Cluster) Requests(matches ...Match) []Request {
	var out []Request
	for _, r := range c.server.Requests(nil) {
		if r := requestOf(&r); all(matches, r) {
			out = append(out, r)
		}
	}
	return out
}

// fault is the fate of matching requests.
type fault struct {
	err     error
	matches []Match
}

// Fail makes the cluster answer requests that all matches match with an error,
// until heal is called; without a match all requests. Open watches that match
// end. An error of apimachinery's errors package is answered as by an API
// server, and [Status] makes such an answer of a plain code; any other error
// breaks the connection. If several faults match, the latest counts.
func (c *Cluster) Fail(err error, matches ...Match) (heal func()) {
	f := &fault{err: err, matches: matches}
	c.mu.Lock()
	c.faults = append(c.faults, f)
	c.mu.Unlock()

	c.server.Cut(func(r *fakeapi.Request) bool { return !r.Admin && all(matches, requestOf(r)) })

	return func() {
		c.mu.Lock()
		c.faults = slices.DeleteFunc(c.faults, func(x *fault) bool { return x == f })
		healed := len(c.faults) == 0
		c.mu.Unlock()

		if healed {
			c.reissue()
		}
	}
}

// codeError is an answer with only a code.
type codeError int

// Error implements error.
func (s codeError) Error() string { return fmt.Sprintf("status %d", int(s)) }

// Status returns the error with which an API server answers a request for the
// given code: for 403 it names the user and the forbidden action, for 429 and
// 503 it asks the client to retry in a second.
func Status(code int) error { return codeError(code) }

// answer returns the error as it is sent.
func (f *fault) answer(r *fakeapi.Request) error {
	code, ok := errors.AsType[codeError](f.err)
	if !ok {
		return f.err
	}
	gr := schema.GroupResource{Group: r.Group, Resource: r.Resource}
	switch int(code) {
	case http.StatusForbidden:
		return fakeapi.Forbidden(r)
	case http.StatusUnauthorized:
		return apierrors.NewUnauthorized("Unauthorized")
	case http.StatusTooManyRequests:
		return apierrors.NewTooManyRequests("too many requests, please try again later", 1)
	}

	after := 0
	if int(code) == http.StatusServiceUnavailable {
		after = 1
	}

	return apierrors.NewGenericServerResponse(int(code), r.Verb, gr, r.Name, "", after, true)
}

func (c *Cluster) intercept(r *fakeapi.Request) *fakeapi.Fault {
	c.mu.Lock()
	faults := slices.Clone(c.faults)
	c.mu.Unlock()

	seen := requestOf(r)
	for _, f := range slices.Backward(faults) {
		if all(f.matches, seen) {
			return &fakeapi.Fault{Err: f.answer(r)}
		}
	}
	if r.Writes() {
		return c.fleet.writes.pass()
	}
	return nil
}

// writeGate interrupts writers.
type writeGate struct {
	mu   sync.Mutex // protects the fields below
	open *Interruption
}

func (g *writeGate) pass() *fakeapi.Fault {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		return nil
	}
	return g.open.pass()
}

// Interruption is a crash of the writer to the clusters of a fleet, as the
// clusters see it: from some write on, none is carried out.
type Interruption struct {
	gate  *writeGate
	last  int  // number of writes that are carried out
	lose  bool // whether the answer to the last one is lost
	count int  // guarded by the gate's lock
	hit   atomic.Bool
}

// errInterrupted is the error that an interrupted writer receives.
var errInterrupted = &apierrors.StatusError{
	ErrStatus: apierrors.NewInternalError(errors.New("interrupted by clustercachetest")).ErrStatus,
}

// IsInterrupted reports whether an error is that of a write that was stopped by
// an [Interruption].
func IsInterrupted(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "interrupted by clustercachetest")
}

func (i *Interruption) pass() *fakeapi.Fault {
	i.count++
	switch {
	case i.count <= i.last && !i.lose, i.count < i.last:
		return nil
	}
	i.hit.Store(true)
	return &fakeapi.Fault{Err: errInterrupted, Done: i.count == i.last}
}

// InterruptBefore makes the writer to the fleet's clusters crash before its
// n-th write from now, counted from 1 over all clusters: this write and all
// that follow fail, without being carried out, until Interruption.End. Writes
// of the test by Cluster.Client and Cluster.Store do not count.
func (f *Fleet) InterruptBefore(n int) *Interruption { return f.interrupt(&Interruption{last: n - 1}) }

// InterruptAfter is InterruptBefore, except that the n-th write is carried out:
// only its answer is lost.
func (f *Fleet) InterruptAfter(n int) *Interruption {
	return f.interrupt(&Interruption{last: n, lose: true})
}

func (f *Fleet) interrupt(i *Interruption) *Interruption {
	f.t.Helper()
	if i.last < 0 || (i.lose && i.last < 1) {
		f.t.Fatalf("clustercachetest: writes are counted from 1")
	}
	i.gate = &f.writes
	f.writes.mu.Lock()
	defer f.writes.mu.Unlock()
	f.writes.open = i

	return i
}

// End lets writes pass again, as after a restart. It reports whether a write
// was interrupted.
func (i *Interruption) End() bool {
	i.gate.mu.Lock()
	defer i.gate.mu.Unlock()
	if i.gate.open == i {
		i.gate.open = nil
	}
	return i.hit.Load()
}
