// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/informerpool"
)

// ObjectMapFunc returns what is to be reconciled because of an object of a cluster. The object is shared and read-only; its metadata
// costs nothing to read. Of an update it is called with the old and the new state.
type ObjectMapFunc[request comparable] func(ctx context.Context, cluster client.ObjectKey, obj client.Object) []request

// ClusterMapFunc returns what is to be reconciled because of a change of a cluster.
type ClusterMapFunc[request comparable] func(ctx context.Context, event ClusterEvent) []request

// ObjectSource returns a source of a controller, for its WatchesRawSource: one source for any number of clusters and kinds, those that
// are watched later included. Starting it does not block and does not fail because of a cluster. Objects that exist already are
// queued with low priority where the queue has priorities. It ends with the controller.
func ObjectSource[request comparable](cc *ClusterCache, spec ObjectFeed, mapping ObjectMapFunc[request]) source.TypedSource[request] {
	return &objectSource[request]{cc: cc, spec: spec, mapping: mapping}
}

// ClusterSource returns a source of a controller, for its WatchesRawSource: it begins with the state of every known
// cluster, and goes on with their changes. Starting it does not block. It ends with the controller.
func ClusterSource[request comparable](cc *ClusterCache, mapping ClusterMapFunc[request]) source.TypedSource[request] {
	return &clusterSource[request]{cc: cc, mapping: mapping}
}

type objectSource[request comparable] struct {
	cc      *ClusterCache
	spec    ObjectFeed
	mapping ObjectMapFunc[request]
}

// Start implements source.TypedSource.
func (s *objectSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	f, err := s.cc.subscribe(s.spec, func(e ObjectEvent) {
		if ctx.Err() != nil {
			return
		}
		requests := map[request]struct{}{}
		for _, o := range []*informerpool.Object{e.Old, e.New} {
			if o == nil {
				continue
			}
			for _, r := range s.mapping(ctx, e.Cluster, o) {
				requests[r] = struct{}{}
			}
		}
		for r := range requests {
			enqueue(queue, r, e.Initial || e.Resync)
		}
	})
	if err != nil {
		return err
	}
	// Called when either ends, so that neither keeps the other alive.
	context.AfterFunc(ctx, f.stop)
	return nil
}

// String names the source in the controller's log.
func (s *objectSource[request]) String() string { return "fleetcache object source" }

type clusterSource[request comparable] struct {
	cc      *ClusterCache
	mapping ClusterMapFunc[request]
}

// Start implements source.TypedSource.
func (s *clusterSource[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	subscriber := s.cc.events.subscribe()
	started := s.cc.spawn(func() {
		defer s.cc.events.unsubscribe(subscriber)
		for {
			e, ok := subscriber.next(ctx)
			if !ok {
				return
			}
			for _, r := range s.mapping(ctx, e) {
				queue.Add(r)
			}
		}
	})
	if !started {
		s.cc.events.unsubscribe(subscriber)
		return ErrClosed
	}
	return nil
}

// String names the source in the controller's log.
func (s *clusterSource[request]) String() string { return "fleetcache cluster source" }

// enqueue adds a request, behind those of real changes if it comes from a replay.
func enqueue[request comparable](queue workqueue.TypedRateLimitingInterface[request], r request, replay bool) {
	if q, ok := queue.(priorityqueue.PriorityQueue[request]); ok && replay {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, r)
		return
	}
	queue.Add(r)
}
