// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
)

// Options configure a Collector. No callback is called under a lock; all of
// them may call Owners, Uses, Snapshot and Drop.
type Options[O, R comparable] struct {
	// Acquire makes a resource live. Declare calls it, on the goroutine of its
	// caller, for a resource that is not held yet. For one resource, Acquire
	// and Release never overlap and strictly alternate; for different
	// resources, Acquires of different callers run in parallel. A failed
	// Acquire must leave nothing behind: no Release follows. What it creates
	// must not end with ctx, which belongs only to the caller that came first.
	// It must not declare the same resource, nor for the same owner. Optional:
	// without it, a resource is live once declared.
	Acquire func(ctx context.Context, resource R) error

	// Release ends an unused resource. Releases run one after the other, so it
	// should not wait for a network; Run does not return while it runs. It must
	// not declare the same resource, nor call Sweep. Required.
	Release func(resource R)

	// InUse reports whether an owner still exists and still uses what it
	// declared. It must honor ctx, which ends after Timeout and when the
	// collector stops: Run does not return while it runs. Any error means
	// "unknown", whatever the bool; ErrPartial is meant for queries that see
	// only part of the whole. An answer given after ctx has ended also counts
	// as unknown, so the answer of a query that swallows errors is ignored. It
	// may Declare and Drop, but must not call Sweep. Optional: without it, only
	// Drop and Declare free an owner's resources.
	InUse func(ctx context.Context, owner O) (bool, error)

	// Collected is called, once, after an owner was found gone and everything it
	// used was freed. It is how an owner that exists nevertheless learns that it
	// has to declare again: nothing else tells it. A Drop does not call it. It
	// must not block, nor call Sweep. A panic is logged. Optional.
	Collected func(owner O)

	// Grace is how long a resource without owners is kept, and the minimal time
	// between the look that first finds an owner gone and the look that
	// decides. 0 means 30 s, a negative value means none.
	Grace time.Duration

	// MinInterval is the time between the first declaration of an owner and the
	// first look at it. It doubles with each look that finds the owner in use,
	// and starts again after an inconclusive one. 0 means 2 s; must not be
	// negative.
	MinInterval time.Duration

	// MaxInterval is the longest time between two looks at an owner. 0 means
	// 512 s, or MinInterval if that is longer; must not be shorter than
	// MinInterval.
	MaxInterval time.Duration

	// Timeout bounds one call of InUse. 0 means 10 s; must not be negative.
	Timeout time.Duration

	// Concurrency bounds how many calls of InUse run at a time, those of Sweep
	// included. 0 means 8; must not be negative.
	Concurrency int

	// Rate bounds how many calls of InUse begin in a second, those of Sweep
	// included, with bursts of Concurrency. 0 means 100; must not be
	// negative; +Inf means no bound.
	Rate float64

	// Logger receives collected owners and failed looks, and at V(1) released
	// resources. The zero value discards.
	Logger logr.Logger
}

// Defaults of Options.
const (
	defaultGrace       = 30 * time.Second
	defaultMinInterval = 2 * time.Second
	defaultMaxInterval = 512 * time.Second
	defaultTimeout     = 10 * time.Second
	defaultConcurrency = 8
	defaultRate        = 100
)

// complete returns the options with defaults filled in, or an error that names
// the invalid option.
func (o Options[O, R]) complete() (Options[O, R], error) {
	if o.Release == nil {
		return o, errors.New("gc: Options.Release is required")
	}
	for _, v := range []struct {
		name    string
		invalid bool
	}{
		{"MinInterval", o.MinInterval < 0},
		{"MaxInterval", o.MaxInterval < 0},
		{"Timeout", o.Timeout < 0},
		{"Concurrency", o.Concurrency < 0},
		{"Rate", o.Rate < 0 || math.IsNaN(o.Rate)},
	} {
		if v.invalid {
			return o, fmt.Errorf("gc: Options.%s must not be negative", v.name)
		}
	}

	o.Grace = cmp.Or(o.Grace, defaultGrace)
	o.MinInterval = cmp.Or(o.MinInterval, defaultMinInterval)
	o.MaxInterval = cmp.Or(o.MaxInterval, max(defaultMaxInterval, o.MinInterval))
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Concurrency = cmp.Or(o.Concurrency, defaultConcurrency)
	o.Rate = cmp.Or(o.Rate, defaultRate)
	if o.MaxInterval < o.MinInterval {
		return o, errors.New("gc: Options.MaxInterval must not be shorter than MinInterval")
	}
	return o, nil
}

func (o Options[O, R]) policy() policy {
	return policy{grace: max(o.Grace, 0), minInterval: o.MinInterval, maxInterval: o.MaxInterval}
}

func (o Options[O, R]) limiter() *rate.Limiter {
	// rate.Inf is the largest finite number.
	return rate.NewLimiter(rate.Limit(min(o.Rate, math.MaxFloat64)), o.Concurrency)
}
