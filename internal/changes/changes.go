// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

// Package changes passes on which clusters have changed, and shares one loop
// that finds out among all who wait for changes.
package changes

import (
	"context"
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/clustername"
)

// Broadcaster passes reports on to all subscribers. The zero value is ready.
type Broadcaster struct {
	mu      sync.Mutex // protects the fields below
	readers map[*Reader]struct{}
}

// Reader coalesces reports for one subscriber, so that a blocking subscriber
// does not hold up others.
type Reader struct {
	wake chan struct{} // one slot

	mu      sync.Mutex // protects the fields below
	pending map[client.ObjectKey]struct{}
}

// NewReader returns a reader without reports, of no broadcaster.
func NewReader() *Reader {
	return &Reader{wake: make(chan struct{}, 1), pending: map[client.ObjectKey]struct{}{}}
}

// Subscribe returns a new reader.
func (f *Broadcaster) Subscribe() *Reader {
	r := NewReader()
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.readers == nil {
		f.readers = map[*Reader]struct{}{}
	}
	f.readers[r] = struct{}{}

	return r
}

// Unsubscribe removes a reader.
func (f *Broadcaster) Unsubscribe(r *Reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, r)
}

// Publish adds clusters to all readers.
func (f *Broadcaster) Publish(clusters ...client.ObjectKey) {
	f.mu.Lock()
	readers := slices.Collect(maps.Keys(f.readers))
	f.mu.Unlock()

	for _, r := range readers {
		r.Add(clusters...)
	}
}

// Add adds clusters to one reader.
func (r *Reader) Add(clusters ...client.ObjectKey) {
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

func (r *Reader) take() []client.ObjectKey {
	r.mu.Lock()
	defer r.mu.Unlock()

	out := slices.SortedFunc(maps.Keys(r.pending), clustername.Compare)
	clear(r.pending)
	return out
}

// Deliver calls changed for every report until ctx ends.
func (r *Reader) Deliver(ctx context.Context, changed func(client.ObjectKey)) {
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
