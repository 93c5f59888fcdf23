// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"maps"
)

// errMisled indicates that a connection leads to a different cluster than the
// other connections do.
var errMisled = fmt.Errorf("%w: another cluster answers on the connection of the watch", ErrNotConnected)

// confirm returns an error if another cluster answers on a connection that
// watches use. The proof that let a watch begin preceded it, and may have come
// over another connection, and one address can lead different connections to
// different clusters. So each new connection is queried once itself after it
// has answered a watch, before the results of its first watches are believed.
func (p *prover) confirm(ctx context.Context, v *View) error {
	if presumed(v.UID) {
		return nil
	}
	p.mu.Lock()
	if len(p.mu.streams) == 0 {
		p.mu.Unlock()
		return nil
	}
	q := p.mu.confirming
	if q == nil {
		q = &question{done: make(chan struct{})}
		if !p.c.cfg.Spawn(func() { p.askStreams(q, v) }) {
			p.mu.Unlock()
			return ErrClosed
		}
		p.mu.confirming = q
	}

	p.mu.Unlock()

	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// askStreams sends the identity query over the connection of watches. Without
// an answer there is no verdict, and the next watch repeats the query.
func (p *prover) askStreams(q *question, v *View) {
	ctx, cancel := context.WithTimeout(p.c.cfg.Context, p.c.cfg.ProbeTimeout)
	defer cancel()
	p.mu.Lock()
	asked := maps.Clone(p.mu.streams)
	p.mu.Unlock()

	for k := range asked {
		uid, err := p.c.askUID(ctx, p.overOne(k))
		if err == nil && uid != v.UID {
			// Only that connection is blamed, until a proof shows more: where an
			// address leads to different clusters by turns, a verdict on the
			// cluster would start a new epoch each time.
			q.err = errMisled
			_ = k.Close()
		}
		if err != nil {
			delete(asked, k)
		}
	}

	p.mu.Lock()
	for k := range asked {
		delete(p.mu.streams, k)
	}
	p.mu.confirming = nil
	close(q.done)
	p.mu.Unlock()
}
