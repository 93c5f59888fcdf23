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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache/internal/writes"
)

// manner is how a write was requested.
type manner struct {
	dryRun []string
	// unread means that later reads need not show the write.
	unread bool
}

// recorded makes a call that writes w, and records in the log what is known
// about it. shows adds what the answer shows of the object, if that succeeds.
func (n *named) recorded(
	ctx context.Context, m manner, w writes.Write, answer *callState, call calling, shows func(*writes.Write),
) error {
	if m.unread || len(m.dryRun) > 0 {
		return n.do(ctx, answer, call)
	}
	ended := n.hooks.Writes.Begin()
	err := n.do(ctx, answer, call)
	// client-go tries a write again where a status with Retry-After asks for
	// that, and what the next try finds may be the work of the one before.
	w.Unknown = answer.unanswered
	switch {
	case err == nil:
		shows(&w)
	case !w.Unknown && ineffective(err):
		return err
	default:
		w.Unknown = true
	}
	ended(w)

	return err
}

// writeOf returns a write of obj, of which nothing more is known.
func (n *named) writeOf(obj any) writes.Write {
	return writes.Write{GVK: kindSent(obj, n.Scheme()), Key: keyOf(obj)}
}

// keyOf returns the key of an object or an apply configuration.
func keyOf(obj any) (key client.ObjectKey) {
	if absent(obj) {
		return key
	}
	switch o := obj.(type) {
	case client.Object:
		key = client.ObjectKeyFromObject(o)
	case applied:
		key.Namespace, key.Name = ptr.Deref(o.GetNamespace(), ""), ptr.Deref(o.GetName(), "")
	}

	return key
}

// shownBy adds what the answer to a write of obj shows of it. It was decoded
// into answer; nil if it does not show obj.
func shownBy(obj, answer any, w *writes.Write) {
	if w.Key.Name == "" {
		w.Key = keyOf(obj) // the server has chosen a name
	}
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

// deleteShows adds what the answer to a delete says about the object.
func deleteShows(w *writes.Write, answered identity, o *client.DeleteOptions) {
	switch {
	case answered.version != "":
		w.Version = answered.version
	case answered.uid != "":
		w.Gone = answered.uid
	case o.Preconditions != nil && o.Preconditions.UID != nil:
		w.Gone = *o.Preconditions.UID
	}
}
