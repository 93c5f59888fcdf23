// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// patience is how long a query takes a place while none has been answered.
	patience = 5 * time.Second
	// slow is how many times as long as the others a query may take before it
	// gives up its place, and minPatience how long it may take at least.
	slow        = 4
	minPatience = 250 * time.Millisecond
)

// queries are those of the API servers, each on a goroutine of its own. They
// are begun and received on the goroutine of the caller alone, so that a caller
// that takes its time also slows them down.
type queries struct {
	ctx     context.Context //nolint:containedctx // ends with the iteration
	cancel  context.CancelFunc
	read    *read
	waiting []target
	places  []*query // those that count, in the order in which they began
	open    int      // begun and not received, whether they count or not
	results chan answered
	known   bool          // one has succeeded
	mean    time.Duration // of those that succeeded
	ended   sync.WaitGroup
}

// query is one query that is under way.
type query struct {
	target

	began time.Time
}

// answered is a query with its result.
type answered struct {
	*query

	of   result
	took time.Duration
}

// newQueries returns the queries of a read of n clusters.
func newQueries(ctx context.Context, r *read, n int) *queries {
	q := &queries{read: r, results: make(chan answered, n)} // so that sending never blocks
	q.ctx, q.cancel = context.WithCancel(ctx)
	return q
}

// stop cancels the queries, and waits until they have ended.
func (q *queries) stop() {
	q.cancel()
	q.ended.Wait()
}

// add queries an API server now or later.
func (q *queries) add(t target) {
	q.waiting = append(q.waiting, t)
	if q.open < q.read.options.Concurrency {
		q.begin()
	}
}

// begin begins the query that waits longest.
func (q *queries) begin() {
	began := &query{target: q.waiting[0], began: time.Now()}
	q.waiting = q.waiting[1:]
	q.places = append(q.places, began)
	q.open++
	q.ended.Go(func() {
		ctx, cancel := context.WithTimeoutCause(q.ctx, q.read.options.Timeout, errTimeout)
		defer cancel()
		of, _ := q.read.list(ctx, began.target, true)
		q.results <- answered{query: began, of: of, took: time.Since(began.began)}
	})
}

// next waits for the next result. It returns false after the last one.
func (q *queries) next() (result, bool) {
	for {
		free := q.advance()
		if q.open == 0 {
			return result{}, false // nothing waits either, since places are free
		}
		select {
		case a := <-q.results:
			return q.received(a), true
		case <-free:
		}
	}
}

// advance begins queries while there are places. The result receives when the
// next place will be given up; it is nil if nothing waits for one.
func (q *queries) advance() <-chan time.Time {
	q.places = slices.DeleteFunc(q.places, func(p *query) bool { return time.Since(p.began) >= q.patience() })
	for len(q.waiting) > 0 && len(q.places) < q.read.options.Concurrency {
		q.begin()
	}
	if len(q.waiting) == 0 {
		return nil
	}
	return time.After(q.patience() - time.Since(q.places[0].began))
}

// patience is how long a query takes a place.
func (q *queries) patience() time.Duration {
	if !q.known {
		return patience
	}
	return max(slow*q.mean, minPatience)
}

// received gives up the place of a query.
func (q *queries) received(a answered) result {
	q.open--
	q.places = slices.DeleteFunc(q.places, func(p *query) bool { return p == a.query })
	switch {
	case a.of.err != nil:
	case !q.known:
		q.known, q.mean = true, a.took
	default:
		q.mean += (a.took - q.mean) / 8
	}

	return a.of
}
