// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

// Transport is the only path to one remote cluster. It is safe for concurrent
// use. It starts open and without access: see [Transport.Swap].
type Transport struct {
	opts   Options
	base   *url.URL // placeholder
	client *http.Client
	reader *http.Client
	bucket *rate.Limiter // nil means no limit

	born    time.Time
	life    atomic.Int64 // age at the last proof of life; 0 means none yet
	streams atomic.Int64

	running sync.WaitGroup // requests until their response header has arrived; Add happens under mu

	// mu protects everything below. It is never held over I/O.
	mu      sync.Mutex
	closed  bool
	cause   error         // why the transport is shut; nil while it is open
	shut    chan struct{} // closed while the transport is shut
	current *generation   // nil before the first Swap
	gens    map[*generation]struct{}
}

// New returns a Transport that does no I/O until it has access to the cluster.
func New(opts Options) *Transport {
	s := &Transport{
		opts: opts.withDefaults(),
		base: &url.URL{Scheme: "https", Host: placeholder(opts.Cluster)},
		born: time.Now(),
		shut: make(chan struct{}),
		gens: map[*generation]struct{}{},
	}
	s.bucket = newBucket(s.opts)
	s.client = newClient(&roundTripper{s: s})
	s.reader = newClient(&roundTripper{s: s, stream: true})
	return s
}

func newClient(d *roundTripper) *http.Client {
	return &http.Client{
		Transport: d,
		// The roundTripper refuses redirects itself; this covers redirects that
		// a config's own round trippers may make up.
		CheckRedirect: func(*http.Request, []*http.Request) error { return ErrRefused },
	}
}

// placeholder returns a host name for the cluster that can never be resolved.
func placeholder(cluster string) string {
	label := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(cluster))
	label = strings.Trim(label[:min(len(label), 63)], "-")
	if label == "" {
		label = "hub"
	}
	return label + ".cluster.invalid"
}

// Client returns the client for requests to the cluster, which must be
// addressed to URL. The client has no timeout and no cookies, and refuses
// redirects. Successful bodies, except those of watches, are bounded by
// Options.MaxUnaryBody.
func (s *Transport) Client() *http.Client { return s.client }

// StreamClient is like Client, but sets no budget for successful bodies. It is
// for readers that account for everything they keep of a body.
func (s *Transport) StreamClient() *http.Client { return s.reader }

// Do sends a request like Client().Do, but returns bare *Error values:
// http.Client includes the URL with its query in the text of every error.
func (s *Transport) Do(req *http.Request) (*http.Response, error) {
	return s.client.Transport.RoundTrip(req)
}

// URL returns the base URL to which requests must be addressed. It never
// changes and names no real host.
func (s *Transport) URL() string { return s.base.String() }

// Swap makes new requests use cfg. Running requests and streams keep the access
// they started with; its connections are closed once they have ended. Apart
// from reading the files that cfg names, Swap does no I/O. It neither opens the
// transport nor proves anything: see Open and Candidate.
func (s *Transport) Swap(cfg *rest.Config, revision string) error {
	c, err := s.Candidate(cfg, revision)
	if err != nil {
		return err
	}
	return c.Use()
}

// Revision returns the revision of the access in use. It is empty before the
// first Swap.
func (s *Transport) Revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.current == nil {
		return ""
	}
	return s.current.revision
}

// Streams returns how many watches are running.
func (s *Transport) Streams() int { return int(s.streams.Load()) }

// LastLife returns when the cluster last gave a proof of life: the header of a
// successful response, or a byte of its body. It is zero before the first one.
func (s *Transport) LastLife() time.Time {
	since := s.life.Load()
	if since == 0 {
		return time.Time{}
	}
	return s.born.Add(time.Duration(since - 1)) // preserves the monotonic clock
}

// age returns the nanoseconds since the Transport was made, plus one, so that
// it is never 0.
func (s *Transport) age() int64 { return int64(time.Since(s.born)) + 1 }

func (s *Transport) lives() { s.livedAt(s.age()) }

// livedAt records a proof of life, unless a later one is known.
func (s *Transport) livedAt(age int64) {
	for last := s.life.Load(); age > last; last = s.life.Load() {
		if s.life.CompareAndSwap(last, age) {
			break
		}
	}
}

// Open admits requests again after Shut.
func (s *Transport) Open() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.cause == nil || s.closed {
		return
	}
	s.cause = nil
	s.shut = make(chan struct{})
}

