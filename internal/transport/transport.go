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

	"github.com/fleetcache/fleetcache/internal/credentialplugin"
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
	deaf    atomic.Int64   // round trippers of configs that were left behind

	ctx    context.Context //nolint:containedctx // ends with Close
	cancel context.CancelFunc

	// mu protects everything below. It is never held over I/O.
	mu      sync.Mutex
	closed  bool
	cause   error         // why the transport is shut; nil while it is open
	shut    chan struct{} // closed while the transport is shut
	current *generation   // nil before the first Swap
	gens    map[*generation]struct{}
	plugin  *credentialplugin.Plugin // of the last candidate
}

// New returns a Transport that does no I/O until it has access to the cluster.
func New(opts Options) *Transport {
	t := &Transport{
		opts: opts.withDefaults(),
		base: &url.URL{Scheme: "https", Host: placeholder(opts.Cluster)},
		born: time.Now(),
		shut: make(chan struct{}),
		gens: map[*generation]struct{}{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.bucket = newBucket(t.opts)
	t.client = newClient(&roundTripper{t: t})
	t.reader = newClient(&roundTripper{t: t, stream: true})
	return t
}

func newClient(r *roundTripper) *http.Client {
	return &http.Client{
		Transport: r,
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
func (t *Transport) Client() *http.Client { return t.client }

// StreamClient is like Client, but sets no budget for successful bodies. It is
// for readers that account for everything they keep of a body.
func (t *Transport) StreamClient() *http.Client { return t.reader }

// Do sends a request like Client().Do, but returns bare *Error values:
// http.Client includes the URL with its query in the text of every error.
func (t *Transport) Do(req *http.Request) (*http.Response, error) {
	return t.client.Transport.RoundTrip(req)
}

// URL returns the base URL to which requests must be addressed. It never
// changes and names no real host.
func (t *Transport) URL() string { return t.base.String() }

// Swap makes new requests use cfg. Running requests and streams keep the access
// they started with; its connections are closed once they have ended. Apart
// from reading the files that cfg names, Swap does no I/O. It neither opens the
// transport nor proves anything: see Open and Candidate.
func (t *Transport) Swap(cfg *rest.Config, revision string) error {
	c, err := t.Candidate(cfg, revision)
	if err != nil {
		return err
	}
	return c.Use()
}

// Revision returns the revision of the access in use. It is empty before the
// first Swap.
func (t *Transport) Revision() string {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.current == nil {
		return ""
	}
	return t.current.revision
}

// Streams returns how many watches are running.
func (t *Transport) Streams() int { return int(t.streams.Load()) }

// LastLife returns when the cluster last gave a proof of life: the header of a
// successful response, or a byte of its body. It is zero before the first one.
func (t *Transport) LastLife() time.Time {
	since := t.life.Load()
	if since == 0 {
		return time.Time{}
	}
	return t.born.Add(time.Duration(since - 1)) // preserves the monotonic clock
}

// age returns the nanoseconds since the Transport was made, plus one, so that
// it is never 0.
func (t *Transport) age() int64 { return int64(time.Since(t.born)) + 1 }

func (t *Transport) lives() { t.livedAt(t.age()) }

// livedAt records a proof of life, unless a later one is known.
func (t *Transport) livedAt(age int64) {
	for last := t.life.Load(); age > last; last = t.life.Load() {
		if t.life.CompareAndSwap(last, age) {
			break
		}
	}
}

// Open admits requests again after Shut.
func (t *Transport) Open() {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.cause == nil || t.closed {
		return
	}
	t.cause = nil
	t.shut = make(chan struct{})
}

// Shut makes new requests fail at once with a *Error wrapping ErrShut and
// cause, and cuts every running request and stream the same way, without
// waiting for them. Candidates are not affected. Calling Shut again only
// replaces the cause.
func (t *Transport) Shut(cause error) {
	if cause == nil {
		cause = ErrShut
	} else {
		cause = &trusted{err: fmt.Errorf("%w: %w", ErrShut, cause)}
	}
	t.mu.Lock()
	cut := t.shutLocked(cause, func(g *generation) bool { return g.adopted.Load() })
	if t.current != nil && !t.closed { // Open will find the same access, with new connections
		t.current = t.generationLocked(t.current.access)
		t.current.adopted.Store(true)
	}
	t.mu.Unlock()

	for _, g := range cut {
		g.end(cause)
	}
}

// shutLocked stops admitting requests and returns the generations that must
// end.
func (t *Transport) shutLocked(cause error, affected func(*generation) bool) []*generation {
	if t.closed {
		return nil
	}
	if t.cause == nil {
		close(t.shut)
	}
	t.cause = cause
	var cut []*generation
	for g := range t.gens {
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
func (t *Transport) CutStreams(revision string) {
	t.mu.Lock()
	var old []*generation
	for g := range t.gens {
		if g != t.current && g.adopted.Load() && g.revision != revision {
			old = append(old, g)
		}
	}
	t.mu.Unlock()

	for _, g := range old {
		g.endWatches()
	}
}

// Close shuts the transport for good, including its candidates, and waits until
// no request is in progress. This takes as long as Options.Dial needs to notice
// the end of its context. A credential plugin that runs is killed. From
// then on streams fail; their readers still have to close them. Calling Close
// again only waits.
func (t *Transport) Close() {
	t.mu.Lock()
	cut := t.shutLocked(ErrClosed, func(*generation) bool { return true })
	t.closed = true
	t.mu.Unlock()

	t.cancel()
	for _, g := range cut {
		g.end(ErrClosed)
	}
	t.running.Wait()
}

// begin counts a request unless the transport is closed.
func (t *Transport) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.closed {
		return false
	}
	t.running.Add(1)
	return true
}

// open returns the channel that is closed when the transport is shut, and the
// cause if it is shut already.
func (t *Transport) open() (<-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.shut, t.cause
}

// live returns the generation for a new request.
func (t *Transport) live() (*generation, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	switch {
	case t.cause != nil:
		return nil, t.cause
	case t.current == nil:
		return nil, ErrNoAccess
	}

	return t.current, nil
}

// turn makes new requests use new connections with the same access: those of g
// were made with an older client certificate.
func (t *Transport) turn(g *generation) {
	t.mu.Lock()
	turned := t.current == g && t.cause == nil
	if turned {
		g.presented.Store(nil)
		t.current = t.generationLocked(g.access)
		t.current.adopted.Store(true)
	}
	t.mu.Unlock()

	if turned {
		g.retire()
	}
}

// generationLocked starts a generation of a and keeps track of it until it
// ends.
func (t *Transport) generationLocked(a *access) *generation {
	g := newGeneration(a, t.remove)
	if g.mux = newMux(t, g); g.mux != nil {
		g.cuts[g.mux] = struct{}{}
		t.running.Add(1) // until the generation ends; Close ends it before waiting
	}
	t.gens[g] = struct{}{}
	return g
}

func (t *Transport) remove(g *generation) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.gens, g)
}

// failure turns err into the *Error of req. g is the generation it ran on, or
// nil.
func (t *Transport) failure(req *http.Request, g *generation, err error) *Error {
	if done := req.Context().Err(); done != nil && (g == nil || g.ended() == nil) {
		if !errors.Is(err, done) {
			err = done
		}
		err = contextError(req.Context(), err)
	}

	return t.failed(operation(req.Method, req.URL.Path), g, err)
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
func (t *Transport) failed(op string, g *generation, err error) *Error {
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
		Cluster: t.opts.Cluster,
		Op:      op,
		Class:   Classify(err),
		Err:     redact(err),
	}
}

func (t *Transport) fail(req *http.Request, class Class, err error) *Error {
	return &Error{
		Cluster: t.opts.Cluster,
		Op:      operation(req.Method, req.URL.Path),
		Class:   class,
		Err:     err,
	}
}

func operation(method, path string) string { return clip(method + " " + path) }
