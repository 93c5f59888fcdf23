// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
	"github.com/fleetcache/fleetcache/internal/listopts"
)

// Hooks are what a client calls.
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

// named is a bounded client that calls hooks.
type named struct {
	*bounded

	hooks Hooks
}

var _ client.Client = (*named)(nil)

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
func (n *named) write(ctx context.Context, op string, obj any, m manner, answer *callState, call calling) error {
	return n.change(ctx, op, obj, func(ctx context.Context) error {
		shows := func(w *writes.Write) { shownBy(obj, obj, w) }
		recorded := func() error { return n.recorded(ctx, m, n.writeOf(obj), answer, call, shows) }
		if len(m.dryRun) > 0 {
			return recorded()
		}
		return n.show(obj, true, recorded)
	})
}

// change makes a call that may change the cluster.
func (n *named) change(ctx context.Context, op string, obj any, call func(context.Context) error) error {
	if absent(obj) {
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
	return n.failRead("get", obj, n.show(obj, false, func() error { return n.bounded.Get(ctx, key, obj, opts...) }))
}

// List implements client.Client.
func (n *named) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if listopts.Nothing((&client.ListOptions{}).ApplyOptions(opts)) != "" {
		return n.fail("list", list, listopts.Empty(list))
	}
	return n.failRead("list", list, n.show(list, false, func() error { return n.bounded.List(ctx, list, opts...) }))
}

// Apply implements client.Client.
func (n *named) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	o := (&client.ApplyOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return n.write(ctx, "apply", obj, m, n.written(obj), func(ctx context.Context, c client.Client) error {
		return c.Apply(ctx, obj, opts...)
	})
}

// Create implements client.Client.
func (n *named) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	o := (&client.CreateOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return n.write(ctx, "create", obj, m, n.created(obj), func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, obj, opts...)
	})
}

// Delete implements client.Client.
func (n *named) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	o := (&client.DeleteOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return n.change(ctx, "delete", obj, func(ctx context.Context) error {
		answer := n.deleted(obj)
		return n.recorded(ctx, m, n.writeOf(obj), answer, func(ctx context.Context, c client.Client) error {
			return c.Delete(ctx, obj, opts...)
		}, func(w *writes.Write) { deleteShows(w, answer.identity, o) })
	})
}

// Update implements client.Client.
func (n *named) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	o := (&client.UpdateOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	return n.write(ctx, "update", obj, m, n.written(obj), func(ctx context.Context, c client.Client) error {
		return c.Update(ctx, obj, opts...)
	})
}

// Patch implements client.Client.
func (n *named) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	o := (&client.PatchOptions{}).ApplyOptions(opts)
	m := manner{o.DryRun, o.DisableReadYourWritesConsistency}
	if patch == nil {
		return n.hooks.Failed("patch", schema.GroupVersionKind{}, errNoPatch)
	}
	return n.write(ctx, "patch", obj, m, n.written(obj), func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, obj, patch, opts...)
	})
}

// DeleteAllOf implements client.Client.
func (n *named) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	o := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
	unread := o.ListOptions.DisableReadYourWritesConsistency || o.DeleteOptions.DisableReadYourWritesConsistency
	m := manner{o.DryRun, unread}
	return n.change(ctx, "delete all of", obj, func(ctx context.Context) error {
		if listopts.Nothing(&o.ListOptions) != "" {
			return nil
		}
		w := writes.Write{GVK: kindSent(obj, n.Scheme()), Key: client.ObjectKey{Namespace: o.Namespace}}
		return n.recorded(ctx, m, w, n.deletedAll(obj), func(ctx context.Context, c client.Client) error {
			return c.DeleteAllOf(ctx, obj, opts...)
		}, func(*writes.Write) {})
	})
}

// Status implements client.Client.
func (n *named) Status() client.SubResourceWriter { return n.SubResource("status") }

// SubResource implements client.Client.
func (n *named) SubResource(name string) client.SubResourceClient {
	return &subresource{n: n, name: name}
}
