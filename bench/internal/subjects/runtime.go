// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package subjects

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/bench/measure"
)

// form returns an empty object of a kind, in the form that a cache holds.
type form func(measure.Kind) (client.Object, error)

// get reads an object.
func (f form) get(ctx context.Context, r client.Reader, k measure.Kind, key measure.Key) error {
	o, err := f(k)
	if err != nil {
		return err
	}
	return r.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, o)
}

// list reads the objects of a namespace and returns their names.
func (f form) list(ctx context.Context, r client.Reader, k measure.Kind, namespace string) ([]measure.Key, error) {
	list, err := f.newList(k)
	if err != nil {
		return nil, err
	}
	if err := r.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	keys := make([]measure.Key, 0, meta.LenList(list))
	err = meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			keys = append(keys, measure.Key{Namespace: m.GetNamespace(), Name: m.GetName()})
		}
		return err
	})

	return keys, err
}

// newList returns an empty list of objects in the form.
func (f form) newList(k measure.Kind) (client.ObjectList, error) {
	o, err := f(k)
	if err != nil {
		return nil, err
	}
	gvk := gvkOf(k)
	gvk.Kind += "List"
	switch o.(type) {
	case *unstructured.Unstructured:
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(gvk)
		return u, nil
	case *metav1.PartialObjectMetadata:
		m := &metav1.PartialObjectMetadataList{}
		m.SetGroupVersionKind(gvk)
		return m, nil
	}
	list, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	typed, ok := list.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%s is no list", gvk.Kind)
	}

	return typed, nil
}

func unstructuredForm(k measure.Kind) (client.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvkOf(k))
	return u, nil
}

// typedForm returns an unstructured object where there is no Go type.
func typedForm(k measure.Kind) (client.Object, error) {
	if !scheme.Scheme.Recognizes(gvkOf(k)) {
		return unstructuredForm(k)
	}
	o, err := scheme.Scheme.New(gvkOf(k))
	if err != nil {
		return nil, err
	}
	typed, ok := o.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is no object", k.Kind)
	}
	return typed, nil
}

func metadataForm(k measure.Kind) (client.Object, error) {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvkOf(k))
	return m, nil
}

// runtimeCaches has a cache of controller-runtime for each cluster.
type runtimeCaches struct {
	form   form
	caches []cache.Cache
	cancel context.CancelFunc
	ended  errgroup.Group
}

// openRuntime opens caches that hold one form, with or without managedFields.
func openRuntime(f form, strip bool) measure.Open {
	return func(ctx context.Context, clusters []measure.Cluster) (measure.Subject, error) {
		r := &runtimeCaches{form: f}
		ctx, r.cancel = context.WithCancel(ctx)
		for _, c := range clusters {
			config := ConfigOf(c)
			httpClient, err := rest.HTTPClientFor(config)
			if err != nil {
				return nil, err
			}
			o := cache.Options{HTTPClient: httpClient, Scheme: scheme.Scheme}
			if strip {
				o.DefaultTransform = cache.TransformStripManagedFields()
			}
			one, err := cache.New(config, o)
			if err != nil {
				return nil, err
			}
			r.caches = append(r.caches, one)
			r.ended.Go(func() error { return one.Start(ctx) })
		}

		return r, nil
	}
}

// Watch implements measure.Subject.
func (r *runtimeCaches) Watch(ctx context.Context, kinds []measure.Kind) error {
	for _, c := range r.caches { // all first, and then wait
		for _, k := range kinds {
			o, err := r.form(k)
			if err != nil {
				return err
			}
			if _, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
				return err
			}
		}
	}

	for _, c := range r.caches {
		for _, k := range kinds {
			if _, err := r.informer(ctx, c, k); err != nil {
				return err
			}
		}
	}

	return nil
}

func (r *runtimeCaches) informer(
	ctx context.Context, c cache.Cache, k measure.Kind,
) (toolscache.SharedIndexInformer, error) {
	o, err := r.form(k)
	if err != nil {
		return nil, err
	}
	informer, err := c.GetInformer(ctx, o)
	if err != nil {
		return nil, err
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("%T is no informer of client-go", informer)
	}
	return shared, nil
}

// Count implements measure.Subject.
func (r *runtimeCaches) Count(ctx context.Context, k measure.Kind) (int, error) {
	n := 0
	for _, c := range r.caches {
		informer, err := r.informer(ctx, c, k)
		if err != nil {
			return 0, err
		}
		n += len(informer.GetStore().ListKeys())
	}
	return n, nil
}

// ResourceVersion implements measure.Subject.
func (r *runtimeCaches) ResourceVersion(ctx context.Context, m measure.Mark) (string, error) {
	informer, err := r.informer(ctx, r.caches[m.Cluster], m.Kind)
	if err != nil {
		return "", err
	}
	return stored(informer, m)
}

// Listen implements measure.Listener.
func (r *runtimeCaches) Listen(ctx context.Context, k measure.Kind, handle func(int, measure.Object)) error {
	for i, c := range r.caches {
		informer, err := r.informer(ctx, c, k)
		if err != nil {
			return err
		}
		if err := listen(informer, i, handle); err != nil {
			return err
		}
	}
	return nil
}

// Get implements measure.Reader.
func (r *runtimeCaches) Get(ctx context.Context, cluster int, k measure.Kind, key measure.Key) error {
	return r.form.get(ctx, r.caches[cluster], k, key)
}

// List implements measure.Reader.
func (r *runtimeCaches) List(
	ctx context.Context, cluster int, k measure.Kind, namespace string,
) ([]measure.Key, error) {
	return r.form.list(ctx, r.caches[cluster], k, namespace)
}

// Stop implements measure.Subject.
func (r *runtimeCaches) Stop() error {
	r.cancel()
	return r.ended.Wait()
}
