// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"net"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/fleetcache/fleetcache/internal/identity"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// proofKey is the context key of an identity query.
type proofKey struct{}

// queryKey is the context key of the identity.Query that requests belong to.
type queryKey struct{}

// provenConn is a connection whose server has to be proven.
type provenConn struct {
	net.Conn

	p      *prover
	made   uint64 // a number from before it was made
	shared bool   // by requests and watches

	closed     atomic.Bool
	confirmed  atomic.Bool   // queried itself after it answered a watch
	suspicions *rate.Limiter // of queries over it because it refused a request
}

// Unconfirmed implements transport.Unconfirmed.
func (c *provenConn) Unconfirmed() bool { return !c.confirmed.Load() }

// number returns a number from before the connection was made, or 0 without one.
func (c *provenConn) number() uint64 {
	if c == nil {
		return 0
	}
	return c.made
}

// Write implements net.Conn.
func (c *provenConn) Write(b []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn. From then on the connection has no proof to wait
// for, and those who waited send nothing over it, however long the end takes.
func (c *provenConn) Close() error {
	c.closed.Store(true)
	c.p.mu.Lock()
	c.p.mu.ledger.Closed(c)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// dials wraps a dialer so that requests wait for a proof before they use a new
// connection: another cluster with the same certificates may be behind the same
// address now.
func (p *prover) dials(dial transport.DialFunc, use *identity.Access) transport.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		number := p.number()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		made := identity.Dial{Access: use, Shared: transport.ForShared(ctx)}
		k := &provenConn{Conn: conn, p: p, made: number, shared: made.Shared, suspicions: every(identity.Soon)}
		asking := ctx.Value(proofKey{}) != nil
		if asking {
			made.Query, _ = ctx.Value(queryKey{}).(*identity.Query)
		}
		p.mu.Lock()
		inUse := p.mu.ledger.Dialed(k, made)
		p.mu.Unlock()

		switch {
		case asking, !inUse:
			return k, nil // the query proves the connection that it uses
		case made.Shared:
			return k, nil // the query needs it; each request waits for its proof
		case transport.Probing(ctx):
			p.soon() // a probe waits for no proof, but later users of its connection do
			return k, nil
		}

		if err := p.admit(ctx, k); err != nil {
			_ = k.Close()
			return nil, err
		}

		return k, nil
	}
}

// concluded records that a query has ended.
func (p *prover) concluded(q *identity.Query) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.mu.ledger.Concluded(q)
}

// condemn closes the connections that nothing can prove, since another cluster
// has answered over one of them.
func (p *prover) condemn(over net.Conn) {
	k, _ := over.(*provenConn)
	p.mu.Lock()
	all := p.mu.ledger.Doubtful(k)
	p.mu.Unlock()

	for _, k := range all {
		_ = k.Close()
	}
}

// over returns the check of a connection that a request is about to use. The
// proof that admitted the request may be too old by now, and the connection may
// be one that a probe made later, to which that proof does not apply.
func (p *prover) over(want expectation) transport.ConnCheck {
	return func(ctx context.Context, conn net.Conn) error {
		k, _ := conn.(*provenConn)
		return p.until(ctx, expectation{
			view:     want.view,
			need:     need{Age: want.Age, Over: k},
			tolerant: want.tolerant,
		})
	}
}

// admit waits until a connection is proven. Connections that are made during a
// query share the next one, so that there are few queries, however many watches
// begin at once: over HTTP/1.1 each watch has its own connection. admit adds no
// delay but that of the query: an informer is synced as soon as its server has
// answered.
func (p *prover) admit(ctx context.Context, k *provenConn) error {
	v := p.view.Load()
	if v.UID == "" || presumed(v.UID) {
		return nil
	}
	return p.until(ctx, expectation{view: v, need: need{Over: k}})
}
