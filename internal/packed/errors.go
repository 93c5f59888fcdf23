// SPDX-FileCopyrightText: The fleetcache authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/json"
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
	// Field is the Go path of the field that does not fit, if known.
	Field string
	// Err is ErrTarget, ErrCorrupt or ErrMismatch.
	Err error
}

// Error implements error.
func (e *DecodeError) Error() string {
	msg := fmt.Sprintf("decode %s %s into %s: %v", wire.Excerpt(e.GVK.Kind), wire.Excerpt(e.Namespace+"/"+e.Name),
		e.Target, e.Err)
	if e.Field != "" {
		msg += " at " + e.Field
	}
	return msg
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// decodeError wraps an error of Into. Of an error of the JSON library it keeps
// only the position, because the error's text quotes values, which may be
// secret.
func (o *Object) decodeError(dst runtime.Object, err error) error {
	d := &DecodeError{
		GVK:       o.kind.gvk,
		Namespace: o.GetNamespace(),
		Name:      o.GetName(),
		Target:    fmt.Sprintf("%T", dst),
		Err:       ErrMismatch,
	}
	switch {
	case errors.Is(err, ErrTarget), errors.Is(err, ErrCorrupt):
		d.Err = err
	default:
		if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			d.Field = t.Struct + "." + t.Field
		}
	}

	return d
}

// readOnly is the panic message of every setter.
const readOnly = "informerpool: objects handed to handlers are shared and read-only; " +
	"DeepCopyObject returns a mutable copy"
