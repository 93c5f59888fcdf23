// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/internal/callback"
)

const (
	// maxClusterWeight bounds what Options.ClusterWeight returns.
	maxClusterWeight = 1000
	// weighInterval is the time between two looks at the weights of clusters.
	weighInterval = time.Minute
)

// weigh keeps the weights of clusters until ctx ends.
func (s *Sharding) weigh(ctx context.Context) {
	ticker := time.NewTicker(weighInterval)
	defer ticker.Stop()
	weights := map[client.ObjectKey]int{}
	for {
		weights = s.weights(*s.clusters.Load(), weights)
		select {
		case <-ticker.C:
		case <-s.found:
		case <-ctx.Done():
			return
		}
	}
}

// weights asks for the weights of clusters, and sets the loads of slots. A
// weight stays what it was before unless it has changed by more than a quarter.
// A slot with a cluster of unknown weight has no load.
func (s *Sharding) weights(clusters []client.ObjectKey, before map[client.ObjectKey]int) map[client.ObjectKey]int {
	weights, loads := make(map[client.ObjectKey]int, len(clusters)), make([]int, s.options.Slots)
	unknown := make([]bool, s.options.Slots)
	err := callback.Apart("sharding.Options.ClusterWeight", func() error {
		for _, c := range clusters {
			weights[c] = min(max(s.options.ClusterWeight(c), 0), maxClusterWeight)
		}
		return nil
	})
	if err != nil {
		s.log.Error(err, "clusters keep their weights")
		return before
	}
	for c, weight := range weights {
		if old := before[c]; weight > 0 && 4*max(weight-old, old-weight) <= old {
			weight = old
		}
		n := s.Slot(c)
		weights[c], loads[n], unknown[n] = weight, loads[n]+weight, unknown[n] || weight == 0
	}
	for n := range loads {
		loads[n] = min(loads[n], maxNumber)
		if unknown[n] {
			loads[n] = 0
		}
	}
	s.loads.Store(&loads)
	return weights
}

// SetDraining makes the replica give up all its clusters, and get no more,
// without ending it, or ends that. It does no I/O: the next renewal of the
// replica's Lease says so. The annotation
// fleetcache.github.io/sharding-drain=true of that Lease has the same effect,
// and what was said last counts; it ends when the replica does. If all replicas
// of a group are to drain, none does. What is not drained fills its caches
// first: so a cluster is handed over as in any planned move.
func (s *Sharding) SetDraining(draining bool) { s.drain.Store(&draining) }
