// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
)

// following sends each call through a client that is up to date with
// discovery. A call that fails as if its kind were not served, or were served
// elsewhere, is repeated once if discovery has changed.
type following struct{ from *Factory }

var _ client.Client = (*following)(nil)

func (f *following) do(ctx context.Context, call func(client.Client) error) error {
	known := f.from.config.Mapper.Changes()
	inner, err := f.from.current()
	if err != nil {
		return err
	}
	err = call(inner)
	if err == nil || !elsewhere(err) || !f.from.askAgain(ctx, known) {
		return err
	}
	if inner, again := f.from.current(); again == nil {
		return call(inner)
	}
	return err
}

// elsewhere reports whether a server may have refused a path and not an object:
// then nothing was done. A missing object is distinguished from a missing
// resource by the API status, which a server writes for the object alone. A
// kind that discovery lacked a moment ago may be served by now: watches of the
// kind recover by themselves, and writes must not lag behind them.
func elsewhere(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotFound(err) && apistatus.OfGateway(err)
}

// Get implements client.Client.
func (f *following) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return f.do(ctx, func(c client.Client) error { return c.Get(ctx, key, obj, opts...) })
}

// List implements client.Client.
func (f *following) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return f.do(ctx, func(c client.Client) error { return c.List(ctx, list, opts...) })
}

// Apply implements client.Client.
func (f *following) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return f.do(ctx, func(c client.Client) error { return c.Apply(ctx, obj, opts...) })
}

// Create implements client.Client.
func (f *following) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return f.do(ctx, func(c client.Client) error { return c.Create(ctx, obj, opts...) })
}

// Delete implements client.Client.
func (f *following) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return f.do(ctx, func(c client.Client) error { return c.Delete(ctx, obj, opts...) })
}

// Update implements client.Client.
func (f *following) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return f.do(ctx, func(c client.Client) error { return c.Update(ctx, obj, opts...) })
}

// Patch implements client.Client.
func (f *following) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return f.do(ctx, func(c client.Client) error { return c.Patch(ctx, obj, patch, opts...) })
}

// DeleteAllOf implements client.Client.
func (f *following) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return f.do(ctx, func(c client.Client) error { return c.DeleteAllOf(ctx, obj, opts...) })
}

// Status implements client.Client.
func (f *following) Status() client.SubResourceWriter { return f.SubResource("status") }

// SubResource implements client.Client.
func (f *following) SubResource(name string) client.SubResourceClient {
	return &followingSubresource{f: f, name: name}
}

// Scheme implements client.Client.
func (f *following) Scheme() *runtime.Scheme { return f.from.config.Scheme }

// RESTMapper implements client.Client.
func (f *following) RESTMapper() meta.RESTMapper { return f.from.config.Mapper.RESTMapper() }

// GroupVersionKindFor implements client.Client.
func (f *following) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	inner, err := f.from.current()
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return inner.GroupVersionKindFor(obj)
}

// IsObjectNamespaced implements client.Client.
func (f *following) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	inner, err := f.from.current()
	if err != nil {
		return false, err
	}
	return inner.IsObjectNamespaced(obj)
}

// followingSubresource is following for a subresource.
type followingSubresource struct {
	f    *following
	name string
}

func (s *followingSubresource) do(ctx context.Context, call func(client.SubResourceClient) error) error {
	return s.f.do(ctx, func(c client.Client) error { return call(c.SubResource(s.name)) })
}

// Get implements client.SubResourceClient.
func (s *followingSubresource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.do(ctx, func(c client.SubResourceClient) error { return c.Get(ctx, obj, sub, opts...) })
}

// Create implements client.SubResourceClient.
func (s *followingSubresource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.do(ctx, func(c client.SubResourceClient) error { return c.Create(ctx, obj, sub, opts...) })
}

// Update implements client.SubResourceClient.
func (s *followingSubresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.do(ctx, func(c client.SubResourceClient) error { return c.Update(ctx, obj, opts...) })
}

// Patch implements client.SubResourceClient.
func (s *followingSubresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.do(ctx, func(c client.SubResourceClient) error { return c.Patch(ctx, obj, patch, opts...) })
}

// Apply implements client.SubResourceClient.
func (s *followingSubresource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return s.do(ctx, func(c client.SubResourceClient) error { return c.Apply(ctx, obj, opts...) })
}
