// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/resolver"
	"github.com/fleetcache/fleetcache/clustercache/sharding"
	"github.com/fleetcache/fleetcache/examples/internal/story"
)

const (
	// groupName is the name of the group, with which the names of its Leases
	// begin.
	groupName = "stamper"
	// slots is small, since there are few clusters: an empty slot has some
	// weight, too, and many of them would balance a cluster. Leave the default
	// if you have hundreds of clusters.
	slots = 24
	// standbys is how many replicas keep the caches of a cluster warm besides
	// its owner, so that one that takes over need not list anything.
	standbys = 1
	// workers is how many objects a replica reconciles at a time.
	workers = 4
)

// identity is what distinguishes a replica from the others, as its Pod knows
// it. In a StatefulSet the name stays the same, so a replica that restarts gets
// its former clusters back.
type identity struct{ name, namespace string }

// shardingOptions returns the options of a replica, whose Leases are in the
// namespace of its Pod.
func (i identity) shardingOptions(log logr.Logger) sharding.Options {
	return sharding.Options{
		Namespace: i.namespace,
		Name:      groupName,
		Identity:  i.name,
		Slots:     slots,
		Standbys:  standbys,
		Logger:    log,
	}
}

// replica is one process of the operator.
type replica struct {
	manager  manager.Manager
	share    *sharding.Sharding
	clusters *clustercache.ClusterCache
}

// addReplica adds to a manager in the hub what makes it one replica of the
// group: the Sharding, a ClusterCache of the clusters that it owns or stands by
// for, and the controller. It does no I/O.
func addReplica(mgr manager.Manager, id identity, say func(report)) (*replica, error) {
	share, err := sharding.New(mgr.GetConfig(), id.shardingOptions(mgr.GetLogger()))
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(share); err != nil {
		return nil, err
	}
	// Only for the demonstration, and so that each report precedes what the
	// ClusterCache does about it.
	share.Subscribe(func(e sharding.Event) {
		say(report{Event: e.Type.String(), Slot: e.Slot, Token: e.Token})
		e.Done() // there is nothing to fill, and no work to wait for
	})

	clusters, err := resolver.InHub(mgr.GetConfig(), resolver.ClusterAPI,
		resolver.HubOptions{Namespace: id.namespace, Logger: mgr.GetLogger()})
	if err != nil {
		return nil, err
	}
	cc, err := clustercache.SetupWithManager(mgr, clustercache.Options{
		Resolver:  clusters,
		Discover:  true,
		Sharding:  share,
		UserAgent: id.name,
	})
	if err != nil {
		return nil, err
	}
	if err := addController(mgr, cc, id.name, say); err != nil {
		return nil, err
	}
	return &replica{manager: mgr, share: share, clusters: cc}, nil
}

// run runs the replica until ctx ends. Then it first hands over its clusters,
// which waits for the work under way. Only then the manager stops, which
// cancels the contexts of all reconcilers at once.
func (r *replica) run(ctx context.Context) error {
	managed, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	left := make(chan error, 1)
	go func() {
		defer stop()
		select {
		case <-ctx.Done():
			left <- r.share.Close(managed) // bounded by DrainTimeout and a few requests
		case <-managed.Done():
			left <- nil
		}
	}()
	err := r.manager.Start(managed)
	stop()
	return errors.Join(err, <-left)
}

// addController adds the controller that stamps the widgets of all clusters
// that the replica owns. It says nothing of replicas: neither it nor its
// reconciler need to know that there are others.
func addController(mgr manager.Manager, cc *clustercache.ClusterCache, name string, say func(report)) error {
	return controller.NewControllerManagedBy(mgr, cc).
		For(newWidget("")).
		WithOptions(runtimecontroller.TypedOptions[controller.Request]{MaxConcurrentReconciles: workers}).
		Complete(newStamper(name, say))
}

// beReplica runs one replica until ctx ends. Then it finishes the work under
// way, and hands its clusters over.
func beReplica(ctx context.Context, s settings, out *story.Printer, log logr.Logger) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Logger:                 log,
		Metrics:                metricsserver.Options{BindAddress: "0"}, // several replicas share a machine here
		HealthProbeBindAddress: s.probes,
	})
	if err != nil {
		return err
	}
	id := identity{name: os.Getenv("POD_NAME"), namespace: os.Getenv("POD_NAMESPACE")}
	say := func(r report) {
		r.Time = time.Now()
		line, err := json.Marshal(r)
		if err != nil {
			log.Error(err, "Report not printed")
		}
		out.Print(string(line) + "\n")
	}
	r, err := addReplica(mgr, id, say)
	if err != nil {
		return fmt.Errorf("replica %q: %w", id.name, err)
	}
	if s.reads > 0 {
		if err := mgr.Add(&reader{clusters: r.clusters, every: s.reads, say: say}); err != nil {
			return err
		}
	}
	return r.run(ctx)
}
