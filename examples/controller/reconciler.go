// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/controller"
)

var siteKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Site"}

// themeName is the name of the ConfigMap that all sites of a namespace read.
const themeName = "theme"

// reconciler writes a ConfigMap for each Site: its title, in the color of the
// namespace's theme. It knows of no other cluster.
type reconciler struct {
	client client.Client
	began  observer
}

// observer is called when a reconcile of a site begins, and what it returns when
// it ends.
type observer func(ctx context.Context, site client.ObjectKey) (ended func(error))

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (result ctrl.Result, err error) {
	site := &unstructured.Unstructured{}
	site.SetGroupVersionKind(siteKind)
	if err := r.client.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the server deletes the page of a site that is gone
	}
	ended := r.began(ctx, request.NamespacedName)
	defer func() { ended(err) }()

	theme := &corev1.ConfigMap{}
	err = r.client.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: themeName}, theme)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err := work(ctx, site); err != nil {
		return ctrl.Result{}, err
	}

	title, _, _ := unstructured.NestedString(site.Object, "spec", "title")
	page := &corev1.ConfigMap{}
	page.Namespace, page.Name = request.Namespace, request.Name+"-page"
	_, err = controllerutil.CreateOrUpdate(ctx, r.client, page, func() error {
		page.Data = map[string]string{"title": title, "color": theme.Data["color"]}
		return controllerutil.SetControllerReference(site, page, r.client.Scheme())
	})
	return ctrl.Result{}, err
}

// work stands for a step that takes the time in spec.takes.
func work(ctx context.Context, site *unstructured.Unstructured) error {
	text, given, _ := unstructured.NestedString(site.Object, "spec", "takes")
	if !given {
		return nil
	}
	takes, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("spec.takes: %w", err)
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enqueueSites returns a mapping of a theme to the sites of its namespace.
func enqueueSites(cc *clustercache.ClusterCache) controller.ObjectMapFunc[controller.Request] {
	return func(ctx context.Context, cluster client.ObjectKey, theme client.Object) (requests []controller.Request) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(siteKind)
		if err := cc.Cluster(cluster).Reader().List(ctx, list, client.InNamespace(theme.GetNamespace())); err != nil {
			log := cc.Options().Logger // once the sites are listed, they are reconciled anyway
			log.Error(err, "Sites of a theme were not listed", "cluster", cluster, "namespace", theme.GetNamespace())
		}
		for _, site := range list.Items {
			requests = append(requests, controller.Request{
				Cluster:   cluster,
				GVK:       siteKind,
				ObjectKey: client.ObjectKeyFromObject(&site),
			})
		}
		return requests
	}
}
