// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"
	"math"
	"time"
)

// GC configures when unused declarations end, and how owners that end without a
// Drop are found. With the zero value, only Declare and Drop release what an
// owner declared.
type GC struct {
	// InUse reports whether an owner still exists; [OwnerExists] makes one that
	// queries the hub. It must honor ctx. After an error nothing is known about
	// the owner, and nothing is released; gc.ErrPartial has the same effect
	// without an error in the log. An owner is given up when two answers at
	// least Grace apart report that it is gone, and it declared nothing between
	// them. Optional; by default [SetupWithManager] queries the manager's
	// cluster.
	InUse func(ctx context.Context, owner Owner) (bool, error)

	// Grace is how long a watch is kept after its last owner released it, in
	// place of Informers.Linger: used again within that time, it costs no
	// request. Defaults to 30 s; negative means none.
	Grace time.Duration

	// MinInterval is the time from an owner's first declaration to the first
	// check of the owner. The interval doubles with each check that finds the
	// owner in use. Defaults to 2 s.
	MinInterval time.Duration
	// MaxInterval is the longest time between two checks of an owner. Defaults
	// to 512 s, or to MinInterval if that is longer.
	MaxInterval time.Duration
	// Timeout bounds one call of InUse. Defaults to 10 s.
	Timeout time.Duration
	// Concurrency is how many calls of InUse run at once. Defaults to 8.
	Concurrency int
	// Rate is how many calls of InUse begin per second, with bursts of
	// Concurrency. Defaults to 100; +Inf means no limit.
	Rate float64
}

// validate calls check for each constraint.
func (o GC) validate(check func(ok bool, field, msg string)) {
	check(o.MinInterval >= 0, "GC.MinInterval", "negative")
	check(o.MaxInterval >= 0, "GC.MaxInterval", "negative")
	check(o.MaxInterval <= 0 || o.MaxInterval >= o.MinInterval, "GC.MaxInterval", "less than MinInterval")
	check(o.Timeout >= 0, "GC.Timeout", "negative")
	check(o.Concurrency >= 0, "GC.Concurrency", "negative")
	check(o.Rate >= 0 && !math.IsNaN(o.Rate), "GC.Rate", "negative")
}
