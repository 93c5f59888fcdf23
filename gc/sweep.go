// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"sync"
)

// Swept is the result of a sweep.
type Swept[O, R comparable] struct {
	// Collected are the owners that were finally found gone, in no particular
	// order.
	Collected []O
	// Released are the resources released, those unused longest first.
	Released []R
}

// Sweep does one round now: it looks at every owner, due or not, and then
// releases every resource that has been unused for the grace. When it returns
// nil, everything that was due when it was called has been released. It works
// with and without Run, and respects Concurrency and Rate. The error joins an
// *OwnerError for each inconclusive look and a *ResourceError for each Release
// that panicked; neither stops the round. If ctx ends, Sweep stops and returns
// its error too; after the collector has stopped it returns ErrClosed.
func (c *Collector[O, R]) Sweep(ctx context.Context) (Swept[O, R], error) {
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return Swept[O, R]{}, err
	}
	defer end()
	var swept Swept[O, R]
	var blind, failed []error
	swept.Collected, blind = c.lookAll(ctx)
	swept.Released, failed = c.releaseDue(ctx)

	return swept, errors.Join(append(blind, failed...)...)
}

// lookAll looks at every owner.
func (c *Collector[O, R]) lookAll(ctx context.Context) (collected []O, errs []error) {
	if c.opts.InUse == nil {
		return nil, nil
	}
	var (
		looks sync.WaitGroup
		// mu protects the results.
		mu sync.Mutex
	)
	for _, key := range c.using() {
		if c.admit(ctx) != nil {
			break
		}
		looks.Go(func() {
			gone, err := c.lookAdmitted(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if gone {
				collected = append(collected, key)
			}
			if err != nil && ctx.Err() == nil {
				errs = append(errs, &OwnerError[O]{Owner: key, Err: err})
			}
		})
	}

	looks.Wait()
	return collected, errs
}

// using returns the owners that use something.
func (c *Collector[O, R]) using() []O {
	c.mu.Lock()
	defer c.mu.Unlock()

	ret := make([]O, 0, len(c.owners))
	for key, rec := range c.owners {
		if len(rec.uses) > 0 {
			ret = append(ret, key)
		}
	}
	return ret
}
