// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
)

// work is how long it takes to reconcile a widget: as long as a few calls of
// another API, which notice neither that a context has ended nor that the
// process was stopped.
const work = 300 * time.Millisecond

// widgetNamespace is where the widgets are in each remote cluster.
const widgetNamespace = "demo"

var widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func newWidget(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(widgetKind)
	u.SetNamespace(widgetNamespace)
	u.SetName(name)
	return u
}

// stamp is the status of a widget: which generation was reconciled last, by
// which replica, and how many generations were reconciled in all.
type stamp struct {
	ObservedGeneration int64  `json:"observedGeneration"`
	By                 string `json:"by"`
	Times              int64  `json:"times"`
}

func stampOf(widget *unstructured.Unstructured) (stamp, error) {
	var s stamp
	status, _, err := unstructured.NestedMap(widget.Object, "status")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(status, &s)
	}
	return s, err
}

// stamper stamps the widgets of one cluster.
type stamper struct {
	client client.Client
	name   string // of the replica
	say    func(report)
}

// newStamper returns the function that makes the reconciler of a cluster.
func newStamper(name string, say func(report)) func(client.Client) reconcile.Reconciler {
	return func(c client.Client) reconcile.Reconciler { return &stamper{client: c, name: name, say: say} }
}

// Reconcile does the work that a new generation of a widget needs, and stamps
// the widget then. The write fails if the widget has changed meanwhile, and if
// the replica no longer owns the cluster.
func (r *stamper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	widget := newWidget("")
	if err := r.client.Get(ctx, request.NamespacedName, widget); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	last, err := stampOf(widget)
	if err != nil || last.ObservedGeneration == widget.GetGeneration() {
		return reconcile.Result{}, err
	}

	time.Sleep(work)

	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&stamp{
		ObservedGeneration: widget.GetGeneration(),
		By:                 r.name,
		Times:              last.Times + 1,
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	widget.Object["status"] = status
	err = r.client.Status().Update(ctx, widget)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{}, nil // the newer version is about to be reconciled
	case errors.Is(err, clustercache.ErrNotOwner):
		cluster, _ := controller.ClusterFromContext(ctx)
		r.say(report{Event: refused, Cluster: cluster.Name, Widget: widget.GetName()})
	}
	return reconcile.Result{}, err
}