// Shut makes new requests fail at once with a *Error wrapping ErrShut and
// cause, and cuts every running request and stream the same way, without
// waiting for them. Candidates are not affected. Calling Shut again only
// replaces the cause.
func (s *Transport) Shut(cause error) {
	if cause == nil {
		cause = ErrShut
	} else {
		cause = &trusted{err: fmt.Errorf("%w: %w", ErrShut, cause)}
	}
	s.mu.Lock()
	cut := s.shutLocked(cause, func(g *generation) bool { return g.adopted.Load() })
	if s.current != nil && !s.closed { // Open will find the same access, with new connections
		s.current = s.generationLocked(s.current.access)
		s.current.adopted.Store(true)
	}
	s.mu.Unlock()

	for _, g := range cut {
		g.end(cause)
	}
}

// shutLocked stops admitting requests and returns the generations that must
// end.
func (s *Transport) shutLocked(cause error, affected func(*generation) bool) []*generation {
	if s.closed {
		return nil
	}
	if s.cause == nil {
		close(s.shut)
	}
	s.cause = cause
	var cut []*generation
	for g := range s.gens {
		if affected(g) {
			cut = append(cut, g)
		}
	}

	return cut
}

// CutStreams ends all watches that run on replaced accesses with a revision
// other than the given one. It never affects the access in use. It is meant for
// credentials or endpoints that must not be used any longer. Watches resume by
// resource version, and other requests finish.
func (s *Transport) CutStreams(revision string) {
	s.mu.Lock()
	var old []*generation
	for g := range s.gens {
		if g != s.current && g.adopted.Load() && g.revision != revision {
			old = append(old, g)
		}
	}
	s.mu.Unlock()

	for _, g := range old {
		g.endWatches()
	}
}

// Close shuts the transport for good, including its candidates, and waits until
// no request is in progress. This takes as long as Options.Dial and the
// config's own round trippers need to notice the end of their context. From
// then on streams fail; their readers still have to close them. Calling Close
// again only waits.
func (s *Transport) Close() {
	s.mu.Lock()
	cut := s.shutLocked(ErrClosed, func(*generation) bool { return true })
	s.closed = true
	s.mu.Unlock()

	for _, g := range cut {
		g.end(ErrClosed)
	}
	s.running.Wait()
}

// begin counts a request unless the transport is closed.
func (s *Transport) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// open returns the channel that is closed when the transport is shut, and the
// cause if it is shut already.
func (s *Transport) open() (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.shut, s.cause
}

// live returns the generation for a new request.
func (s *Transport) live() (*generation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.cause != nil:
		return nil, s.cause
	case s.current == nil:
		return nil, ErrNoAccess
	}

	return s.current, nil
}

// generationLocked starts a generation of a and keeps track of it until it
// ends.
func (s *Transport) generationLocked(a *access) *generation {
	g := newGeneration(a, s.forget)
	if g.watches = newWatches(s, g); g.watches != nil {
		g.cuts[g.watches] = struct{}{}
		s.running.Add(1) // until the generation ends; Close ends it before waiting
	}
	s.gens[g] = struct{}{}
	return g
}

func (s *Transport) forget(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.gens, g)
}

// failure turns err into the *Error of req. g is the generation it ran on, or
// nil.
func (s *Transport) failure(req *http.Request, g *generation, err error) *Error {
	if done := req.Context().Err(); done != nil && (g == nil || g.ended() == nil) {
		if !errors.Is(err, done) {
			err = done
		}
		err = contextError(req.Context(), err)
	}

	return s.failed(operation(req.Method, req.URL.Path), g, err)
}

// contextError adds the cause of ctx's end to err. The cause comes from the
// caller, so it may be shown.
func contextError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return &trusted{err: fmt.Errorf("%w: %w", ctx.Err(), cause)}
	}
	return err
}

// failed turns err into the *Error of an operation. Once the generation has
// ended, the cause of its end explains every later failure.
func (s *Transport) failed(op string, g *generation, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok { // from the request that tried to connect on behalf of this one
		return &Error{
			Cluster: e.Cluster,
			Op:      op,
			Class:   e.Class,
			Err:     e.Err,
		}
	}

	if g != nil {
		if cause := g.ended(); cause != nil {
			err = cause
		}
	}
	return &Error{
		Cluster: s.opts.Cluster,
		Op:      op,
		Class:   Classify(err),
		Err:     redact(err),
	}
}

func (s *Transport) fail(req *http.Request, class Class, err error) *Error {
	return &Error{
		Cluster: s.opts.Cluster,
		Op:      operation(req.Method, req.URL.Path),
		Class:   class,
		Err:     err,
	}
}

func operation(method, path string) string { return clip(method + " " + path) }
