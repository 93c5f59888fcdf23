// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
)

// Named returns a client whose errors are made by fail, from the operation, the
// kind and the cause. Often the error of a write that reaches a log is all that
// is known about the write. An answer that there is no object is returned
// unchanged.
func Named(c client.Client, fail func(op string, gvk schema.GroupVersionKind, err error) error) client.Client {
	return &named{Client: c, describe: fail}
}

type named struct {
	client.Client

	describe func(op string, gvk schema.GroupVersionKind, err error) error
}

func (n *named) fail(op string, obj any, err error) error {
	if err == nil {
		return nil
	}
	return n.describe(op, kindSent(obj, n.Scheme()), err)
}

// failRead is fail for reads, where the absence of an object is no failure.
func (n *named) failRead(op string, obj any, err error) error {
	if apistatus.SaysAbsent(err) {
		return err
	}
	return n.fail(op, obj, err)
}

// Get implements client.Client.
func (n *named) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return n.failRead("get", obj, n.Client.Get(ctx, key, obj, opts...))
}

// List implements client.Client.
func (n *named) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return n.failRead("list", list, n.Client.List(ctx, list, opts...))
}

// Apply implements client.Client.
func (n *named) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return n.fail("apply", obj, n.Client.Apply(ctx, obj, opts...))
}

// Create implements client.Client.
func (n *named) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return n.fail("create", obj, n.Client.Create(ctx, obj, opts...))
}

// Delete implements client.Client.
func (n *named) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return n.fail("delete", obj, n.Client.Delete(ctx, obj, opts...))
}

// Update implements client.Client.
func (n *named) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return n.fail("update", obj, n.Client.Update(ctx, obj, opts...))
}

// Patch implements client.Client.
func (n *named) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return n.fail("patch", obj, n.Client.Patch(ctx, obj, patch, opts...))
}

// DeleteAllOf implements client.Client.
func (n *named) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return n.fail("delete all of", obj, n.Client.DeleteAllOf(ctx, obj, opts...))
}

// Status implements client.Client.
func (n *named) Status() client.SubResourceWriter { return n.SubResource("status") }

// SubResource implements client.Client.
func (n *named) SubResource(name string) client.SubResourceClient {
	return &namedSubresource{n: n, name: name, inner: n.Client.SubResource(name)}
}

// namedSubresource is named for a subresource.
type namedSubresource struct {
	n     *named
	name  string
	inner client.SubResourceClient
}

// Get implements client.SubResourceClient.
func (s *namedSubresource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.n.failRead("get "+s.name+" of", obj, s.inner.Get(ctx, obj, sub, opts...))
}

// Create implements client.SubResourceClient.
func (s *namedSubresource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.n.fail("create "+s.name+" of", obj, s.inner.Create(ctx, obj, sub, opts...))
}

// Update implements client.SubResourceClient.
func (s *namedSubresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.n.fail("update "+s.name+" of", obj, s.inner.Update(ctx, obj, opts...))
}

// Patch implements client.SubResourceClient.
func (s *namedSubresource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.n.fail("patch "+s.name+" of", obj, s.inner.Patch(ctx, obj, patch, opts...))
}

// Apply implements client.SubResourceClient.
func (s *namedSubresource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return s.n.fail("apply "+s.name+" of", obj, s.inner.Apply(ctx, obj, opts...))
}
