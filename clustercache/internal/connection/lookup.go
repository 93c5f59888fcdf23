// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/internal/callback"
)

var errNothing = errors.New("resolver returned no access and no error")

// lookup queries the Resolver for the access to one cluster.
type lookup struct {
	cfg   *Config
	hooks Hooks
	key   client.ObjectKey
	name  string
	slot  chan struct{} // one: a call of the Resolver is running
}

// access queries the resolver once, within a time limit: a resolver that hangs
// must not occupy a worker.
func (l *lookup) access(ctx context.Context) (resolver.Access, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.ProbeTimeout)
	defer cancel()
	// client-go's log lines for this query go there, too.
	ctx = logr.NewContext(ctx, l.cfg.Log.WithValues("cluster", l.name))
	access, err := l.call(ctx)
	if err != nil && ctx.Err() != nil {
		err = l.late(err)
	}
	switch {
	case err == nil && access.IsZero():
		err = errNothing
	case errors.Is(err, resolver.ErrNoAccess) && l.hooks.Unlisted():
		// A missing Secret may appear later. But if that Secret also
		// represented the cluster, then only the list shows that there is
		// nothing to wait for.
		err = &unlistedError{err: err}
	}

	return access, err
}

// resolve is how errors name the method of a Resolver.
const resolve = "Resolver.Resolve"

// late makes an error of a Resolver that took too long name the cluster, and
// what was waited for.
func (l *lookup) late(err error) error {
	if _, named := errors.AsType[*resolver.AccessError](err); named {
		return err
	}
	if _, named := errors.AsType[*callback.DeafError](err); !named {
		err = fmt.Errorf("waiting for %s: %w", resolve, err)
	}
	return &resolver.AccessError{Cluster: l.key, Err: err}
}

// call calls the Resolver, with one call at a time for each cluster: a Resolver
// that ignores its context leaves a single goroutine behind, however often it
// is queried.
func (l *lookup) call(ctx context.Context) (resolver.Access, error) {
	select {
	case l.slot <- struct{}{}:
	case <-ctx.Done():
		return resolver.Access{}, &callback.DeafError{Callback: resolve, Cause: context.Cause(ctx)}
	}
	return callback.Until(ctx, l.cfg.Calls, resolve, func() (resolver.Access, error) {
		defer func() { <-l.slot }()
		access, err := l.cfg.Resolver.Resolve(ctx, l.key)
		if p, ok := errors.AsType[*callback.PanicError](err); ok { // from a function that the resolver calls
			_ = l.cfg.Calls.Panicked(p, "cluster", l.name)
		}
		return access, err
	}, func(resolver.Access, error) {})
}
