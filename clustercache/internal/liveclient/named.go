// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// Hooks are what a named client calls.
type Hooks struct {
	// Failed makes an error from the operation, the kind and the cause.
	Failed func(op string, gvk schema.GroupVersionKind, err error) error
	// Begin is called before each call, and the function that it returns after
	// the call's success, with what the answer showed: an object, a list or an
	// applied configuration. It is not called for dry runs.
	Begin func() (showed func(gvk schema.GroupVersionKind, obj any, written bool))
	// Write is called with each call that may change the cluster. It makes the
	// call, with a context of its own, or returns an error.
	Write func(ctx context.Context, call func(context.Context) error) error
	// Writes remembers what was written; nil: nothing does.
	Writes *writes.Log
}

// Named returns a client whose errors are made by a hook. Often the error of a
// write that reaches a log is all that is known about the write. An answer that
// there is no object is returned unchanged.
func Named(c client.Client, hooks Hooks) client.Client { return &named{Client: c, hooks: hooks} }

type named struct {
	client.Client

	hooks Hooks
}

// show makes a call that shows obj.
func (n *named) show(obj any, written bool, call func() error) error {
	showed := n.hooks.Begin()
	err := call()
	if err == nil {
		showed(kindSent(obj, n.Scheme()), obj, written)
	}
	return err
}

// write makes a call that writes obj, into which the answer is decoded.
func (n *named) write(ctx context.Context, op string, obj any, m manner, call func(context.Context) error) error {
	return n.change(ctx, op, obj, func(ctx context.Context) error {
		recorded := func() error { return n.recorded(ctx, obj, obj, m, call) }
		if len(m.dryRun) > 0 {
			return recorded()
		}
		return n.show(obj, true, recorded)
	})
}

// change makes a call that may change the cluster.
func (n *named) change(ctx context.Context, op string, obj any, call func(context.Context) error) error {
	if v := reflect.ValueOf(obj); !v.IsValid() || (v.Kind() == reflect.Pointer && v.IsNil()) {
		return n.hooks.Failed(op, schema.GroupVersionKind{}, errNilObject)
	}
	return n.fail(op, obj, n.hooks.Write(ctx, call))
}

var (
	errNilObject = errors.New("obj is nil: an object is required")
	errNoPatch   = errors.New("patch is nil: a patch is required")
)

func (n *named) fail(op string, obj any, err error) error {
	if err == nil {
		return nil
	}
	return n.hooks.Failed(op, kindSent(obj, n.Scheme()), err)
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
	return n.failRead("get", obj, n.show(obj, false, func() error { return n.Client.Get(ctx, key, obj, opts...) }))
}

// List implements client.Client.
func (n *named) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if listopts.Nothing((&client.ListOptions{}).ApplyOptions(opts)) != "" {
		return n.fail("list", list, listopts.Empty(list))
	}
	return n.failRead("list", list, n.show(list, false, func() error { return n.Client.List(ctx, list, opts...) }))
}

// Apply implements client.Client.
func (n *named) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := (&client.ApplyOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return n.write(ctx, "apply", obj, m, func(ctx context.Context) error {
		return n.Client.Apply(ctx, obj, opts...)
	})
}

// Create implements client.Client.
func (n *named) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	o := (&client.CreateOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return n.write(ctx, "create", obj, m, func(ctx context.Context) error {
		return n.Client.Create(ctx, obj, opts...)
	})
}

// Delete implements client.Client.
func (n *named) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	o := (&client.DeleteOptions{}).ApplyOptions(opts)
	return n.change(ctx, "delete", obj, func(ctx context.Context) error {
		return n.deletes(ctx, obj, o, func(ctx context.Context) error { return n.Client.Delete(ctx, obj, opts...) })
	})
}

// Update implements client.Client.
func (n *named) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	o := (&client.UpdateOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return n.write(ctx, "update", obj, m, func(ctx context.Context) error {
		return n.Client.Update(ctx, obj, opts...)
	})
}

// Patch implements client.Client.
func (n *named) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	o := (&client.PatchOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	if patch == nil {
		return n.hooks.Failed("patch", schema.GroupVersionKind{}, errNoPatch)
	}
	return n.write(ctx, "patch", obj, m, func(ctx context.Context) error {
		return n.Client.Patch(ctx, obj, patch, opts...)
	})
}

// DeleteAllOf implements client.Client.
func (n *named) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	o := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
	return n.change(ctx, "delete all of", obj, func(ctx context.Context) error {
		if listopts.Nothing(&o.ListOptions) != "" {
			return nil
		}
		return n.deletesAll(ctx, kindSent(obj, n.Scheme()), o, func(ctx context.Context) error {
			return n.Client.DeleteAllOf(ctx, obj, opts...)
		})
	})
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

// write makes a call that writes a subresource of obj. The answer is decoded
// into body, or, without one, into obj.
func (s *namedSubresource) write(
	ctx context.Context, op string, obj any, body client.Object, m manner, call func(context.Context) error,
) error {
	answer := obj
	if body != nil {
		answer = body
	}
	if _, own := ownSubresources[s.name]; !own {
		answer = nil // it may show any object
	}

	return s.n.change(ctx, op+s.name+" of", obj, func(ctx context.Context) error {
		return s.n.recorded(ctx, obj, answer, m, call)
	})
}

// Get implements client.SubResourceClient.
func (s *namedSubresource) Get(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceGetOption) error {
	return s.n.failRead("get "+s.name+" of", obj, s.inner.Get(ctx, obj, sub, opts...))
}

// Create implements client.SubResourceClient.
func (s *namedSubresource) Create(
	ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption,
) error {
	return s.n.change(ctx, "create "+s.name+" of", obj, func(ctx context.Context) error {
		return s.inner.Create(ctx, obj, sub, opts...)
	})
}

// Update implements client.SubResourceClient.
func (s *namedSubresource) Update(
	ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption,
) error {
	o := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return s.write(ctx, "update ", obj, o.SubResourceBody, m, func(ctx context.Context) error {
		return s.inner.Update(ctx, obj, opts...)
	})
}

// Patch implements client.SubResourceClient.
func (s *namedSubresource) Patch(
	ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	o := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	if patch == nil {
		return s.n.hooks.Failed("patch "+s.name+" of", schema.GroupVersionKind{}, errNoPatch)
	}
	return s.write(ctx, "patch ", obj, o.SubResourceBody, m, func(ctx context.Context) error {
		return s.inner.Patch(ctx, obj, patch, opts...)
	})
}

// Apply implements client.SubResourceClient.
func (s *namedSubresource) Apply(
	ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	o := (&client.SubResourceApplyOptions{}).ApplyOpts(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return s.write(ctx, "apply ", obj, nil, m, func(ctx context.Context) error {
		return s.inner.Apply(ctx, obj, opts...)
	})
}
