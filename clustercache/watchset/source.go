// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package watchset

import (
	"context"
	"maps"
	"slices"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/internal/debounce"
)

// MapFunc returns the requests to reconcile because of an event. For an update
// it sees both the old and the new state. It is called by one goroutine at a
// time for each controller. ctx ends when the entry is removed, and with the
// controller. After a panic the event is mapped again, with back-off.
type MapFunc[request comparable] func(ctx context.Context, e Event) []request

// Source returns a source of a controller, for its WatchesRawSource: the events
// of a set become requests, whose type can be that of any controller. It begins
// with the objects that exist, which are queued with low priority where the
// queue has priorities. Starting it neither blocks nor fails because of a
// cluster. It ends with the controller, and several controllers can start it.
// The error of Start is that mapping is nil, or clustercache.ErrClosed.
func Source[request comparable](s *Set, mapping MapFunc[request]) source.TypedSource[request] {
	return source.TypedFunc[request](func(
		ctx context.Context, queue workqueue.TypedRateLimitingInterface[request],
	) error {
		if s == nil {
			return &clustercache.OptionError{Field: "s", Err: errRequired}
		}
		if mapping == nil {
			return &clustercache.OptionError{Field: "mapping", Err: errRequired}
		}
		requests := debounce.New(queue, debounce.Config{})
		c := newConsumer(s, "mapping of a watchset", 1)
		c.handle = func(ctx context.Context, e Event) error {
			for _, r := range mapping(ctx, e) {
				requests.Add(r, e.Initial)
			}
			return nil
		}
		return s.attach(ctx, c)
	})
}

// attach has a consumer receive the events of all entries, until ctx ends.
func (s *Set) attach(ctx context.Context, c *consumer) error {
	if err := s.takeTurn(ctx); err != nil {
		return err
	}
	defer s.endTurn()

	s.mu.Lock()
	if s.mu.stopped {
		s.mu.Unlock()
		return clustercache.ErrClosed
	}
	s.mu.consumers[c] = struct{}{}
	entries := slices.Collect(maps.Values(s.mu.entries))
	s.mu.Unlock()

	c.connect(c.begin(entries...))
	context.AfterFunc(ctx, func() { s.detach(c) }) // ends with the last call of the handler

	return nil
}

// detach ends a consumer, and forgets it after its last call: until then,
// Replace and Close wait for that.
func (s *Set) detach(c *consumer) {
	c.stop()
	c.queue.running.Wait()

	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.consumers, c)
}
