// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fleetcache/fleetcache/internal/credentialplugin"
)

// Transport is the only path to one remote cluster. It is safe for concurrent
// use. It starts open and without access: see [Transport.Swap].
type Transport struct {
	opts   Options
	base   *url.URL // placeholder
	client *http.Client
	reader *http.Client

	throttle throttle
	cluster  cluster
	running  sync.WaitGroup // requests until their response header has arrived; Add happens under mu

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
		shut: make(chan struct{}),
		gens: map[*generation]struct{}{},
	}
	t.cluster.name, t.cluster.born, t.cluster.panicked = opts.Cluster, time.Now(), opts.Panicked
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.throttle = newThrottle(t.opts, t.open)
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

// URL returns the base URL to which requests must be addressed. It never
// changes and names no real host.
func (t *Transport) URL() string { return t.base.String() }

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
func (t *Transport) Streams() int { return int(t.cluster.streams.Load()) }

// Multiplexed reports whether GET requests share HTTP/2 connections, as far as
// is known.
func (t *Transport) Multiplexed() bool {
	g, err := t.live()
	return err == nil && g.mux.multiplexed()
}

// LastLife returns when the cluster last gave a proof of life: the header of a
// successful response, or a byte of its body. It is zero before the first one.
func (t *Transport) LastLife() time.Time {
	since := t.cluster.life.Load()
	if since == 0 {
		return time.Time{}
	}
	return t.cluster.born.Add(time.Duration(since - 1)) // preserves the monotonic clock
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
	g := newGeneration(a, &t.cluster, t.remove)
	if !t.opts.NetHTTP && a.muxable() {
		g.mux = newMux(g, t.running.Done)
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
