// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package clustercache

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namedClient names the cluster and the kind in the errors of a live client, as
// readers do: often the error of a write that reaches a log is all that is
// known about it. apierrors.IsConflict and similar functions still match.
type namedClient struct {
	client.Client

	key client.ObjectKey
}

// fail returns err as a ClusterError.
func (n *namedClient) fail(op string, obj any, err error) error {
	if err == nil {
		return nil
	}
	return &ClusterError{
		Cluster: n.key,
		GVK:     kindSent(obj, n.Scheme()),
		Op:      op,
		Err:     err,
	}
}

// failRead is fail for reads, where the absence of an object is no failure.
func (n *namedClient) failRead(op string, obj any, err error) error {
	if saysAbsent(err) {
		return err
	}
	return n.fail(op, obj, err)
}

// Get implements client.Client.
func (n *namedClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return n.failRead("get", obj, n.Client.Get(ctx, key, obj, opts...))
}

// List implements client.Client.
func (n *namedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return n.failRead("list", list, n.Client.List(ctx, list, opts...))
}

// Apply implements client.Client.
func (n *namedClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return n.fail("apply", obj, n.Client.Apply(ctx, obj, opts...))
}

// Create implements client.Client.
func (n *namedClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return n.fail("create", obj, n.Client.Create(ctx, obj, opts...))
}

// Delete implements client.Client.
func (n *namedClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return n.fail("delete", obj, n.Client.Delete(ctx, obj, opts...))
}

// Update implements client.Client.
func (n *namedClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return n.fail("update", obj, n.Client.Update(ctx, obj, opts...))
}

// Patch implements client.Client.
func (n *namedClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return n.fail("patch", obj, n.Client.Patch(ctx, obj, patch, opts...))
}

// DeleteAllOf implements client.Client.
func (n *namedClient) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	return n.fail("delete all of", obj, n.Client.DeleteAllOf(ctx, obj, opts...))
}

// Status implements client.Client.
func (n *namedClient) Status() client.SubResourceWriter { return n.SubResource("status") }

// SubResource implements client.Client.
func (n *namedClient) SubResource(name string) client.SubResourceClient {
	return &namedSubResource{n: n, name: name, inner: n.Client.SubResource(name)}
}

// namedSubResource is namedClient for a subresource.
type namedSubResource struct {
	n     *namedClient
	name  string
	inner client.SubResourceClient
}

// Get implements client.SubResourceClient.
func (s *namedSubResource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.n.failRead("get "+s.name+" of", obj, s.inner.Get(ctx, obj, sub, opts...))
}

// Create implements client.SubResourceClient.
func (s *namedSubResource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	return s.n.fail("create "+s.name+" of", obj, s.inner.Create(ctx, obj, sub, opts...))
}

// Update implements client.SubResourceClient.
func (s *namedSubResource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.n.fail("update "+s.name+" of", obj, s.inner.Update(ctx, obj, opts...))
}

// Patch implements client.SubResourceClient.
func (s *namedSubResource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.n.fail("patch "+s.name+" of", obj, s.inner.Patch(ctx, obj, patch, opts...))
}

// Apply implements client.SubResourceClient.
func (s *namedSubResource) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return s.n.fail("apply "+s.name+" of", obj, s.inner.Apply(ctx, obj, opts...))
}
