// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetcache/fleetcache/clustercache"
	"github.com/fleetcache/fleetcache/clustercache/internal/apistatus"
)

var (
	// ErrDeleting indicates that the object is being deleted: an API server
	// refuses new finalizers then.
	ErrDeleting = errors.New("the object is being deleted")
	// ErrReplaced indicates that there is another object of the same name.
	ErrReplaced = errors.New("another object has the name now")

	// errAbsent indicates that a read was answered: there is no such object.
	errAbsent = errors.New("the object does not exist")
)

// FinalizerError is the reason why a finalizer was not added or removed. The
// cause names the cluster, if it is the error of a client of a ClusterCache.
type FinalizerError struct {
	// Op is "add" or "remove".
	Op string
	// Finalizer is the finalizer, and Object the name of the object.
	Finalizer string
	Object    client.ObjectKey
	Err       error
}

// Error implements error.
func (e *FinalizerError) Error() string {
	return fmt.Sprintf("%s finalizer %q of %s: %s", e.Op, e.Finalizer, e.Object, e.Err)
}

// Unwrap returns the cause.
func (e *FinalizerError) Unwrap() error { return e.Err }

// finalizerTries bounds the attempts where others change the object meanwhile.
const finalizerTries = 5

// AddFinalizer adds a finalizer to an object, unless it has that already, and
// reports whether it did. obj is the object as it was read, in any
// representation, and becomes what the server answers. If obj has the finalizer,
// no request is sent.
//
// The object is patched only in the state in which it was read, so that no
// finalizer of others is lost; after a conflict it is read again from the API
// server. AddFinalizer blocks for these requests. The error is a
// [*FinalizerError], which wraps [ErrDeleting], [ErrReplaced], or the error of
// the client: a conflict if the object changed five times meanwhile.
func AddFinalizer(ctx context.Context, c client.Client, obj client.Object, finalizer string) (added bool, err error) {
	if err := required(c, obj); err != nil {
		return false, err
	}
	added, err = edit(ctx, c, obj, func(has []string) ([]string, error) {
		switch {
		case slices.Contains(has, finalizer):
			return has, nil
		case obj.GetDeletionTimestamp() != nil:
			return nil, ErrDeleting
		}

		return append(slices.Clone(has), finalizer), nil
	})
	return added, finalizerError("add", finalizer, obj, err)
}

// RemoveFinalizer removes a finalizer from an object, if it has that, and
// reports whether it did. It is AddFinalizer otherwise, except that an object
// that does not exist any more, or was replaced by another one of its name, is
// no error. If obj, which a cache may have read, lacks the finalizer, the API
// server is asked whether the object does. Whether the object exists is decided
// by a read alone: an admission webhook may deny a write with any status, also
// with NotFound.
func RemoveFinalizer(
	ctx context.Context, c client.Client, obj client.Object, finalizer string,
) (removed bool, err error) {
	if err := required(c, obj); err != nil {
		return false, err
	}
	without := func(has []string) ([]string, error) {
		return slices.DeleteFunc(slices.Clone(has), func(f string) bool { return f == finalizer }), nil
	}
	if !slices.Contains(obj.GetFinalizers(), finalizer) {
		err = again(ctx, c, obj)
	}
	if err == nil {
		removed, err = edit(ctx, c, obj, without)
	}
	if errors.Is(err, errAbsent) || errors.Is(err, ErrReplaced) {
		return false, nil
	}
	return removed, finalizerError("remove", finalizer, obj, err)
}

func finalizerError(op, finalizer string, obj client.Object, err error) error {
	if err == nil {
		return nil
	}
	return &FinalizerError{
		Op:        op,
		Finalizer: finalizer,
		Object:    client.ObjectKeyFromObject(obj),
		Err:       err,
	}
}

// edit changes the finalizers of an object, and reports whether there was
// anything to change.
func edit(
	ctx context.Context, c client.Client, obj client.Object, change func(has []string) ([]string, error),
) (changed bool, err error) {
	if obj.GetResourceVersion() == "" { // it was not read
		if err := again(ctx, c, obj); err != nil {
			return false, err
		}
	}
	for range finalizerTries {
		want, failed := change(obj.GetFinalizers())
		if failed != nil || slices.Equal(want, obj.GetFinalizers()) {
			return false, failed
		}
		err = patch(ctx, c, obj, want)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err == nil, err
		}
		notFound := apierrors.IsNotFound(err)
		if failed := again(ctx, c, obj); failed != nil {
			return false, failed
		}
		if notFound {
			return false, err // the object exists: the answer is about something else
		}
	}

	return false, err
}

// patch sets the finalizers of an object that has not changed since it was
// read.
func patch(ctx context.Context, c client.Client, obj client.Object, finalizers []string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             obj.GetUID(),
		"resourceVersion": obj.GetResourceVersion(),
		"finalizers":      finalizers,
	}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, raw))
}

// again reads an object from the API server. The error is ErrReplaced if it is
// another one than before, and wraps errAbsent if there is none.
func again(ctx context.Context, c client.Client, obj client.Object) error {
	into := reflect.New(reflect.TypeOf(obj).Elem())
	fresh, ok := reflect.TypeAssert[client.Object](into)
	if !ok {
		return fmt.Errorf("%T is no pointer to an object", obj) //nolint:err113 // a mistake in the program
	}
	fresh.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	switch err := c.Get(ctx, client.ObjectKeyFromObject(obj), fresh, clustercache.LiveOnly); {
	case saysAbsent(err, obj):
		return fmt.Errorf("%w: %w", errAbsent, err)
	case err != nil:
		return err
	}
	if before := obj.GetUID(); before != "" && fresh.GetUID() != before {
		return ErrReplaced
	}
	reflect.ValueOf(obj).Elem().Set(into.Elem())

	return nil
}

// saysAbsent reports whether the answer to a read is that the object does not
// exist. An API server names the object in such an answer; another NotFound is
// about its path, its namespace, or what a gateway looked for.
func saysAbsent(err error, obj client.Object) bool {
	if !apierrors.IsNotFound(err) || apistatus.OfGateway(err) {
		return false
	}
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	about := answer.ErrStatus.Details
	return about != nil && about.Name == obj.GetName()
}

var errRequired = errors.New("required")

// required returns an error that names the arguments that are nil.
func required(c client.Client, obj client.Object) error {
	var errs []error
	if c == nil {
		errs = append(errs, &clustercache.OptionError{Field: "c", Err: errRequired})
	}
	if v := reflect.ValueOf(obj); !v.IsValid() || (v.Kind() == reflect.Pointer && v.IsNil()) {
		errs = append(errs, &clustercache.OptionError{Field: "obj", Err: errRequired})
	}
	return errors.Join(errs...)
}
