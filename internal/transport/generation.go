// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fleetcache/fleetcache/internal/dial"
)

// errGone indicates that a generation ended before a request could enter it.
var errGone = errors.New("generation ended")

// cutter is something that a generation cuts when it ends: a connection, or a
// call in progress.
type cutter interface{ cut(cause error) }

// sender sends requests of a generation: the mux, or a lane.
type sender interface {
	of() *generation // of which it sends requests
	// send sends a request that has its address and credentials. The dialing is
	// that of its admission.
	send(*http.Request, *dialing) (*http.Response, error)
	// sendable reports whether a request that failed with err can be sent
	// again: nothing of it was sent, and there is another way.
	sendable(req *http.Request, err error) bool
	// release undoes the admission of one request.
	release()
}

// admission is the right to send one request. If it holds a dialing, its
// request makes the connection for the requests that wait.
type admission struct {
	sender

	dialing *dialing // nil if the connection exists
}

// generation is one access in use, with its own transports and connections.
type generation struct {
	*access

	cluster   *cluster
	onEnd     func(*generation) // called once, outside the lock, when the generation has ended
	mux       *mux              // nil if all requests use the lanes
	rejected  atomic.Bool       // the cluster rejected our credentials
	adopted   atomic.Bool       // in use, now or earlier: no longer a candidate
	answered  atomic.Int64      // for a candidate, the same as cluster.life
	unwatched atomic.Bool       // its watches ended before the rest

	done  chan struct{} // closed when the generation ends
	cause error         // why it ended; set under mu before done is closed

	// mu protects everything below, and the fields of lanes and connections
	// that are documented as guarded by it. It is never held over I/O.
	mu          sync.Mutex
	cuts        map[cutter]struct{} // nil after the end
	lanes       []*lane
	multiplexed bool // HTTP/2
	inflight    int  // requests between their admission and the end of their bodies
	retired     bool // ends when the last request does
}

func newGeneration(a *access, c *cluster, onEnd func(*generation)) *generation {
	return &generation{
		access:  a,
		cluster: c,
		onEnd:   onEnd,
		done:    make(chan struct{}),
		cuts:    map[cutter]struct{}{},
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

// endedFor returns the cause if watches, or other requests, have been ended, or
// else nil. Watches may be ended before the rest.
func (g *generation) endedFor(watch bool) error {
	if cause := g.ended(); cause != nil {
		return cause
	}
	if watch && g.unwatched.Load() {
		return ErrSuperseded
	}
	return nil
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
		l.dialing.finishLocked(nil)
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

// release undoes the admission of one request.
func (g *generation) release() {
	g.mu.Lock()
	g.inflight--
	drained := g.retired && g.inflight == 0
	g.mu.Unlock()

	if drained {
		g.end(ErrSuperseded)
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

// conn is a connection of a generation. Cutting it cuts all streams on it, at
// no cost per stream.
type conn struct {
	net.Conn

	g     *generation
	l     *lane // nil: it is the mux's
	ready bool  // counted in lane.ready; guarded by generation.mu

	records *records // nil if what is read may be no TLS; owned by the reader
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if c.records == nil {
		return c.Conn.Read(p)
	}
	n, err := c.Conn.Read(p[:min(len(p), c.records.wanted())])
	c.records.pass(p[:n])
	return n, err
}

// connect makes a connection that the end of the generation cuts.
func (g *generation) connect(ctx context.Context, network, address string, l *lane) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dial.Timeout) // net/http sets no deadline
	defer cancel()

	nc, err := g.dialer(ctx, network, address)
	if err != nil {
		return nil, &trusted{err: err}
	}
	c := &conn{Conn: nc, g: g, l: l}
	if g.base.Scheme == "https" && g.config.Proxy == nil { // a proxy answers before TLS begins
		c.records = &records{}
	}
	if !g.add(c) { // the generation ended during the dial
		_ = nc.Close()
		return nil, g.cause
	}

	return c, nil
}

// Close implements net.Conn; net/http calls it.
func (c *conn) Close() error {
	c.g.lost(c)
	return c.Conn.Close()
}

// cut closes the connection underneath net/http, which then ends everything on
// it. Unlike closing a tls.Conn, which first tries to write an alert, cut never
// blocks.
func (c *conn) cut(error) { _ = c.Conn.Close() }

// lost removes a closed connection from the count.
func (g *generation) lost(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()

	delete(g.cuts, c)
	if c.ready {
		c.ready = false
		c.l.ready--
	}
}

// connOf finds our connection below the layers of TLS on it.
func connOf(under net.Conn) (c *conn, multiplexed bool) {
	for {
		switch layer := under.(type) {
		case *conn:
			return layer, multiplexed
		case *tls.Conn:
			multiplexed = multiplexed || layer.ConnectionState().NegotiatedProtocol == "h2"
			under = layer.NetConn()
		default:
			return nil, multiplexed
		}
	}
}
