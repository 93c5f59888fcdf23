// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
)

const (
	// debounce is how long a site waits until its theme has not changed again.
	debounce = 500 * time.Millisecond
	// drainTimeout bounds how long the end waits for reconciles.
	drainTimeout = 5 * time.Second
	// workers is how many reconciles may be under way.
	workers = 4
)

// operator reconciles the sites of all clusters. Its sources are the handles
// on a running controller: Trigger and TriggerAll of sites reconcile one of
// them, and all.
type operator struct {
	manager manager.Manager
	sites   *controller.TypedObjectSource[controller.Request]
	gate    *gate
}

// newOperator adds the controller to a manager. It does no I/O.
func newOperator(mgr manager.Manager, cc *clustercache.ClusterCache, began observer) (*operator, error) {
	watch := func(kind client.Object, options ...client.ListOption) events.Selection {
		return events.Selection{Kinds: []client.Object{kind}, Watch: true, Options: options}
	}
	o := &operator{manager: mgr, gate: &gate{}}
	o.sites = controller.ObjectSource(cc, watch(clustercache.Kind(siteKind)), controller.EnqueueObject)
	pages := controller.ObjectSource(cc, watch(&corev1.ConfigMap{}),
		controller.EnqueueOwner(siteKind, controller.OwnerOptions{ControllerOnly: true}),
		controller.ObjectSourceOptions{Representation: events.Packed}) // it reads only metadata
	themes := controller.ObjectSource(cc, watch(&corev1.ConfigMap{}, client.MatchingFields{"metadata.name": themeName}),
		enqueueSites(cc), controller.ObjectSourceOptions{Debounce: debounce})

	_, err := controller.NewControllerManagedBy(mgr, cc).Named("site").
		WatchesRawSource(o.sites).
		WatchesRawSource(pages).
		WatchesRawSource(themes).
		WithOptions(runtimecontroller.TypedOptions[controller.Request]{MaxConcurrentReconciles: workers}).
		Build(o.gate.guard(controller.PerCluster(cc, func(c client.Client) reconcile.Reconciler {
			return &reconciler{client: c, began: began}
		})))
	return o, err
}

// run runs the operator until ctx ends. Then no reconcile begins any more, and
// those under way finish; those that have not after drainTimeout are canceled,
// and it returns an errCanceled.
func (o *operator) run(ctx context.Context) error {
	managed, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	drained := make(chan error, 1)
	go func() {
		defer stop()
		drained <- o.drain(ctx, managed)
	}()
	err := o.manager.Start(managed)
	stop()

	return errors.Join(err, <-drained)
}

var errCanceled = errors.New("reconciles were canceled")

// drain waits until ctx ends, and then until no reconcile is under way. It ends
// early with managed, the manager's context.
func (o *operator) drain(ctx, managed context.Context) error {
	select {
	case <-ctx.Done():
	case <-managed.Done():
		return nil
	}
	bounded, cancel := context.WithTimeout(managed, drainTimeout)
	defer cancel()
	if o.gate.close(bounded) > 0 {
		return errCanceled
	}
	return nil
}
