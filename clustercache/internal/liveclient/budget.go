// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"fmt"

	"github.com/fleetcache/fleetcache/informerpool"
)

const (
	// An answer may take a share-th of the limit plus factor times its size, so
	// that short answers cannot take as much as long ones: real objects are
	// estimated at five to nine times their JSON.
	share  = 16
	factor = 16
	// copies is how many copies of a body client-go has at once while it reads
	// the body.
	copies = 3
)

// budget is the memory that the answers to one call may take, for all tries and
// pages together.
type budget struct {
	limit int64 // negative: none
	read  int64 // bytes of bodies
	taken int64 // memory of the objects decoded from them
}

// check returns an ErrBudget if a body that is being read would take more, in
// addition to the memory taken so far, than the budget has.
func (b *budget) check(more int64) error {
	if b.limit < 0 {
		return nil
	}
	allowed := min(b.limit, b.limit/share+factor*b.read)
	if b.taken+more <= allowed {
		return nil
	}
	if allowed < b.limit {
		return fmt.Errorf("%w: %d bytes of the answer take more than %d in memory",
			informerpool.ErrBudget, b.read, allowed)
	}
	return fmt.Errorf("%w: the answer takes more than %d bytes in memory (Options.MaxLiveBytes)",
		informerpool.ErrBudget, allowed)
}

// budgetKey is the context key of the budget that all calls of a read share.
type budgetKey struct{}

// WithBudget makes all calls with the context share one budget.
func WithBudget(ctx context.Context, limit int64) context.Context {
	return context.WithValue(ctx, budgetKey{}, &budget{limit: limit})
}
