// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package resolver

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/fleetcache/fleetcache/internal/clustername"
)

// news passes reports on to all subscribers. The zero value is ready.
type news struct {
	mu      sync.Mutex // protects the fields below
	readers map[*reader]struct{}
}

// reader coalesces reports for one subscriber, so that a blocking subscriber
// does not hold up others.
type reader struct {
	wake chan struct{} // one slot

	mu      sync.Mutex // protects the fields below
	pending map[Cluster]struct{}
}

func newReader() *reader {
	return &reader{wake: make(chan struct{}, 1), pending: map[Cluster]struct{}{}}
}

func (n *news) subscribe() *reader {
	r := newReader()
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.readers == nil {
		n.readers = map[*reader]struct{}{}
	}
	n.readers[r] = struct{}{}

	return r
}

func (n *news) unsubscribe(r *reader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.readers, r)
}

func (n *news) publish(clusters ...Cluster) {
	n.mu.Lock()
	readers := slices.Collect(maps.Keys(n.readers))
	n.mu.Unlock()

	for _, r := range readers {
		r.add(clusters...)
	}
}

func (r *reader) add(clusters ...Cluster) {
	if len(clusters) == 0 {
		return
	}
	r.mu.Lock()
	for _, cluster := range clusters {
		r.pending[cluster] = struct{}{}
	}
	r.mu.Unlock()

	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reader) take() []Cluster {
	r.mu.Lock()
	defer r.mu.Unlock()

	out := slices.SortedFunc(maps.Keys(r.pending), clustername.Compare)
	clear(r.pending)
	return out
}

// deliver calls changed for every report until ctx ends.
func (r *reader) deliver(ctx context.Context, changed func(Cluster)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for _, cluster := range r.take() {
			if ctx.Err() != nil {
				return
			}
			changed(cluster)
		}
	}
}

// sharedLoop runs one loop for as long as it has holders.
type sharedLoop struct {
	run func(ctx context.Context)

	mu     sync.Mutex // protects the fields below
	holds  int
	cancel context.CancelFunc
	done   chan struct{}
}

// hold makes sure that the loop runs. The last release stops it and waits for
// its end. A hold that comes while an old loop is ending starts a new one
// beside it, so a loop must not share state with its predecessor.
func (l *sharedLoop) hold(ctx context.Context) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.holds++

	if l.holds == 1 {
		// The loop serves all holders, so it keeps the first one's context
		// values, but not its end.
		loopCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		l.cancel, l.done = cancel, done
		go func() {
			defer close(done)
			l.run(loopCtx)
		}()
	}

	return l.release
}

func (l *sharedLoop) release() {
	l.mu.Lock()
	l.holds--
	var cancel context.CancelFunc
	var done chan struct{}
	if l.holds == 0 {
		cancel, done = l.cancel, l.done
	}
	l.mu.Unlock()

	if cancel != nil {
		cancel()
		<-done
	}
}
