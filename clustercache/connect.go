// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/phase"
)

// maxAsked is how often in a row the resolver is asked because there was news while it was asked. After that its answer is
// taken; news that keep coming must not keep a cluster from being connected.
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
		a.c.verified.Load() == a.c.connections.Load() {
		return message{Event: phase.Event{Kind: phase.Succeeded, Revision: revision, News: asOf, Unproven: true}}
	}
	return a.proveUnlessOutdated(access, asOf)
}

// resolve asks the resolver, and again if there was news meanwhile: it may have looked before. asOf is the news that the
// answer is at least as new as.
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

// ask asks the resolver once, within a bound: one that hangs must not hold a worker.
func (a *attempt) ask() (Access, error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.c.cc.options.ProbeTimeout)
	defer cancel()
	ctx = logr.NewContext(ctx, a.c.cc.log.WithValues("cluster", a.c.name)) // what client-go says on behalf of it goes there, too
	access, err := a.c.cc.options.Resolver.Resolve(ctx, a.c.key)
	switch {
	case err == nil && access.IsZero():
		err = errNothing
	case errors.Is(err, ErrNoAccess) && a.c.unlisted.Load() && !a.c.pinned.Load():
		// A Secret that is missing may come. Where it is also what stood for the cluster, the list alone tells that there
		// is nothing to wait for.
		err = fmt.Errorf("%w, %w", resolver.ErrClusterNotFound, err)
	}
	return access, err
}

// proveUnlessOutdated proves the access. If there is news meanwhile, the resolver is asked beside, and when it does not stand by
// its answer any more, the proof ends: it may be waiting for an address that will never be the right one again.
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
	// A resolver that is being asked is not interrupted: its answer decides whether another attempt is needed.
	asking.Wait()
	m.News = asOf
	return m
}

// prove asks the server whether it is well, and who it is.
func (a *attempt) prove(ctx context.Context, access Access) message {
	c, revision := a.c, access.Revision()
	found := &finding{access: access}
	ask := c.seam.Probe
	if !a.start.connected || revision != a.start.revision {
		config := access.Config()
		config.Dial = c.countDials(c.cc.dialer(access, config.Dial))
		if !access.Proxied() {
			config.Proxy = nil // to the seam that is no proxy; a function, whatever it answers, keeps watches from its own transport
		}
		candidate, err := c.seam.Candidate(config, revision)
		if err != nil {
			return failure(revision, err)
		}
		found.candidate, ask = candidate, candidate.Get
	}
	var err error
	found.path, err = c.alive(ctx, ask, c.cc.options.ProbePath)
	if err == nil {
		found.connections = c.connections.Load()
		found.uid, err = c.identify(ctx, ask, access, a.start.uid)
	}
	if err != nil {
		found.drop()
		return failure(revision, err)
	}
	if found.candidate != nil {
		found.version = c.serverVersion(ctx, ask)
	}
	return message{Event: phase.Event{Kind: phase.Succeeded, Revision: revision}, found: found}
}
