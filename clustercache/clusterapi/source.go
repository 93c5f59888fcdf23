// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
)

// clusterSource delivers connects, disconnects and silences.
type clusterSource struct {
	cc        *clustercache.ClusterCache
	name      string
	mapFunc   func(context.Context, client.Object) []ctrl.Request
	silentFor []time.Duration
	err       error
}

// Start implements source.Source. It does not block.
func (s *clusterSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	if s.err != nil {
		return s.err
	}
	events := controller.ClusterSource(s.cc,
		func(ctx context.Context, e clustercache.ClusterEvent) []ctrl.Request {
			object := &clusterv1.Cluster{}
			object.SetNamespace(e.Cluster.Namespace)
			object.SetName(e.Cluster.Name)
			return s.mapFunc(ctx, object)
		},
		controller.ClusterSourceOptions{SilentFor: s.silentFor, Filter: s.selects})
	return events.Start(ctx, queue)
}

// String names the source in the controller's log.
func (s *clusterSource) String() string { return "fleetcache cluster source of " + s.name }

// selects reports whether Cluster API would deliver an event. A source that
// waits for failures also gets the first one of a cluster that never answered.
func (s *clusterSource) selects(e clustercache.ClusterEvent) bool {
	switch e.Type {
	case clustercache.Connected, clustercache.Disconnected:
		return true
	case clustercache.Silent:
		return len(s.silentFor) > 0
	case clustercache.PhaseChanged:
		status, err := s.cc.Status(e.Cluster)
		return len(s.silentFor) > 0 && err == nil && status.Failures > 0 && status.LastProbeSuccess.IsZero()
	}

	return false
}
