// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package width

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Gate makes the requests of one cluster wait as its [Width] says. Nothing
// waits before the server has refused two. The zero value is ready for use.
type Gate struct {
	mu      sync.Mutex // protects the fields below, and the request of every Place; no other lock is taken under it
	width   Width
	refusal error         // the last one
	changed chan struct{} // closed when a request that waits may be due; nil if none waits
}

// Place is a request's place among those in flight.
type Place struct {
	gate    *Gate
	request Request
}

// Reserve waits until a request may be sent, and reserves a place for it. If it
// has to wait, waits is called once, with the refusal that is the cause. The
// caller must call End.
func (g *Gate) Reserve(ctx context.Context, s Subject, waits func(refusal error)) (*Place, error) {
	p := &Place{gate: g, request: Request{Subject: s}}
	for told := false; ; told = true {
		again, changed, refusal := g.reserve(p)
		if changed == nil {
			return p, nil
		}
		if !told {
			waits(refusal)
		}
		if err := wait(ctx, again, changed); err != nil {
			return nil, err
		}
	}
}

// reserve reserves a place. If there is none, it returns when there may be one.
func (g *Gate) reserve(p *Place) (again time.Time, changed <-chan struct{}, refusal error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	ok, again := g.width.Reserve(&p.request, time.Now())
	if ok {
		return again, nil, nil
	}
	if g.changed == nil {
		g.changed = make(chan struct{})
	}

	return again, g.changed, g.refusal
}

// wait waits until a time, if it is not zero, or until changed is closed.
func wait(ctx context.Context, until time.Time, changed <-chan struct{}) error {
	var due <-chan time.Time
	if !until.IsZero() {
		due = time.After(time.Until(until))
	}
	select {
	case <-due:
	case <-changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	return nil
}

// Send records that the request is sent. It reports false if the server has
// refused others meanwhile, so that the request has to reserve a place anew.
func (p *Place) Send() bool {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()

	sent := g.width.Send(&p.request, time.Now())
	if !sent {
		g.wakeLocked()
	}

	return sent
}

// End records how the request ended; nil if it was answered. A request that was
// not sent gives up its place.
func (p *Place) End(err error) {
	g := p.gate
	g.mu.Lock()
	defer g.mu.Unlock()

	switch {
	case p.request.sent.IsZero():
		g.width.Lost(&p.request)
	case err == nil:
		g.width.Answered(&p.request, time.Now())
	case apierrors.IsTooManyRequests(err):
		seconds, _ := apierrors.SuggestsClientDelay(err)
		g.width.Refused(&p.request, time.Now(), time.Duration(seconds)*time.Second)
		g.refusal = err
	default:
		g.width.Lost(&p.request)
	}
	g.wakeLocked()
}

func (g *Gate) wakeLocked() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// Narrow reports whether the server has refused requests, so that others wait.
func (g *Gate) Narrow() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.width.Narrow()
}
