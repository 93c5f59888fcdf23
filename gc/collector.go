// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Collector keeps track of which owners use which resources: it acquires a
// resource for its first owner and releases it after its last. Create one with
// New. All methods are safe for concurrent use, before, during and after Run.
type Collector[O, R comparable] struct {
	opts    Options[O, R]
	policy  policy
	limiter *rate.Limiter

	// slots has one slot for each look that may run at a time.
	slots chan struct{}
	// releasing has one slot, for the goroutine that releases.
	releasing chan struct{}
	// looks schedules the looks at owners, and releases the releases of
	// resources.
	looks    *schedule[O]
	releases *schedule[R]

	// life ends when the collector stops, and all calls with it. It ends under
	// mu.
	life context.Context //nolint:containedctx // of no call
	end  context.CancelFunc
	// underWay counts the calls that may still run a callback. It grows only
	// under mu and during life.
	underWay sync.WaitGroup

	// mu protects the fields below and what they point to.
	//
	// INVARIANT: a resource has an owner exactly if that owner's uses name it,
	// and then it is Held.
	mu        sync.Mutex
	running   bool
	owners    map[O]*owner[R]
	resources map[R]*resource[O]
}

// owner is the record of one owner. It exists from the first declaration until
// the owner uses nothing and no declaration is under way.
type owner[R comparable] struct {
	ownerFacts

	// turn has one slot, for the declaration that is being carried out.
	turn chan struct{}
	// uses maps each resource in use to the number of the last declaration that
	// named it.
	uses     map[R]uint64
	declared uint64
	// drops counts the calls of Drop, so that a declaration under way can
	// detect that a Drop overtook it.
	drops uint64
	// err is why the last look was inconclusive.
	err error
}

// resource is the record of one resource. It exists from before Acquire until
// after Release.
type resource[O comparable] struct {
	phase  Phase
	owners map[O]struct{}
	freed  time.Time
	// flight is the Acquire or Release under way, unless phase is Held.
	flight *flight
}

func (r *resource[O]) facts() resourceFacts {
	return resourceFacts{phase: r.phase, owners: len(r.owners), freed: r.freed}
}

// flight is an Acquire or a Release under way.
type flight struct {
	done chan struct{}
	// err is the result that waiters share: why Acquire failed, unless only
	// because of its own caller. It is read after done is closed.
	err error
}

// New returns a collector, or an error if an option is invalid. It starts
// nothing.
func New[O, R comparable](options Options[O, R]) (*Collector[O, R], error) {
	o, err := options.complete()
	if err != nil {
		return nil, err
	}
	c := &Collector[O, R]{
		opts:      o,
		policy:    o.policy(),
		limiter:   o.limiter(),
		slots:     make(chan struct{}, o.Concurrency),
		releasing: make(chan struct{}, 1),
		looks:     newSchedule[O](),
		releases:  newSchedule[R](),
		owners:    map[O]*owner[R]{},
		resources: map[R]*resource[O]{},
	}
	c.life, c.end = context.WithCancel(context.Background())

	return c, nil
}

// begin registers a call. The returned ctx ends with the given one and when the
// collector stops, and Run does not return before end was called.
func (c *Collector[O, R]) begin(ctx context.Context) (_ context.Context, end func(), _ error) {
	c.mu.Lock()
	closed := c.closedLocked()
	if !closed {
		c.underWay.Add(1)
	}
	c.mu.Unlock()

	if closed {
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(c.life, func() { cancel(ErrClosed) })

	return ctx, func() {
		unlink()
		cancel(nil)
		c.underWay.Done()
	}, nil
}

// close refuses new calls, ends those under way, and waits for them.
func (c *Collector[O, R]) close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()

	c.underWay.Wait()
}

func (c *Collector[O, R]) closedLocked() bool { return c.life.Err() != nil }
