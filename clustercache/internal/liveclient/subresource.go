// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// boundedSubresource is bounded for a subresource.
type boundedSubresource struct {
	l    *bounded
	name string
}

func (s *boundedSubresource) do(
	ctx context.Context, answer *callState, call func(context.Context, client.SubResourceClient) error,
) error {
	return s.l.do(ctx, answer, func(ctx context.Context, c client.Client) error {
		return call(ctx, c.SubResource(s.name))
	})
}

// Get implements client.SubResourceClient.
func (s *boundedSubresource) Get(
	ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption,
) error {
	return s.do(ctx, s.l.readSubresource(obj, sub), func(ctx context.Context, c client.SubResourceClient) error {
		return c.Get(ctx, obj, sub, opts...)
	})
}

// Create implements client.SubResourceClient.
func (s *boundedSubresource) Create(
	ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption,
) error {
	return s.do(ctx, s.l.subresource(obj, sub, s.name), func(ctx context.Context, c client.SubResourceClient) error {
		return c.Create(ctx, obj, sub, opts...)
	})
}

// Update implements client.SubResourceClient.
func (s *boundedSubresource) Update(
	ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption,
) error {
	body := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts).SubResourceBody
	if body == nil {
		body = obj
	}
	return s.do(ctx, s.l.subresource(obj, body, s.name), func(ctx context.Context, c client.SubResourceClient) error {
		return c.Update(ctx, obj, opts...)
	})
}

// Patch implements client.SubResourceClient.
func (s *boundedSubresource) Patch(
	ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	body := (&client.SubResourcePatchOptions{}).ApplyOptions(opts).SubResourceBody
	if body == nil {
		body = obj
	}
	return s.do(ctx, s.l.subresource(obj, body, s.name), func(ctx context.Context, c client.SubResourceClient) error {
		return c.Patch(ctx, obj, patch, opts...)
	})
}

// Apply implements client.SubResourceClient.
func (s *boundedSubresource) Apply(
	ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	body := (&client.SubResourceApplyOptions{}).ApplyOpts(opts).SubResourceBody
	if body == nil {
		body = obj
	}
	answer := s.l.subresource(obj, body, s.name)
	answer.into = s.l.answer(obj).into // it is decoded into obj, whatever was sent
	return s.do(ctx, answer, func(ctx context.Context, c client.SubResourceClient) error {
		return c.Apply(ctx, obj, opts...)
	})
}
