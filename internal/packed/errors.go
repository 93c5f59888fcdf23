// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetcache/fleetcache/internal/wire"
)

var (
	// ErrTarget indicates that an object cannot be decoded into the given
	// value.
	ErrTarget = errors.New("not a target for decoding")
	// ErrCorrupt indicates that a body cannot be decoded: memory was corrupted
	// or this package has a bug.
	ErrCorrupt = errors.New("packed object is corrupt")
	// ErrMismatch indicates that a field has a type that differs from the Go
	// value's.
	ErrMismatch = errors.New("a field does not fit")
)

// DecodeError indicates that an object does not fit the Go value into which it
// should be decoded. It names the object but never quotes its content.
type DecodeError struct {
	// GVK, Namespace and Name identify the object.
	GVK             schema.GroupVersionKind
	Namespace, Name string
	// Target is the Go type.
	Target string
	// Field is the path of the field that does not fit, and how, if known.
	Field string
	// Err is ErrTarget, ErrCorrupt or ErrMismatch.
	Err error
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode %s %s into %s: %s", wire.Excerpt(e.GVK.Kind), wire.Excerpt(e.Namespace+"/"+e.Name),
		e.Target, cmp.Or(e.Field, e.Err.Error()))
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// decodeError returns an error of Into. It never wraps one of the JSON library,
// whose text quotes values, which may be secret.
func (o *Object) decodeError(dst runtime.Object, err error) *DecodeError {
	return &DecodeError{
		GVK:       o.kind.gvk,
		Namespace: o.GetNamespace(),
		Name:      o.GetName(),
		Target:    fmt.Sprintf("%T", dst),
		Err:       err,
	}
}

// readOnly is the panic message of every setter.
const readOnly = "informerpool: objects handed to handlers are shared and read-only; " +
	"DeepCopyObject returns a mutable copy"
