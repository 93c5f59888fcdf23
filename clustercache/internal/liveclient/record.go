// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package liveclient

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
)

// manner is how a write was requested.
type manner struct {
	dryRun []string
	// unread means that later reads need not show the write.
	unread bool
}

// recorded makes a call that writes obj, and records in the log what is known
// about the write. The answer is decoded into answer; nil if it does not show
// obj.
func (n *named) recorded(ctx context.Context, obj, answer any, m manner, call func(context.Context) error) error {
	if m.unread || len(m.dryRun) > 0 {
		return call(ctx)
	}
	w := writes.Write{GVK: kindSent(obj, n.Scheme()), Key: keyOf(obj)}
	ended := n.hooks.Writes.Begin()
	err := call(context.WithValue(ctx, unansweredKey{}, &w.Unknown))
	if w.Key.Name == "" {
		w.Key = keyOf(obj) // the server has chosen a name
	}

	switch {
	case err == nil:
		shownBy(answer, &w)
	case !w.Unknown && ineffective(err):
		return err
	default:
		w.Unknown = true
	}
	ended(w)

	return err
}

// keyOf returns the key of an object or an apply configuration.
func keyOf(obj any) client.ObjectKey {
	switch o := obj.(type) {
	case client.Object:
		if !absent(o) {
			return client.ObjectKeyFromObject(o)
		}
	case applied:
		if !absent(o) {
			return client.ObjectKey{Namespace: deref(o.GetNamespace()), Name: deref(o.GetName())}
		}
	}

	return client.ObjectKey{}
}

// shownBy adds what the answer to a write shows of the object.
func shownBy(answer any, w *writes.Write) {
	o, ok := answer.(client.Object)
	if config, applies := answer.(applied); !ok && applies {
		partial := &metav1.PartialObjectMetadata{}
		raw, err := json.Marshal(config)
		if err != nil || json.Unmarshal(raw, partial) != nil {
			return
		}
		o, ok = partial, true
	}
	if !ok || absent(o) || o.GetName() != w.Key.Name {
		return // of another object, as that of a subresource may be
	}

	w.Version, w.Labels, w.Labeled = o.GetResourceVersion(), o.GetLabels(), true
	grace := o.GetDeletionGracePeriodSeconds()
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (grace == nil || *grace == 0) {
		w.Gone = o.GetUID() // with this very answer
	}
}

// unansweredKey is the context key of a bool to set if a try was left without
// an answer: client-go tries a write again where a status with Retry-After asks
// for that, and what the next try finds may be the work of the one before.
type unansweredKey struct{}

// ineffective reports whether a failed try of a write has certainly changed
// nothing, and never will: the server refused it, or it was not sent.
func ineffective(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code := status.Status().Code
		refused := code >= http.StatusBadRequest && code < http.StatusInternalServerError
		return refused && code != http.StatusRequestTimeout
	}
	return meta.IsNoMatchError(err) || runtime.IsNotRegisteredError(err)
}

// identity is what the answer to a delete says about the object.
type identity struct {
	uid     types.UID
	version string // empty: the object is gone
}

// identityKey is the context key of an identity to fill in.
type identityKey struct{}

// deletes makes a call that deletes obj, and records it.
func (n *named) deletes(
	ctx context.Context, obj client.Object, o *client.DeleteOptions, call func(context.Context) error,
) error {
	if o.DisableReadYourWritesConsistency || len(o.DryRun) > 0 {
		return call(ctx)
	}
	w := writes.Write{GVK: kindSent(obj, n.Scheme()), Key: keyOf(obj)}
	var answered identity
	ended := n.hooks.Writes.Begin()
	ctx = context.WithValue(ctx, unansweredKey{}, &w.Unknown)
	err := call(context.WithValue(ctx, identityKey{}, &answered))
	switch {
	case err != nil && !w.Unknown && ineffective(err):
		return err
	case err != nil:
		w.Unknown = true
	case answered.version != "":
		w.Version = answered.version
	case answered.uid != "":
		w.Gone = answered.uid
	case o.Preconditions != nil && o.Preconditions.UID != nil:
		w.Gone = *o.Preconditions.UID
	}
	ended(w)

	return err
}

// deletesAll makes a call that deletes many objects, and records it.
func (n *named) deletesAll(
	ctx context.Context, gvk schema.GroupVersionKind, o *client.DeleteAllOfOptions, call func(context.Context) error,
) error {
	unread := o.ListOptions.DisableReadYourWritesConsistency || o.DeleteOptions.DisableReadYourWritesConsistency
	if unread || len(o.DryRun) > 0 {
		return call(ctx)
	}
	w := writes.Write{GVK: gvk, Key: client.ObjectKey{Namespace: o.Namespace}}
	ended := n.hooks.Writes.Begin()
	err := call(context.WithValue(ctx, unansweredKey{}, &w.Unknown))
	if err != nil && !w.Unknown && ineffective(err) {
		return err
	}
	w.Unknown = w.Unknown || err != nil
	ended(w)

	return err
}
