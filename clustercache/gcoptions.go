// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"math"
	"time"
)

// GC says how what is declared ends when it is not needed any more, and how
// owners that end without a word are found. The zero value works; then only
// Declare and Drop take away from an owner.
type GC struct {
	// InUse says whether an owner still exists; [OwnerExists] makes one that
	// asks the hub. It must honour ctx. Any error means that nothing is known,
	// and nothing is let go; gc.ErrPartial says so without an error in the log.
	// An owner is given up when two answers at least Grace apart say that it is
	// gone, and it declared nothing between them. Optional; [SetupWithManager]
	// looks in the manager's cluster by default.
	InUse func(ctx context.Context, owner Owner) (bool, error)

	// Grace is how long what nobody uses any more is kept, in the place of
	// Informers.Linger: used again by then, it costs no request. Defaults to 30
	// s; negative means none.
	Grace time.Duration

	// MinInterval is the time from an owner's first declaration to the first
	// look at it. It doubles with each look that finds the owner in use.
	// Defaults to 2 s.
	MinInterval time.Duration
	// MaxInterval is the longest time between two looks at an owner. Defaults
	// to 512 s, or to MinInterval if that is longer.
	MaxInterval time.Duration
	// Timeout bounds one call of InUse. Defaults to 10 s.
	Timeout time.Duration
	// Concurrency is how many calls of InUse run at once. Defaults to 8.
	Concurrency int
	// Rate is how many calls of InUse begin in a second, with bursts of
	// Concurrency. Defaults to 100; +Inf means no bound.
	Rate float64
}

// validate hands what is wrong to check.
func (o GC) validate(check func(ok bool, field, msg string)) {
	check(o.MinInterval >= 0, "GC.MinInterval", "negative")
	check(o.MaxInterval >= 0, "GC.MaxInterval", "negative")
	check(o.MaxInterval <= 0 || o.MaxInterval >= o.MinInterval, "GC.MaxInterval", "less than MinInterval")
	check(o.Timeout >= 0, "GC.Timeout", "negative")
	check(o.Concurrency >= 0, "GC.Concurrency", "negative")
	check(o.Rate >= 0 && !math.IsNaN(o.Rate), "GC.Rate", "negative")
}
