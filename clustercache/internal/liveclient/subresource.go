// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
)

// subresource is named for a subresource.
type subresource struct {
	n    *named
	name string
}

// of returns what makes a call for the subresource.
func (s *subresource) of(call func(context.Context, client.SubResourceClient) error) calling {
	return func(ctx context.Context, c client.Client) error { return call(ctx, c.SubResource(s.name)) }
}

// write makes a call that writes a subresource of obj. body was sent, or,
// without one, obj. The answer is decoded into into.
func (s *subresource) write(
	ctx context.Context, op string, obj, body, into any, m manner,
	call func(context.Context, client.SubResourceClient) error,
) error {
	answer := s.n.subresource(obj, cmp.Or(body, obj), s.name)
	answer.into = s.n.answer(into).into // whatever was sent
	if _, own := ownSubresources[s.name]; !own {
		into = nil // it may show any object
	}
	return s.n.change(ctx, op+s.name+" of", obj, func(ctx context.Context) error {
		shows := func(w *writes.Write) {
			shownBy(obj, into, w)
			w.Labeled = w.Labeled && kindSent(into, s.n.Scheme()) == w.GVK // a Scale lacks them
		}
		return s.n.recorded(ctx, m, s.n.writeOf(obj), answer, s.of(call), shows)
	})
}

// Get implements client.SubResourceClient.
func (s *subresource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	err := s.n.do(ctx, s.n.readSubresource(obj, sub), s.of(
		func(ctx context.Context, c client.SubResourceClient) error { return c.Get(ctx, obj, sub, opts...) }))
	return s.n.failRead("get "+s.name+" of", obj, err)
}

// Create implements client.SubResourceClient.
func (s *subresource) Create(
	ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption,
) error {
	return s.n.change(ctx, "create "+s.name+" of", obj, func(ctx context.Context) error {
		return s.n.do(ctx, s.n.subresource(obj, sub, s.name), s.of(
			func(ctx context.Context, c client.SubResourceClient) error { return c.Create(ctx, obj, sub, opts...) }))
	})
}

// Update implements client.SubResourceClient.
func (s *subresource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	o := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return s.write(ctx, "update ", obj, o.SubResourceBody, cmp.Or(o.SubResourceBody, obj), m,
		func(ctx context.Context, c client.SubResourceClient) error { return c.Update(ctx, obj, opts...) })
}

// Patch implements client.SubResourceClient.
func (s *subresource) Patch(
	ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	o := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	if patch == nil {
		return s.n.hooks.Failed("patch "+s.name+" of", schema.GroupVersionKind{}, errNoPatch)
	}
	return s.write(ctx, "patch ", obj, o.SubResourceBody, cmp.Or(o.SubResourceBody, obj), m,
		func(ctx context.Context, c client.SubResourceClient) error { return c.Patch(ctx, obj, patch, opts...) })
}

// Apply implements client.SubResourceClient.
func (s *subresource) Apply(
	ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	o := (&client.SubResourceApplyOptions{}).ApplyOpts(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return s.write(ctx, "apply ", obj, o.SubResourceBody, obj, m,
		func(ctx context.Context, c client.SubResourceClient) error { return c.Apply(ctx, obj, opts...) })
}
