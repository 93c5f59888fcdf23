// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"net"

	"github.com/fleetcache/fleetcache/internal/identity"
)

// errMisled indicates that a connection leads to a different cluster than the
// other connections do.
var errMisled = fmt.Errorf("%w: another cluster answers on the connection of the watch", ErrNotConnected)

// confirm returns an error if another cluster answers on a connection that
// watches use. The proof that let a watch begin preceded it, and may have come
// over another connection, and one address can lead different connections to
// different clusters. So each new connection is queried once itself after it
// has answered a watch, before the results of its first watches are believed: by
// the query that proves it if a watch made it (isFirst), and otherwise by another
// one. A query under way may have begun before the connection was made, so
// another one follows it.
func (p *prover) confirm(ctx context.Context, v *View) error {
	if presumed(v.UID) {
		return nil
	}
	began, err := p.confirmOnce(ctx, v)
	if err == nil && !began {
		_, err = p.confirmOnce(ctx, v)
	}
	return err
}

// confirmOver is confirm for the answer to a watch. It returns an error if the
// connection of that has ended before it was confirmed: what it brought is still
// to be read, and nothing is left to query that would show who sent it.
func (p *prover) confirmOver(ctx context.Context, v *View, over net.Conn) error {
	if err := p.confirm(ctx, v); err != nil || presumed(v.UID) {
		return err
	}
	if k, ok := over.(*provenConn); ok && k.shared && k.Unconfirmed() && k.closed.Load() {
		return errUnsteady
	}
	return nil
}

// carried records that a connection has answered a watch.
func (p *prover) carried(over *provenConn) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.mu.ledger.Carried(over)
}

// confirmOnce waits for the query under way, or for a new one if there is none.
// began reports that the query began after the call, or that none is needed.
func (p *prover) confirmOnce(ctx context.Context, v *View) (began bool, err error) {
	p.mu.Lock()
	if len(p.mu.ledger.Unconfirmed()) == 0 {
		p.mu.Unlock()
		return true, nil
	}
	began = p.mu.confirming == nil
	q := p.flyLocked(&p.mu.confirming, func(q *question) { p.askStreams(q, v) })
	p.mu.Unlock()

	return began, q.answered(ctx)
}

// askStreams sends the identity query over the connections of watches. Without
// an answer there is no verdict, and the next watch repeats the query. The
// transport keeps room for the query, unless the server allows one stream per
// connection only: then another connection may answer, which is judged instead.
func (p *prover) askStreams(q *question, v *View) {
	ctx, cancel := context.WithTimeout(p.cfg.Context, p.cfg.ProbeTimeout)
	defer cancel()
	p.mu.Lock()
	asked := p.mu.ledger.Unconfirmed()
	p.mu.Unlock()

	var confirmed []*provenConn
	for _, k := range asked {
		var over net.Conn
		uid, err := p.queries.uid(recorded(ctx, &over), p.getter(identity.Over, k))
		if err == nil && uid != v.UID {
			// Only that connection is blamed, until a proof shows more: where an
			// address leads to different clusters by turns, a verdict on the
			// cluster would start a new epoch each time.
			q.err = errMisled
			if over != nil {
				_ = over.Close()
			}
		}
		if err == nil {
			confirmed = append(confirmed, k)
		}
	}

	p.mu.Lock()
	for _, k := range confirmed {
		p.mu.ledger.Confirmed(k)
		k.confirmed.Store(true)
	}
	p.mu.confirming = nil
	close(q.done)
	p.mu.Unlock()
}
