// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// errGone indicates that a generation ended before a request could enter it.
var errGone = errors.New("generation ended")

// cutter is something that a generation cuts when it ends: a connection, or a
// call in progress.
type cutter interface{ cut(cause error) }

// generation is one access in use, with its own transports and connections.
type generation struct {
	*access

	onEnd     func(*generation) // called once, outside the lock, when the generation has ended
	mux       *mux              // nil if all requests use the lanes
	rejected  atomic.Bool       // the cluster rejected our credentials
	adopted   atomic.Bool       // in use, now or earlier: no longer a candidate
	answered  atomic.Int64      // for a candidate, the same as Transport.life
	unwatched atomic.Bool       // its watches ended before the rest

	done  chan struct{} // closed when the generation ends
	cause error         // why it ended; set under mu before done is closed

	// mu protects everything below, and the fields of lanes and connections
	// that are documented as guarded by it. It is never held over I/O.
	mu          sync.Mutex
	cuts        map[cutter]struct{} // nil after the end
	lanes       []*lane
	multiplexed bool // HTTP/2
	inflight    int  // sum over the lanes
	retired     bool // ends when the last request does
}

func newGeneration(a *access, onEnd func(*generation)) *generation {
	return &generation{
		access: a,
		onEnd:  onEnd,
		done:   make(chan struct{}),
		cuts:   map[cutter]struct{}{},
	}
}

// ended returns the cause if the generation has ended, or else nil.
func (g *generation) ended() error {
	select {
	case <-g.done:
		return g.cause
	default:
		return nil
	}
}

// endWatches cuts the watches that run on the generation. Other requests
// finish: they end soon by themselves, and their callers could not resume them.
func (g *generation) endWatches() {
	g.mu.Lock()
	g.unwatched.Store(true)
	var watches []cutter
	for c := range g.cuts {
		if call, ok := c.(*call); ok && call.watch {
			watches = append(watches, c)
			delete(g.cuts, c)
		}
	}

	g.mu.Unlock()

	if g.mux != nil {
		g.mux.transport.EndWatches()
	}
	for _, c := range watches {
		c.cut(ErrSuperseded)
	}
}

// end cuts everything that runs on the generation. Only the first cause counts.
func (g *generation) end(cause error) {
	g.mu.Lock()
	if g.cause != nil {
		g.mu.Unlock()
		return
	}
	g.cause = cause
	close(g.done) // before the cuts, so that a reader that is cut finds the cause
	cuts, lanes := g.cuts, g.lanes
	g.cuts, g.lanes = nil, nil
	g.mu.Unlock()

	for c := range cuts {
		c.cut(cause)
	}
	for _, l := range lanes {
		l.transport.CloseIdleConnections()
	}
	g.onEnd(g)
}

// replaced reports whether a newer generation has taken this one's place.
func (g *generation) replaced() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.retired
}

// retire admits no more requests, lets the running requests finish and then
// ends the generation. Requests that wait for a connection leave at once.
func (g *generation) retire() {
	g.mu.Lock()
	g.retired = true
	idle := g.inflight == 0
	lanes := slices.Clone(g.lanes)
	for _, l := range lanes {
		admission{lane: l, dialing: l.dialing}.finishLocked(nil)
	}
	g.mu.Unlock()

	if idle {
		g.end(ErrSuperseded)
		return
	}
	if g.mux != nil {
		g.mux.transport.Retire()
	}
	for _, l := range lanes {
		l.transport.CloseIdleConnections()
	}
}

// add registers c to be cut when the generation ends, unless it has ended
// already.
func (g *generation) add(c cutter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.cause != nil {
		return false
	}
	g.cuts[c] = struct{}{}
	return true
}

func (g *generation) remove(c cutter) {
	g.mu.Lock()
	defer g.mu.Unlock()

	delete(g.cuts, c)
}

// call is a context that the end of its generation cancels.
type call struct {
	cancel context.CancelCauseFunc
	watch  bool
}

func (c *call) cut(cause error) { c.cancel(cause) }

// bind returns a context that also ends with the generation or, for a watch,
// with the generation's watches. The caller must call release.
func (g *generation) bind(ctx context.Context, watch bool) (bound context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{cancel: cancel, watch: watch}
	if !g.add(c) {
		cancel(errGone)
	} else if watch && g.unwatched.Load() { // after add: either bind or endWatches sees the other
		cancel(ErrSuperseded)
	}
	return ctx, func() {
		g.remove(c)
		cancel(nil)
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// laneKey is the context key under which a request carries its lane through the
// config's own round trippers.
type laneKey struct{}

// throughLane is the innermost round tripper below the config's own ones. Those
// exist once per access, but its generations have several transports, so
// throughLane finds the lane in the request's context.
func throughLane(req *http.Request) (*http.Response, error) {
	l, ok := req.Context().Value(laneKey{}).(*lane)
	if !ok {
		return nil, ErrRefused // the request was made up by a round tripper, with another context
	}
	return l.transport.RoundTrip(req)
}
