// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache/internal/phase"
	"github.com/fleetcache/fleetcache/internal/callback"
	"github.com/fleetcache/fleetcache/internal/transport"
)

// maxAsked is how often in a row the resolver is asked because there was news
// while it was asked. After that its answer is taken; news that keep coming
// must not keep a cluster from being connected.
const maxAsked = 3

var (
	errNothing  = errors.New("resolver returned no access and no error")
	errOutdated = errors.New("the resolver has another answer meanwhile")
)

// connect resolves, proves and identifies:
//  1. ask the resolver;
//  2. nothing new and no doubt: done without a request;
//  3. ask the server whether it is well, with access that is not in use yet;
//  4. ask who it is.
//
// What serves meanwhile is not touched.
func (a *attempt) connect() message {
	began := time.Now()
	defer func() { a.c.cc.metrics.connTook.Observe(time.Since(began).Seconds()) }()
	access, asOf, err := a.resolve()
	if err != nil {
		m := failure("", err)
		m.News = asOf
		return m
	}
	if revision := access.Revision(); a.start.connected && revision == a.start.revision && !a.start.prove &&
		!a.c.prover.pending() {
		return message{Event: phase.Event{Kind: phase.Succeeded, Revision: revision, News: asOf, Unproven: true}}
	}
	return a.proveUnlessOutdated(access, asOf)
}

// resolve asks the resolver, and again if there was news meanwhile: it may have
// looked before. asOf is the news that the answer is at least as new as.
func (a *attempt) resolve() (access Access, asOf uint64, err error) {
	for range maxAsked {
		asOf = a.news.Load()
		access, err = a.ask()
		if a.news.Load() == asOf || a.ctx.Err() != nil {
			break
		}
	}
	return access, asOf, err
}

// ask asks the resolver once, within a bound: one that hangs must not hold a
// worker.
func (a *attempt) ask() (Access, error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.c.cc.options.ProbeTimeout)
	defer cancel()
	ctx = logr.NewContext(ctx, a.c.cc.log.WithValues("cluster", a.c.name)) // what client-go says on behalf of it goes there, too
	access, err := a.c.resolve(ctx)
	switch {
	case err == nil && access.IsZero():
		err = errNothing
	case errors.Is(err, ErrNoAccess) && a.c.unlisted.Load() && !a.c.pinned.Load():
		// A Secret that is missing may come. Where it is also what stood for
		// the cluster, the list alone tells that there is nothing to wait for.
		err = &unlistedError{err: err}
	}
	return access, err
}

// resolve calls the Resolver, one call for a cluster at a time: one that is
// deaf leaves a single goroutine behind, however often it is asked.
func (c *cluster) resolve(ctx context.Context) (Access, error) {
	const name = "Resolver.Resolve"
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return Access{}, &deafError{callback: name, cause: context.Cause(ctx)}
	}
	return aside(ctx, c.cc, name, func() (Access, error) {
		defer func() { <-c.asking }()
		access, err := c.cc.options.Resolver.Resolve(ctx, c.key)
		if p, ok := errors.AsType[*callback.PanicError](err); ok { // of a function that the resolver was given
			_ = c.cc.panicked(p, "cluster", c.name)
		}
		return access, err
	}, func(Access, error) {})
}

// proveUnlessOutdated proves the access. If there is news meanwhile, the
// resolver is asked beside, and when it does not stand by its answer any more,
// the proof ends: it may be waiting for an address that will never be the right
// one again.
func (a *attempt) proveUnlessOutdated(access Access, asOf uint64) message {
	ctx, cut := context.WithCancelCause(a.ctx)
	defer cut(nil)
	proven := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-proven:
				return
			case <-a.told:
			}
			if a.news.Load() == asOf {
				continue // it was heard of before the resolver was asked
			}
			again, newer, err := a.resolve()
			switch {
			case err == nil && again.Revision() == access.Revision():
				asOf = newer
			case err == nil:
				cut(errOutdated)
				return
			default:
				if class, _ := classify(err); class != phase.Trouble {
					cut(errOutdated)
					return
				} // otherwise the resolver has trouble, and that is no answer
			}
		}
	})
	m := a.prove(ctx, access)
	close(proven)
	// A resolver that is being asked is not interrupted: its answer decides
	// whether another attempt is needed.
	asking.Wait()
	m.News = asOf
	return m
}

// prove asks the server whether it is well, and who it is.
func (a *attempt) prove(ctx context.Context, access Access) message {
	c, revision := a.c, access.Revision()
	found := &finding{access: access, adopted: &atomic.Bool{}}
	ask, identify := c.transport.ProbeAside, c.transport.ProbeAnew
	if !a.start.connected || revision != a.start.revision {
		config := access.Config()
		config.Dial = c.provenDials(c.cc.dialer(access, config.Dial), found.adopted)
		if !access.Proxied() {
			config.Proxy = nil // to the transport that is no proxy; a function, whatever it answers, keeps watches from its own transport
		}
		candidate, err := c.transport.Candidate(config, revision)
		if err != nil {
			return failure(revision, err)
		}
		found.candidate, ask, identify = candidate, candidate.Get, candidate.Get
		if err := c.warm(ctx, candidate); err != nil {
			found.drop()
			return failure(revision, err)
		}
	}
	var err error
	found.path, err = a.well(ctx, ask, found)
	if err == nil {
		found.number, found.sent = c.prover.number(), time.Now()
		found.uid, err = c.identify(asked(ctx, &found.over), identify, access, a.start.uid)
	}
	if err == nil && presumed(found.uid) {
		// A server that shows no identity may be anything: one behind a wrong
		// path, or one that takes us for anonymous. Both answer the paths of
		// health and version, which are public, so that these prove nothing.
		err = c.discovers(ctx, ask)
	}
	if err != nil {
		found.drop()
		if transport.Classify(err) == transport.Throttled && a.start.connected && revision == a.start.revision {
			return message{Event: phase.Event{Kind: phase.Succeeded, Revision: revision, Unproven: true}} // it is busy, and alive
		}
		return failure(revision, err)
	}
	known := ""
	if found.candidate == nil {
		known = c.view.Load().version
	}
	found.version = c.prover.version(ctx, ask, known, true)
	return message{Event: phase.Event{Kind: phase.Succeeded, Revision: revision}, found: found}
}

// well asks the server whether it is well. A connection that is made for that
// is left to the attempt: a question who answers, asked beside since there is a
// new connection, would find the other cluster once more and close it under the
// request. If there was another cluster, nothing is kept of which the question
// that comes next could not say who answers over it.
func (a *attempt) well(ctx context.Context, ask asker, found *finding) (path string, err error) {
	c := a.c
	if found.candidate != nil {
		return c.alive(ctx, ask, c.cc.options.ProbePath)
	}
	var over net.Conn
	path, err = c.alive(asked(ctx, &over), ask, c.cc.options.ProbePath)
	if c.prover.elsewhere() {
		c.prover.condemn(over)
	}
	return path, err
}

// warm makes the connection of the watches that wait for the cluster before the
// question who answers is sent, so that one question proves both.
func (c *cluster) warm(ctx context.Context, candidate *transport.Candidate) error {
	if !c.holds.any() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cc.options.ProbeTimeout)
	defer cancel()
	return candidate.Warm(ctx)
}
