// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package migrating

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
	"github.com/fleetcache/fleetcache/clustercache/events"
)

// The labels by which the copies of an object in remote clusters name the
// original in the hub.
const (
	OriginLabel          = "example.com/origin"
	OriginNamespaceLabel = "example.com/origin-namespace"
)

// RawWatch follows the copies in one remote cluster by a watch, and passes the
// originals on, until ctx ends.
func RawWatch(ctx context.Context, remote client.WithWatch, received chan<- event.GenericEvent) {
	for ctx.Err() == nil {
		w, err := remote.Watch(ctx, &corev1.ConfigMapList{}, client.HasLabels{OriginLabel})
		if err != nil {
			time.Sleep(time.Second) // and count the failures, and back off, and mark the cluster as lost
			continue
		}
		for e := range w.ResultChan() {
			copied, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				break // a status: the watch is too old, or the credential expired
			}
			original := &corev1.ConfigMap{}
			original.Namespace, original.Name = copied.Labels[OriginNamespaceLabel], copied.Labels[OriginLabel]
			select {
			case received <- event.GenericEvent{Object: original}:
			case <-ctx.Done():
			}
		}
		w.Stop() // and watch again: every object is sent once more, but no delete that was missed
	}
}

// WithRawWatches is a controller of the hub that reconciles the originals. A
// goroutine for each remote cluster runs RawWatch.
func WithRawWatches(mgr ctrl.Manager, received <-chan event.GenericEvent, r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(mgr).Named("originals").
		For(&corev1.ConfigMap{}).
		WatchesRawSource(source.Channel(received, &handler.Funcs{GenericFunc: func(
			_ context.Context, e event.GenericEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
		) {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
		}})).
		Complete(r)
}

// WithSource does the same for all remote clusters, present and future.
func WithSource(mgr ctrl.Manager, cc *clustercache.ClusterCache, r reconcile.Reconciler) error {
	copies := events.Selection{
		Kinds:   []client.Object{&corev1.ConfigMap{}},
		Options: []client.ListOption{client.HasLabels{OriginLabel}},
		Watch:   true,
	}
	return ctrl.NewControllerManagedBy(mgr).Named("originals").
		For(&corev1.ConfigMap{}).
		WatchesRawSource(controller.ObjectSource(cc, copies,
			controller.EnqueueLabelled(OriginNamespaceLabel, OriginLabel))).
		Complete(r)
}
