// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	capi "sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
	"github.com/fleetcache/fleetcache/clustercache/status"
)

// GetClusterSource implements Cluster API's ClusterCache. The mapping function
// gets the Cluster object as Options.Hub has it, and is not called for one that
// does not exist. The only option is Cluster API's WatchForProbeFailure;
// another one is an error of the source's Start. Several controllers can start
// the source; each ends its own with its context.
func (c *ClusterCache) GetClusterSource(
	controllerName string, mapFunc func(context.Context, client.Object) []ctrl.Request,
	opts ...capi.GetClusterSourceOption,
) source.Source {
	s := &clusterSource{c: c, name: controllerName, mapFunc: mapFunc}
	for _, o := range opts {
		d, ok := o.(capi.WatchForProbeFailure)
		if !ok {
			s.err = fmt.Errorf("cluster source of controller %s: option %T is not supported", controllerName, o)
			continue
		}
		s.silentFor = append(s.silentFor, time.Duration(d))
	}

	return s
}

// clusterSource delivers connects, disconnects and silences.
type clusterSource struct {
	c         *ClusterCache
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
	failing := map[client.ObjectKey]struct{}{} // the filter is called from one goroutine at a time
	received := controller.ClusterSource(s.c.cc, s.requests, controller.ClusterSourceOptions{
		SilentFor: s.silentFor,
		Filter:    func(e events.Cluster) bool { return s.selects(e, failing) },
	})
	return received.Start(ctx, queue)
}

// String names the source in the controller's log.
func (s *clusterSource) String() string { return "fleetcache cluster source of " + s.name }

// selects reports whether Cluster API would deliver an event. A source that
// waits for failures also gets the first one of a cluster that never answered.
// failing has the clusters of which it got that.
func (s *clusterSource) selects(e events.Cluster, failing map[client.ObjectKey]struct{}) bool {
	switch {
	case e.Type == events.Removed, e.Phase == status.PhaseGone:
		delete(failing, e.Cluster)
	case e.Type == events.PhaseChanged && len(s.silentFor) > 0:
		status, err := s.c.cc.Cluster(e.Cluster).Status()
		if _, told := failing[e.Cluster]; told || err != nil || status.Failures == 0 ||
			!status.LastProbeSuccess.IsZero() {
			return false
		}
		failing[e.Cluster] = struct{}{}
		return true
	}

	return e.Type == events.Connected || e.Type == events.Disconnected ||
		e.Type == events.Silent && len(s.silentFor) > 0
}

// requests maps the Cluster object of an event. Where it cannot be read, its
// key is all that the mapping function gets.
func (s *clusterSource) requests(ctx context.Context, e events.Cluster) []ctrl.Request {
	object := &clusterv1.Cluster{}
	object.SetNamespace(e.Cluster.Namespace)
	object.SetName(e.Cluster.Name)
	if s.c.hub == nil {
		return s.mapFunc(ctx, object)
	}

	found := &clusterv1.Cluster{}
	switch err := s.c.hub.Get(ctx, e.Cluster, found); {
	case err == nil:
		object = found
	case apierrors.IsNotFound(err):
		return nil
	default:
		s.c.cc.Options().Logger.Error(err, "The Cluster of an event cannot be read, its key is all that is mapped",
			"controller", s.name, "cluster", e.Cluster.String())
	}

	return s.mapFunc(ctx, object)
}
