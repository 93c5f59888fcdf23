// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// form returns an empty object of a kind, in the form that a cache should hold.
type form func(kind) client.Object

func asTyped(k kind) client.Object { return k.typed() }

func asUnstructured(k kind) client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.kind)
	return u
}

func asMetadata(k kind) client.Object {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(k.kind)
	return m
}

// runtimeCaches uses caches of controller-runtime, one for each watch.
type runtimeCaches struct {
	config    *rest.Config
	client    *http.Client
	form      form
	strip     bool
	kind      kind
	cache     cache.Cache
	informers []cache.Informer
}

// openRuntime opens caches of one form, with or without managedFields.
func openRuntime(f form, strip bool) func(*rest.Config) (watcher, error) {
	return func(config *rest.Config) (watcher, error) {
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		return &runtimeCaches{
			config: config,
			client: c,
			form:   f,
			strip:  strip,
		}, nil
	}
}

func (w *runtimeCaches) watch(ctx context.Context, k kind, namespaces ...string) error {
	if err := knock(ctx, w.client, w.config.Host); err != nil {
		return err
	}
	o := cache.Options{
		HTTPClient:        w.client,
		Scheme:            scheme.Scheme,
		Mapper:            mapper(),
		DefaultNamespaces: map[string]cache.Config{},
	}
	for _, ns := range namespaces {
		o.DefaultNamespaces[ns] = cache.Config{}
	}
	if w.strip {
		o.DefaultTransform = cache.TransformStripManagedFields()
	}
	c, err := cache.New(w.config, o)
	if err != nil {
		return err
	}
	go func() { _ = c.Start(ctx) }() // for as long as the process runs
	if !c.WaitForCacheSync(ctx) {
		return errors.New("cache did not start")
	}
	informer, err := c.GetInformer(ctx, w.form(k)) // waits for its sync
	if err != nil {
		return err
	}
	w.kind, w.cache, w.informers = k, c, []cache.Informer{informer}

	return nil
}

func (w *runtimeCaches) handle(ctx context.Context) error {
	for _, informer := range w.informers {
		r, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {}})
		if err != nil {
			return err
		}
		if !toolscache.WaitForCacheSync(ctx.Done(), r.HasSynced) {
			return errors.New("handler did not sync")
		}
	}

	return nil
}

func (w *runtimeCaches) count(ctx context.Context) (int, error) {
	var list client.ObjectList
	switch o := w.form(w.kind).(type) {
	case *unstructured.Unstructured:
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(o.GroupVersionKind())
		list = l
	case *metav1.PartialObjectMetadata:
		l := &metav1.PartialObjectMetadataList{}
		l.SetGroupVersionKind(o.GroupVersionKind())
		list = l
	default:
		list = w.kind.typedList()
	}

	if err := w.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	return meta.LenList(list), nil
}
